use futures::executor::block_on;
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock};

use super::*;
use crate::memory::MemoryStore;

struct Still;

impl Clock for Still {
    fn now(&self) -> Time {
        Time::EPOCH
    }
    fn steady(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }
    fn sleep(&self, _: std::time::Duration) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// Counts, so that every salt is another.
#[derive(Default)]
struct Counting(Mutex<u8>);

impl Random for Counting {
    fn fill(&self, out: &mut [u8]) {
        let mut count = self.0.lock();
        *count += 1;
        out.fill(*count);
    }
}

fn stores() -> (Arc<MemoryStore>, SealedStore) {
    let memory = Arc::new(MemoryStore::new(Arc::new(Still)));
    let sealed = SealedStore::new(memory.clone(), Key::new([1; 32]), Arc::new(Counting::default()));
    (memory, sealed)
}

/// The same objects under the same key, with nothing remembered.
fn reopened(memory: &Arc<MemoryStore>) -> SealedStore {
    SealedStore::new(memory.clone(), Key::new([1; 32]), Arc::new(Counting::default()))
}

fn put(store: &dyn Store, name: &str, bytes: &[u8]) {
    block_on(store.put(name, Bytes::copy_from_slice(bytes), PutMode::Overwrite)).unwrap();
}

fn is_damaged<T: fmt::Debug>(result: StoreResult<T>) {
    assert!(matches!(&result, Err(StoreError::Damaged(name, _)) if name == "object"), "{result:?}");
}

#[test]
fn nothing_of_the_content_shows_and_equal_contents_differ() {
    let (memory, sealed) = stores();
    let bytes = b"planted content ".repeat(10_000);
    put(&sealed, "one", &bytes);
    put(&sealed, "two", &bytes);
    let stored: Vec<Bytes> = memory.contents().into_iter().map(|(_, bytes)| bytes).collect();
    assert_ne!(stored[0], stored[1]);
    for stored in stored {
        assert_eq!(stored.len() as u64, format::stored_size(bytes.len() as u64));
        assert!(!stored.windows(7).any(|part| part == b"planted"));
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    let (memory, sealed) = stores();
    put(&sealed, "object", b"some bytes");
    let size = memory.contents()[0].1.len();
    for bit in 0..size * 8 {
        memory.tamper("object", |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        is_damaged(block_on(sealed.get("object")));
        is_damaged(block_on(reopened(&memory).get_range("object", 0..10)));
        memory.tamper("object", |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
    }
    assert_eq!(block_on(sealed.get("object")).unwrap().0, &b"some bytes"[..]);
}

#[test]
fn a_cut_object_is_damaged_wherever_it_is_cut() {
    let whole = vec![5; 3 * CHUNK_SIZE as usize];
    let stored_chunk = CHUNK_SIZE as usize + TAG_SIZE;
    for keep in [0, 10, 32, 48, 32 + stored_chunk, 32 + 2 * stored_chunk, 32 + 3 * stored_chunk - 1] {
        let (memory, sealed) = stores();
        put(&sealed, "object", &whole);
        memory.tamper("object", |bytes| bytes.truncate(keep));
        is_damaged(block_on(sealed.get("object")));
        is_damaged(block_on(sealed.get_range("object", 2 * CHUNK_SIZE + 5..2 * CHUNK_SIZE + 9)));
        is_damaged(block_on(reopened(&memory).get_range("object", 2 * CHUNK_SIZE + 5..2 * CHUNK_SIZE + 9)));
    }
}

#[test]
fn chunks_do_not_open_elsewhere() {
    let (memory, sealed) = stores();
    put(&sealed, "object", &vec![5; 3 * CHUNK_SIZE as usize]);
    let stored_chunk = CHUNK_SIZE as usize + TAG_SIZE;
    memory.tamper("object", |bytes| {
        let chunk = bytes[32..32 + stored_chunk].to_vec();
        bytes[32 + stored_chunk..32 + 2 * stored_chunk].copy_from_slice(&chunk);
    });
    is_damaged(block_on(sealed.get("object")));
    is_damaged(block_on(sealed.get_range("object", CHUNK_SIZE..CHUNK_SIZE + 1)));
    put(&sealed, "other", b"other");
    let other = memory.contents().into_iter().find(|(name, _)| name == "other").unwrap().1;
    memory.tamper("object", |bytes| *bytes = other.to_vec());
    is_damaged(block_on(sealed.get("object")));
}

#[test]
fn another_key_does_not_open() {
    let (memory, sealed) = stores();
    put(&sealed, "object", b"some bytes");
    let other = SealedStore::new(memory, Key::new([2; 32]), Arc::new(Counting::default()));
    is_damaged(block_on(other.get("object")));
    is_damaged(block_on(other.get_range("object", 0..1)));
}

#[test]
fn an_object_overwritten_by_another_is_read_anew() {
    let (memory, sealed) = stores();
    let other = SealedStore::new(memory, Key::new([1; 32]), Arc::new(Counting(Mutex::new(100))));
    put(&sealed, "object", b"short");
    assert_eq!(block_on(sealed.get_range("object", 1..3)).unwrap(), &b"ho"[..]);
    put(&other, "object", &vec![9; 100_000]);
    assert_eq!(block_on(sealed.get_range("object", 1..3)).unwrap(), &[9, 9][..]);
    assert_eq!(block_on(sealed.get_range("object", 90_000..90_002)).unwrap(), &[9, 9][..]);
}

#[test]
fn only_the_chunks_of_a_range_are_read() {
    let (memory, sealed) = stores();
    put(&sealed, "object", &vec![5; 10 * CHUNK_SIZE as usize]);
    memory.tamper("object", |bytes| bytes[40] ^= 1);
    assert!(block_on(sealed.get_range("object", CHUNK_SIZE..9 * CHUNK_SIZE)).is_ok());
    is_damaged(block_on(sealed.get_range("object", CHUNK_SIZE - 1..CHUNK_SIZE + 1)));
}
