//! Fetching ahead of a sequential reader, on the background runtime (policy: [`crate::readahead`]).

use std::sync::Arc;

use tarn_base::codec::Decoded;
use tarn_data::RecordPointer;
use tarn_vfs::Node;

use crate::core::Core;
use crate::key::Key;
use crate::tx::{Need, Pins};
use crate::value::Inode;

impl Core {
    /// Notes a read and fetches what is likely to be read next.
    pub fn read_ahead(self: &Arc<Self>, node: Node, offset: u64, count: u32) {
        let Some((from, to)) = self.read_ahead.note(node, offset, u64::from(count)) else { return };
        let key = Key::inode(node.volume, node.ino);
        let held = self.stack.with(|stack| stack.get(&key)).and_then(|held| held.value);
        let Some(value) = held.or_else(|| self.caches.keys.get(&key).flatten()) else { return };
        let inode: Decoded<Inode> = Inode::decode(&value);
        let Ok(inode) = inode else { return };
        let to = to.min(inode.size);
        if from >= to || inode.has_cuts {
            return;
        }
        let core = self.clone();
        let records = (from >> inode.record_bits)..to.div_ceil(inode.record_size());
        self.world.spawn.spawn("read-ahead", Box::pin(async move { core.fill_ahead(node, records).await }));
    }

    async fn fill_ahead(&self, node: Node, records: std::ops::Range<u64>) {
        let keys: Vec<Key> = records.map(|record| Key::pointer(node.volume, node.ino, record)).collect();
        let cached = |key: &Key| self.caches.keys.get(key);
        let need = Need { keys: keys.iter().filter(|key| cached(key).is_none()).copied().collect(), ..Need::default() };
        let mut pins = Pins::default();
        if self.fetch(&mut pins, &need).await.is_err() {
            return;
        }
        let pointers = keys.iter().filter_map(|key| {
            let value = cached(key).or_else(|| pins.keys.get(key).cloned()).flatten()?;
            RecordPointer::decode(&value).ok().map(|pointer| (*key, pointer))
        });
        let missing: Vec<_> =
            pointers.filter(|(_, pointer)| !self.caches.records.holds(&(pointer.segment, pointer.index))).collect();
        // The reads that follow meet any error themselves.
        let _ = self.read_records(&missing).await;
    }
}
