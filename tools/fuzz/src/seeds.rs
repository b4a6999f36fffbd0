//! Committed seeds: inputs that were findings once, or that chance does not come by.
//!
//! - `seeds.txt`, a line each: the target's name and the bytes in hexadecimal; `#` begins a comment.
//! - They need not be valid. Each is judged before a target's campaign, and damaged further in it.

use crate::hex::unhex;
use crate::targets::Target;

const TEXT: &str = include_str!("../seeds.txt");

fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = TEXT.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap_or((line, "")))
}

/// Those of the target called so.
pub fn committed(target: &str) -> Vec<Vec<u8>> {
    lines().filter(|(name, _)| *name == target).filter_map(|(_, hex)| unhex(hex.trim())).collect()
}

/// Everything that inputs for `target` are made of.
pub fn bases(target: &Target) -> Vec<Vec<u8>> {
    let mut seeds = (target.seeds)();
    seeds.extend(committed(target.name));
    seeds
}

/// Whether every line is one of some target's, where `targets` are all there are.
pub fn check(targets: &[Target]) -> Result<(), String> {
    let whole = cfg!(feature = "whole") && targets.iter().all(|target| !target.name.starts_with("broken-"));
    let known = |name: &str| !whole || targets.iter().any(|target| target.name == name);
    match lines().find(|(name, hex)| !known(name) || unhex(hex.trim()).is_none()) {
        Some((name, _)) => Err(format!("seeds.txt has a line that is no seed of any target: {name}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_committed_seed_belongs_to_a_target() {
        assert_eq!(check(&crate::targets::all()), Ok(()));
        assert!(lines().count() > 0);
    }
}
