//! Stack and store view as one value.

use std::sync::Arc;

use parking_lot::RwLock;
use tarn_meta::MetaView;

use super::generation::{DataKey, Generation, OverlayValue};
use crate::key::Key;

/// One moment: the generations, newest first (the first is open), and the store below them.
#[derive(Clone, Debug)]
pub struct Stack {
    pub generations: Vec<Arc<Generation>>,
    pub view: Arc<dyn MetaView>,
    /// Counts exchanges of the view.
    pub version: u64,
}

/// What all generations of a stack take at one moment, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Of RAM.
    pub ram: u64,
    /// Of it, what changed keys take.
    pub keys: u64,
    /// Data that has passed the log by.
    pub unlogged: u64,
}

impl Stack {
    pub fn load(&self) -> Load {
        let mut load = Load::default();
        for generation in &self.generations {
            load.ram += generation.ram_bytes();
            load.keys += generation.key_bytes();
            load.unlogged += generation.unlogged();
        }
        load
    }

    pub fn open(&self) -> &Arc<Generation> {
        &self.generations[0]
    }

    /// Number of the oldest generation that is not in the view.
    pub fn oldest(&self) -> u64 {
        self.generations.last().map_or(0, |generation| generation.number)
    }

    /// The newest value of a key that is not in the view yet.
    pub fn get(&self, key: &Key) -> Option<OverlayValue> {
        self.generations.iter().find_map(|generation| generation.get(key))
    }

    /// Shows `see` the newest value of a key that is not in the view yet, if there is one.
    #[inline]
    pub fn see(&self, key: &Key, mut see: impl FnMut(&OverlayValue)) -> bool {
        self.generations.iter().any(|generation| generation.see(key, &mut see))
    }

    /// Whether any generation holds dirty data of a record.
    pub fn has_record(&self, key: &DataKey) -> bool {
        self.generations.iter().any(|generation| generation.has_record(key))
    }
}

/// The present stack. Taking it costs a short shared lock and one reference count.
#[derive(Debug)]
pub struct StackCell(RwLock<Arc<Stack>>);

impl StackCell {
    pub fn new(stack: Stack) -> StackCell {
        StackCell(RwLock::new(Arc::new(stack)))
    }

    pub fn load(&self) -> Arc<Stack> {
        self.0.read().clone()
    }

    /// Runs `f` on the present stack while no exchange can happen.
    pub fn with<T>(&self, f: impl FnOnce(&Arc<Stack>) -> T) -> T {
        f(&self.0.read())
    }

    /// Puts a new open generation on top.
    pub fn push(&self, open: Arc<Generation>) {
        let mut cell = self.0.write();
        let mut generations = Vec::with_capacity(cell.generations.len() + 1);
        generations.push(open);
        generations.extend(cell.generations.iter().cloned());
        *cell = Arc::new(Stack { generations, view: cell.view.clone(), version: cell.version });
    }

    /// The exchange: the generations up to `number` leave, the view that contains them comes.
    pub fn exchange(&self, number: u64, view: Arc<dyn MetaView>) {
        let mut cell = self.0.write();
        let generations = cell.generations.iter().filter(|held| held.number > number).cloned().collect();
        *cell = Arc::new(Stack { generations, view, version: cell.version + 1 });
    }
}
