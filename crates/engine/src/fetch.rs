//! Fetching what an operation needs and RAM does not have. Runs on the background runtime only.
//!
//! - What is fetched is pinned for the operation, with the stack of that moment.
//! - It enters the caches only if that is still right (see [`crate::cache`]).

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::{Ino, VolumeId};
use tarn_meta::{MetaError, MetaResult};
use tarn_vfs::Errno;

use crate::core::Core;
use crate::hash::name_hash;
use crate::key::{Key, Kind, words};
use crate::listings::{self, Listing, Listings};
use crate::neighbours::{Neighbours, STRETCH};
use crate::overlay::Stack;
use crate::tx::{Need, PinnedRange, Pins};
use crate::value::{Bucket, CookieEntry, Inode};

/// Pointers fetched beside one that is needed where a file is gone through in order: the next reads and writes need
/// them.
const POINTERS_AHEAD: u64 = 64;
/// So long may what nobody has asked for keep waiting whoever caused it to be brought.
const BRING_WAIT: Duration = Duration::from_secs(1);
/// Some of these are there as long as the metadata is.
const MANIFESTS: &str = "meta/manifest/";

impl Core {
    /// Fetches all of `need` into `pins`.
    pub async fn fetch(&self, pins: &mut Pins, need: &Need) -> Result<(), Errno> {
        if need.log_room {
            self.wait_for_log_room().await?;
        }
        let stack = pins.stack.get_or_insert_with(|| self.stack.load()).clone();
        self.fetch_keys(&stack, pins, need).await?;
        for (range, limit) in &need.ranges {
            let page = self.fetch_range(&stack, range, *limit, need.attrs > 0).await?;
            let listed = self.listed(&stack, &page.listing.entries, need.attrs);
            if !listed.is_empty() {
                self.fetch_sorted(&stack, pins, listed).await?;
            }
            pins.ranges.push(page);
        }
        if !need.records.is_empty() {
            let records = match self.read_records(&need.records).await {
                Err(Errno::TryLater) if self.stack.load().version != need.version => {
                    // A checkpoint may have taken what was still read: begin again from the present.
                    *pins = Pins::default();
                    return Ok(());
                }
                read => read?,
            };
            for ((_, pointer), bytes) in need.records.iter().zip(records) {
                pins.records.insert((pointer.segment, pointer.index), bytes);
            }
        }
        for place in &need.logged {
            let read = match self.log.read(*place) {
                Ok(read) => read,
                Err(_) if self.stack.load().version != need.version => {
                    // Trimmed, for the store has had it since the run: begin again from the present.
                    *pins = Pins::default();
                    return Ok(());
                }
                Err(error) => {
                    tracing::error!(%error, "dirty data could not be read back from the log");
                    return Err(Errno::Io);
                }
            };
            pins.logged.insert(*place, read);
        }
        Ok(())
    }

    async fn fetch_keys(&self, stack: &Arc<Stack>, pins: &mut Pins, need: &Need) -> Result<(), Errno> {
        let (pointers, singles): (Vec<Key>, Vec<Key>) = need.keys.iter().partition(|key| key.kind == Kind::Pointer);
        if let [single] = singles[..] {
            self.fetch_single(stack, pins, single).await?;
        } else if !singles.is_empty() {
            self.fetch_sorted(stack, pins, singles).await?;
        }
        for key in pointers {
            if !pins.keys.contains_key(&key) {
                self.fetch_pointers(stack, pins, key).await?;
            }
        }
        Ok(())
    }

    /// Keys in order, none of them a pointer's.
    async fn fetch_sorted(&self, stack: &Arc<Stack>, pins: &mut Pins, keys: Vec<Key>) -> Result<(), Errno> {
        let encoded: Vec<Bytes> = keys.iter().map(Key::bytes).collect();
        let values = self.told(&keys, stack.view.get_sorted(&encoded).await).await?;
        for (key, value) in keys.into_iter().zip(values) {
            self.enter_cache(stack, key, value.clone());
            pins.keys.insert(key, value);
        }
        Ok(())
    }

    /// The inodes of the first `limit` of `entries`, if RAM does not have the first: then it has few of the others. What is missing
    /// nevertheless is asked for by the next run.
    fn listed(&self, stack: &Stack, entries: &[(Key, Bytes)], limit: usize) -> Vec<Key> {
        // Damage is told by who shows the listing.
        let inodes = entries.iter().filter_map(|(key, value)| {
            let entry = CookieEntry::decode(value).ok()?;
            Some(Key::inode(key.volume, entry.ino))
        });
        let mut inodes = inodes.skip_while(|key| stack.see(key, |_| {})).take(limit).peekable();
        if inodes.peek().is_none_or(|first| self.caches.keys.peek(first).is_some()) {
            return Vec::new();
        }
        let mut keys: Vec<Key> = inodes.collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    async fn fetch_single(&self, stack: &Arc<Stack>, pins: &mut Pins, key: Key) -> Result<(), Errno> {
        // What was brought is found in the cache by the next run, if it is still there.
        if key.kind == Kind::Inode && self.bring_inodes(stack, key).await {
            return Ok(());
        }
        let value = self.told(&[key], stack.view.get(&key.encode()).await).await?;
        self.enter_cache(stack, key, value.clone());
        pins.keys.insert(key, value);
        Ok(())
    }

    /// Brings the stretch that a missing inode lies in, if that is worth it, without waiting for long; whether the inode is in the
    /// cache now. What fails is told to who asks for just that.
    async fn bring_inodes(&self, stack: &Arc<Stack>, key: Key) -> bool {
        let Some(stretch) = self.caches.neighbours.stretch(&key) else { return false };
        let _turn = stretch.turn.lock().await;
        if self.caches.neighbours.begin(&key) {
            let (from, to) = Neighbours::inodes(&key);
            let mut page = None;
            let scan = async { page = stack.view.scan(&from.encode(), &to.encode(), STRETCH as usize).await.ok() };
            either(scan, self.world.clock.sleep(BRING_WAIT)).await;
            for (key, value) in decoded(page.map(|page| page.entries).unwrap_or_default()) {
                self.enter_cache(stack, key, Some(value));
            }
        }
        self.caches.neighbours.over(&key);
        self.caches.keys.peek(&key).is_some()
    }

    /// An inode as it is, if it is in RAM.
    fn present_inode(&self, volume: VolumeId, ino: Ino) -> Option<Inode> {
        let key = Key::inode(volume, ino);
        let held = self.stack.with(|stack| stack.get(&key)).and_then(|held| held.value);
        let inode = held.or_else(|| self.caches.keys.get(&key).flatten());
        inode.and_then(|bytes| Inode::decode(&bytes).ok())
    }

    /// How many pointers from `first` on are worth fetching: one, unless the one before it was asked for too.
    fn pointers_ahead(&self, pins: &Pins, first: Key) -> u64 {
        let inode = self.present_inode(first.volume, Ino(first.a));
        let records = inode.map_or(first.b + 1, |inode| inode.size.div_ceil(inode.record_size()));
        // Beyond the end it is being appended to.
        let records = if first.b < records { records } else { u64::MAX };
        let in_order = first.b == 0 || {
            let before = Key { b: first.b - 1, ..first };
            pins.keys.contains_key(&before) || self.caches.keys.get(&before).is_some()
        };
        let ahead = if in_order { POINTERS_AHEAD } else { 1 };
        ahead.min(records.saturating_sub(first.b)).max(1)
    }

    /// A pointer and perhaps those after it, holes included.
    async fn fetch_pointers(&self, stack: &Arc<Stack>, pins: &mut Pins, first: Key) -> Result<(), Errno> {
        let ahead = self.pointers_ahead(pins, first);
        if ahead == 1 {
            let value = self.told(&[first], stack.view.get(&first.encode()).await).await?;
            self.enter_cache(stack, first, value.clone());
            pins.keys.insert(first, value);
            return Ok(());
        }
        let end = Key { b: first.b.saturating_add(ahead), ..first };
        let page = stack.view.scan(&first.encode(), &end.encode(), ahead as usize).await;
        let page = self.told(&[first], page).await?;
        let mut found: BTreeMap<Key, Bytes> = decoded(page.entries).collect();
        for b in first.b..end.b {
            let key = Key { b, ..first };
            let value = found.remove(&key);
            self.enter_cache(stack, key, value.clone());
            pins.keys.insert(key, value);
        }
        Ok(())
    }

    async fn fetch_range(
        &self,
        stack: &Arc<Stack>,
        range: &Range<Key>,
        limit: usize,
        attrs: bool,
    ) -> Result<PinnedRange, Errno> {
        let begins = Listings::begins(range);
        let limit = if begins { limit.max(listings::AT_LEAST) } else { limit };
        let page = stack.view.scan(&range.start.encode(), &range.end.encode(), limit).await;
        let page = self.told(&[range.start], page).await?;
        let complete = page.complete;
        let mut entries: Vec<(Key, Bytes)> = decoded(page.entries).collect();
        // It may be kept, and is weighed by what is in it.
        entries.shrink_to_fit();
        let until = match entries.last() {
            Some((last, _)) if !complete => last.after(),
            _ => None,
        };
        // Who has attributes asks by name less often, and inodes need the room: then only at the beginning, where nothing must go for it.
        if !attrs || (begins && self.caches.has_room(entries.len())) {
            self.enter_names(stack, range.start, &entries);
        }
        let listing = Arc::new(Listing { entries, until });
        if begins {
            self.caches.listings.enter(&self.stack, stack.version, range.start, listing.clone());
        }
        Ok(PinnedRange { range: range.clone(), listing })
    }

    /// Puts what a listing says of names into the cache as what is found by them: who lists a directory goes on to look its names
    /// up, or to remove them.
    fn enter_names(&self, stack: &Arc<Stack>, first: Key, entries: &[(Key, Bytes)]) {
        let (volume, dir) = (first.volume, Ino(first.a));
        let distinct = || self.present_inode(volume, dir).is_some_and(|dir| dir.distinct);
        if first.kind != Kind::EntryCookie || !distinct() {
            return;
        }
        let Some(of) = self.volumes.get(volume) else { return };
        for (key, value) in entries {
            // Damage is told by who shows the listing.
            let Ok(entry) = CookieEntry::decode(value) else { continue };
            let hash = name_hash(&of.record.name_secret, &entry.name);
            let mut bucket = Vec::with_capacity(64);
            Bucket::of_one(entry, key.b).encode(&mut bucket);
            self.enter_cache(stack, Key::entry_hash(volume, dir, hash), Some(bucket.into()));
        }
    }

    /// Puts a fetched value into the cache if it still is the store's present one.
    fn enter_cache(&self, then: &Arc<Stack>, key: Key, value: Option<Bytes>) {
        let dirty = |stack: &Stack| key.kind == Kind::Pointer && stack.has_record(&(key.volume, Ino(key.a), key.b));
        let holds = |stack: &Stack| dirty(stack) || stack.see(&key, |_| {});
        self.stack.enter(then.version, holds, || self.caches.keys.insert(key, value));
    }

    /// What the metadata store said, or what a client is told when it could not be asked for `wanted`. Its error names the object,
    /// if one is damaged. What is gone with part of the store may be put back.
    async fn told<T>(&self, wanted: &[Key], said: MetaResult<T>) -> Result<T, Errno> {
        match said {
            Ok(value) => Ok(value),
            Err(MetaError::Damaged(what)) if !self.metadata_is_gone().await => {
                let whose: Vec<String> = wanted.iter().map(words).collect();
                self.health.damaged(format!("{}: {what}", whose.join("; ")));
                Err(Errno::Io)
            }
            Err(error) => {
                tracing::warn!(%error, "the metadata store could not be read");
                Err(Errno::TryLater)
            }
        }
    }

    /// Looks whether more than one object is gone, and notes it: the metadata, or more, was taken away and may be put back.
    pub async fn metadata_is_gone(&self) -> bool {
        if let Ok(manifests) = self.segments.store.list(MANIFESTS).await {
            let gone = manifests.is_empty();
            if self.health.metadata_missing.swap(gone, Ordering::Relaxed) != gone {
                match gone {
                    true => {
                        tracing::error!("every object of the metadata, below meta/, is gone: put it back as it was")
                    }
                    false => tracing::warn!("the metadata is there again"),
                }
            }
        }
        self.health.gone().is_some()
    }

    /// Waits until the log has been trimmed or flushed; not for ever.
    async fn wait_for_log_room(&self) -> Result<(), Errno> {
        self.log.request_flush();
        self.checkpoint_due.notify_one();
        let trimmed = pin!(self.log_trimmed.notified());
        let short = self.world.clock.sleep(Duration::from_millis(20));
        // Busy goes away with a write, full with a trim: look again soon, or when told.
        either(trimmed, short).await;
        Ok(())
    }
}

fn decoded(entries: Vec<(Bytes, Bytes)>) -> impl Iterator<Item = (Key, Bytes)> {
    entries.into_iter().filter_map(|(key, value)| Some((Key::decode(&key)?, value)))
}

/// Completes with the first of two.
pub async fn either(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    std::future::poll_fn(|cx| {
        if a.as_mut().poll(cx).is_ready() || b.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
