//! What has been met: crash points, faults, operations, endings.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;

/// Counts by kind and name; adds up over seeds.
#[derive(Debug, Default)]
pub struct Coverage(Mutex<BTreeMap<(&'static str, String), u64>>);

impl Coverage {
    pub fn hit(&self, kind: &'static str, name: impl Into<String>) {
        *self.0.lock().entry((kind, name.into())).or_insert(0) += 1;
    }

    pub fn count(&self, kind: &'static str, name: &str) -> u64 {
        self.0.lock().get(&(kind, name.to_owned())).copied().unwrap_or(0)
    }

    /// The names of a kind.
    pub fn names(&self, kind: &'static str) -> Vec<String> {
        self.0.lock().keys().filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect()
    }

    /// The sum of all counts of a kind.
    pub fn total(&self, kind: &'static str) -> u64 {
        self.0.lock().iter().filter(|((of, _), _)| *of == kind).map(|(_, count)| count).sum()
    }

    pub fn add(&self, other: &Coverage) {
        let mut counts = self.0.lock();
        for (key, count) in other.0.lock().iter() {
            *counts.entry(key.clone()).or_insert(0) += count;
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = "";
        for ((kind, name), count) in self.0.lock().iter() {
            if *kind != last {
                writeln!(f, "{kind}")?;
                last = kind;
            }
            writeln!(f, "  {count:>9}  {name}")?;
        }
        Ok(())
    }
}
