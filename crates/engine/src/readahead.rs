//! Reading ahead of a sequential reader: mechanism here, policy in [`window`].
//!
//! - It only fills caches; a read that finds nothing there works as without it.
//! - It never runs for data that is dirty: that is in RAM or in the log.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use tarn_vfs::Node;

/// Sets of streams; a stream is in the one that its file and the place where it goes on choose.
const SETS: usize = 16;

/// Streams of a set watched at once; beyond that each gives way in its turn.
const STREAMS_OF_A_SET: usize = 16;

/// One sequential reader.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    node: Node,
    /// Where the next read would go on.
    next: u64,
    /// Bytes read in sequence so far.
    run: u64,
    /// Everything before this has been asked for.
    ahead: u64,
}

/// Streams, and for each a word by which most others are told from it without looking at it.
#[derive(Debug, Default)]
struct Set {
    /// 0: there is none. They change under the lock of the streams.
    words: [AtomicU32; STREAMS_OF_A_SET],
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    places: [Stream; STREAMS_OF_A_SET],
    /// Where the next one comes, if all places are taken.
    next: usize,
}

impl Set {
    fn find(&self, mut found: impl FnMut(usize, u32) -> bool) -> Option<usize> {
        (0..STREAMS_OF_A_SET).find(|at| found(*at, self.words[*at].load(Relaxed)))
    }

    /// The stream that goes on at `next`.
    fn take(&self, word: u32, node: Node, next: u64) -> Option<Stream> {
        // As nearly always: there is none, which takes no lock. One that comes at this moment is missed, and begins again.
        self.find(|_, held| held == word)?;
        let streams = self.streams.lock();
        let is_it = |stream: &Stream| stream.next == next && stream.node == node;
        let at = self.find(|at, held| held == word && is_it(&streams.places[at]))?;
        self.words[at].store(0, Relaxed);
        Some(streams.places[at])
    }

    fn put(&self, word: u32, stream: Stream) {
        let mut streams = self.streams.lock();
        let at = self.find(|_, held| held == 0).unwrap_or_else(|| {
            streams.next = (streams.next + 1) % STREAMS_OF_A_SET;
            streams.next
        });
        self.words[at].store(word, Relaxed);
        streams.places[at] = stream;
    }
}

/// The sequential readers of a shard.
///
/// Every read looks here, most of them in vain, so a read looks at one small set of streams instead of at all.
#[derive(Debug, Default)]
pub struct ReadAhead {
    sets: [Set; SETS],
}

/// The set of a stream that goes on at `next`, and its word.
fn place(node: Node, next: u64) -> (usize, u32) {
    let mixed = (node.ino.0 ^ next.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> (u64::BITS - SETS.ilog2())) as usize, (mixed >> 16) as u32 | 1)
}

/// How many bytes to read ahead after `run` bytes in sequence: nothing for the first reads, then as much again as
/// was read, at most 32 MiB, which hides 100 ms of an object store at 300 MB/s.
fn window(run: u64) -> u64 {
    if run < 128 << 10 { 0 } else { run.clamp(1 << 20, 32 << 20) }
}

impl ReadAhead {
    /// Notes a read; gives the range to fetch, if any.
    pub fn note(&self, node: Node, offset: u64, count: u64) -> Option<(u64, u64)> {
        let end = offset.saturating_add(count);
        let Some(mut stream) = self.take(node, offset) else {
            self.put(Stream { node, next: end, run: count, ahead: end });
            return None;
        };
        stream.next = end;
        stream.run += count;
        let from = stream.ahead.max(stream.next);
        let to = stream.next.saturating_add(window(stream.run));
        // Ask in large steps, not a record at a time.
        let due = to > from && to - from >= window(stream.run) / 2;
        if due {
            stream.ahead = to;
        }
        self.put(stream);
        due.then_some((from, to))
    }

    /// The stream that goes on at `offset`.
    fn take(&self, node: Node, offset: u64) -> Option<Stream> {
        let (set, word) = place(node, offset);
        self.sets[set].take(word, node, offset)
    }

    fn put(&self, stream: Stream) {
        let (set, word) = place(stream.node, stream.next);
        self.sets[set].put(word, stream);
    }
}

#[cfg(test)]
mod tests {
    use tarn_base::ids::Ino;

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

    #[test]
    fn many_sequential_readers_are_known_among_random_ones() {
        const READERS: u64 = 64;
        let ahead = ReadAhead::default();
        let reader = |ino: u64| Node { ino: Ino(ino), ..Node::default() };
        let mut random = 1_u64;
        let mut asked = vec![0_u64; READERS as usize];
        for step in 0..128_u64 {
            for ino in 0..READERS {
                let got = ahead.note(reader(ino), step << 16, 1 << 16);
                asked[ino as usize] = asked[ino as usize].max(got.map_or(0, |(_, to)| to));
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                assert_eq!(ahead.note(reader(READERS), (random >> 20) << 12, 4096), None);
            }
        }
        let known = asked.iter().filter(|to| **to > 128 << 16).count() as u64;
        assert!(known * 10 >= READERS * 9, "{known} of {READERS} are read ahead for at their ends");
    }
}
