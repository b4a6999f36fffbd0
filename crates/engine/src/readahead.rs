//! Reading ahead of a sequential reader: mechanism here, policy in [`window`].
//!
//! - It only fills caches; a read that finds nothing there works as without it.
//! - It never runs for data that is dirty: that is in RAM or in the log.

use std::sync::Arc;

use parking_lot::Mutex;
use tarn_vfs::Node;

use crate::core::Core;
use crate::key::Key;
use crate::tx::{Need, Pins};
use crate::value::Inode;
use tarn_base::codec::Decoded;
use tarn_data::RecordPointer;

/// Streams watched at once; the oldest gives way.
const STREAMS_MAX: usize = 256;

/// One sequential reader.
#[derive(Clone, Copy, Debug)]
struct Stream {
    node: Node,
    /// Where the next read would go on.
    next: u64,
    /// Bytes read in sequence so far.
    run: u64,
    /// Everything before this has been asked for.
    ahead: u64,
}

/// The sequential readers of a shard.
#[derive(Debug, Default)]
pub struct ReadAhead {
    streams: Mutex<Vec<Stream>>,
}

/// How many bytes to read ahead after `run` bytes in sequence: nothing for the first reads, then as much again as
/// was read, at most 32 MiB, which hides 100 ms of an object store at 300 MB/s.
fn window(run: u64) -> u64 {
    if run < 128 << 10 { 0 } else { run.clamp(1 << 20, 32 << 20) }
}

impl ReadAhead {
    /// Notes a read; gives the range to fetch, if any.
    fn note(&self, node: Node, offset: u64, count: u64) -> Option<(u64, u64)> {
        let mut streams = self.streams.lock();
        let at = streams.iter().position(|stream| stream.node == node && stream.next == offset);
        let Some(at) = at else {
            if streams.len() >= STREAMS_MAX {
                streams.remove(0);
            }
            let end = offset.saturating_add(count);
            streams.push(Stream { node, next: end, run: count, ahead: end });
            return None;
        };
        let mut stream = streams.remove(at);
        stream.next = offset.saturating_add(count);
        stream.run += count;
        let from = stream.ahead.max(stream.next);
        let to = stream.next.saturating_add(window(stream.run));
        // Ask in large steps, not a record at a time.
        let due = to > from && to - from >= window(stream.run) / 2;
        if due {
            stream.ahead = to;
        }
        streams.push(stream);
        due.then_some((from, to))
    }
}

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
            RecordPointer::decode(&value).ok()
        });
        let missing: Vec<_> = pointers
            .filter(|pointer| self.caches.records.get(&(pointer.segment, pointer.index)).is_none())
            .map(|pointer| (node.volume, pointer))
            .collect();
        // The reads that follow meet any error themselves.
        let _ = self.read_records(&missing).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sequential_reader_is_read_ahead_for() {
        let ahead = ReadAhead::default();
        let node = Node::default();
        assert_eq!(ahead.note(node, 0, 65_536), None);
        let (from, to) = ahead.note(node, 65_536, 65_536).expect("128 KiB in sequence");
        assert_eq!(from, 131_072);
        assert!(to >= from + (1 << 20) - 65_536);
        assert_eq!(ahead.note(node, 131_072, 4096), None, "asked for already");
        assert_eq!(ahead.note(node, 999_999, 65_536), None);
    }
}
