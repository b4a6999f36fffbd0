//! Reading ahead of a sequential reader: mechanism here, policy in [`window`].
//!
//! - It only fills caches; a read that finds nothing there works as without it.
//! - It never runs for data that is dirty: that is in RAM or in the log.

use parking_lot::Mutex;
use tarn_vfs::Node;

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
    pub fn note(&self, node: Node, offset: u64, count: u64) -> Option<(u64, u64)> {
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
