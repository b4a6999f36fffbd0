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
pub struct StackCell(RwLock<Present>);

#[derive(Debug)]
struct Present {
    stack: Arc<Stack>,
    /// What an exchange brings is entering the cache.
    showing: bool,
}

impl StackCell {
    pub fn new(stack: Stack) -> StackCell {
        StackCell(RwLock::new(Present { stack: Arc::new(stack), showing: false }))
    }

    pub fn load(&self) -> Arc<Stack> {
        self.0.read().stack.clone()
    }

    /// Runs `f` on the present stack while no exchange can happen.
    pub fn with<T>(&self, f: impl FnOnce(&Arc<Stack>) -> T) -> T {
        f(&self.0.read().stack)
    }

    /// What the next exchange brings begins to enter the cache.
    pub fn show(&self) -> Showing<'_> {
        self.0.write().showing = true;
        Showing(self)
    }

    /// Runs `enter`, if the stack still has version `then`. It puts a key of that view into the cache, where nothing comes after what
    /// the next exchange brings: from the moment that this begins until it has happened, no key that a generation `holds` enters.
    pub fn enter(&self, then: u64, holds: impl FnOnce(&Stack) -> bool, enter: impl FnOnce()) {
        let cell = self.0.read();
        if cell.stack.version == then && !(cell.showing && holds(&cell.stack)) {
            enter();
        }
    }

    /// Puts a new open generation on top.
    pub fn push(&self, open: Arc<Generation>) {
        let mut cell = self.0.write();
        let Stack { generations: held, view, version } = &*cell.stack;
        let generations = [open].into_iter().chain(held.iter().cloned()).collect();
        cell.stack = Arc::new(Stack { generations, view: view.clone(), version: *version });
    }
}

/// What an exchange brings enters the cache; then it happens.
#[must_use]
pub struct Showing<'a>(&'a StackCell);

impl Showing<'_> {
    /// The exchange: the generations up to `number` leave, the view that contains them comes.
    pub fn exchange(self, number: u64, view: Arc<dyn MetaView>) {
        let mut cell = self.0.0.write();
        let stack = &cell.stack;
        let generations = stack.generations.iter().filter(|held| held.number > number).cloned().collect();
        let stack = Arc::new(Stack { generations, view, version: stack.version + 1 });
        *cell = Present { stack, showing: false };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tarn_base::ids::{Ino, Position, VolumeId};
    use tarn_meta::MetaOpener;
    use tarn_meta::mem::{MemDisk, MemOpener};

    use super::*;

    #[tokio::test]
    async fn while_a_checkpoint_is_shown_nothing_enters_that_it_changes() {
        let view = MemOpener::new(MemDisk::new()).open().await.unwrap().view();
        let generation = Arc::new(Generation::new(1, Position::ZERO, Duration::ZERO));
        let (changed, other) = (Key::inode(VolumeId(1), Ino(1)), Key::inode(VolumeId(1), Ino(2)));
        generation.put(changed, OverlayValue { value: None, barrier: Position::ZERO, new: false });
        let cell = StackCell::new(Stack { generations: vec![generation], view: view.clone(), version: 0 });
        let enters = |then, key| {
            let entered = Cell::new(false);
            cell.enter(then, |stack| stack.get(&key).is_some(), || entered.set(true));
            entered.get()
        };
        assert!(enters(0, changed) && enters(0, other), "what is shown comes after it");
        let showing = cell.show();
        assert!(!enters(0, changed) && enters(0, other));
        showing.exchange(1, view);
        assert!(!enters(0, changed) && !enters(0, other), "of an older view");
        assert!(enters(1, changed) && enters(1, other));
    }
}
