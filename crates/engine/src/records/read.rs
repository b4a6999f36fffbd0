//! Reading records: ranged GETs, coalesced over neighbours, verified, followed where they were moved.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tarn_base::ids::{SegmentId, VolumeId};
use tarn_base::large::LargePages;
use tarn_data::{Forwarding, RecordPointer, SegmentState, SegmentValue, object_name};
use tarn_meta::MetaError;
use tarn_store::StoreError;
use tarn_vfs::Errno;

use crate::core::Core;
use crate::key::{Key, Kind};
use crate::segments::flight::{Board, Name};

/// Bytes between two records that are read along rather than asked for apart.
const GAP_MAX: u64 = 64 << 10;
/// Bytes of one GET: beyond it two in parallel are faster.
const RANGE_MAX: u64 = 4 << 20;
/// GETs at once for one caller.
const GETS_MAX: usize = 16;
/// Tries of one GET before the client is told to try later.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// A record wanted, and where its bytes are thought to be.
#[derive(Clone, Debug)]
struct Want {
    /// The pointer's key: whose it is.
    key: Key,
    pointer: RecordPointer,
    offset: u64,
}

/// Neighbouring records of one object, in order of offset.
#[derive(Debug)]
struct Span {
    object: SegmentId,
    start: u64,
    end: u64,
    wants: Vec<Want>,
}

impl Core {
    /// The plaintext of records, each with its pointer's key, in the order asked. Transient errors are retried, then
    /// [`Errno::TryLater`]; damage is
    /// noted and is [`Errno::Io`].
    pub async fn read_records(&self, wants: &[(Key, RecordPointer)]) -> Result<Vec<Bytes>, Errno> {
        let found = self.read_each(wants, true).await;
        let get = |pointer: &RecordPointer| found.get(&(pointer.segment, pointer.index)).cloned();
        wants.iter().map(|(_, pointer)| get(pointer).unwrap_or(Err(Errno::Io))).collect()
    }

    /// As [`Core::read_records`], each record for itself. What is not to be `kept` enters no cache.
    pub async fn read_each(&self, wants: &[(Key, RecordPointer)], kept: bool) -> BTreeMap<Name, Result<Bytes, Errno>> {
        let mut found: BTreeMap<Name, Result<Bytes, Errno>> = BTreeMap::new();
        loop {
            let mut flight = self.segments.flights.begin();
            let mut lead = Vec::new();
            let mut joined = Vec::new();
            for (key, pointer) in wants {
                let name = (pointer.segment, pointer.index);
                if found.contains_key(&name) || lead.iter().any(|(_, held): &(_, RecordPointer)| same(held, pointer)) {
                    continue;
                }
                if let Some(bytes) = self.caches.records.get(&name) {
                    found.insert(name, Ok(bytes));
                    continue;
                }
                match flight.board(name) {
                    Board::Lead => lead.push((*key, *pointer)),
                    Board::Join(receiver) => joined.push((name, receiver)),
                }
            }
            if lead.is_empty() && joined.is_empty() {
                return found;
            }
            for (name, outcome) in self.read_led(lead, kept).await {
                flight.land(name, &outcome);
                found.insert(name, outcome);
            }
            for (name, receiver) in joined {
                // A read that was given up is begun again in the next round.
                if let Ok(outcome) = receiver.await {
                    found.insert(name, outcome);
                }
            }
        }
    }

    /// The plaintext of one record from the store, whatever caches hold; `volume` is one of its family.
    pub async fn read_back(&self, volume: VolumeId, pointer: &RecordPointer) -> Result<Bytes, Errno> {
        let key = Key { volume, ..Key::count(pointer.segment, pointer.index) };
        let found = self.read_led(vec![(key, *pointer)], true).await;
        found.into_iter().next().map_or(Err(Errno::Io), |(_, outcome)| outcome)
    }

    async fn read_led(&self, wants: Vec<(Key, RecordPointer)>, kept: bool) -> Vec<(Name, Result<Bytes, Errno>)> {
        let mut spans = spans(wants.into_iter().map(|(key, pointer)| self.placed(key, pointer)).collect());
        let mut out = Vec::new();
        let mut reads = FuturesUnordered::new();
        loop {
            while reads.len() < GETS_MAX
                && let Some(span) = spans.pop()
            {
                reads.push(self.read_span(span, kept));
            }
            let Some(records) = reads.next().await else { return out };
            out.extend(records);
        }
    }

    /// The object that a record is in, and where in it, as far as is known.
    pub fn lies(&self, pointer: &RecordPointer) -> (SegmentId, u64) {
        let forwarding = self.segments.forwarded.read().get(&pointer.segment).cloned();
        let forward = forwarding.and_then(|forwarding| forwarding.records.get(&pointer.index).copied());
        forward.map_or((pointer.segment, u64::from(pointer.offset)), |to| (to.segment, u64::from(to.offset)))
    }

    /// The name of the object that holds a record, as far as is known.
    pub fn record_object(&self, pointer: &RecordPointer) -> String {
        object_name(self.lies(pointer).0)
    }

    fn placed(&self, key: Key, pointer: RecordPointer) -> (SegmentId, Want) {
        let (object, offset) = self.lies(&pointer);
        (object, Want { key, pointer, offset })
    }

    async fn read_span(&self, span: Span, kept: bool) -> Vec<(Name, Result<Bytes, Errno>)> {
        let mut out = Vec::with_capacity(span.wants.len());
        match self.get_patiently(&object_name(span.object), span.start..span.end).await {
            Ok(bytes) => {
                for want in &span.wants {
                    // An answer that is too short is a store's mistake: what is missing does not verify.
                    let at = ((want.offset - span.start) as usize).min(bytes.len());
                    let stored = bytes.slice(at..bytes.len().min(at + want.pointer.stored as usize));
                    out.push((name(want), self.open_record(want, span.object, &stored, kept).await));
                }
            }
            Err(StoreError::NotFound(_)) => {
                for want in &span.wants {
                    out.push((name(want), self.read_moved(want, span.object, kept).await));
                }
            }
            // The object is too short for some of them.
            Err(StoreError::Range(..)) if span.wants.len() > 1 => {
                for want in span.wants {
                    let alone = Span {
                        object: span.object,
                        start: want.offset,
                        end: want.offset + u64::from(want.pointer.stored),
                        wants: vec![want],
                    };
                    out.extend(Box::pin(self.read_span(alone, kept)).await);
                }
            }
            Err(error) => {
                let errno = self.read_failed(&span, &error);
                out.extend(span.wants.iter().map(|want| (name(want), Err(errno))));
            }
        }
        out
    }

    /// The stored bytes of one record, wherever it lies.
    pub(super) async fn get_alone(&self, key: Key, pointer: &RecordPointer) -> Result<Bytes, StoreError> {
        let (object, want) = self.placed(key, *pointer);
        self.get_patiently(&object_name(object), want.offset..want.offset + u64::from(pointer.stored)).await
    }

    /// Whether the stored bytes of a record verify.
    pub(super) async fn opens(&self, key: Key, pointer: &RecordPointer, stored: &Bytes) -> Result<bool, MetaError> {
        let (_, want) = self.placed(key, *pointer);
        Ok(pointer.open(&*self.record_key(&want).await?, stored).is_ok())
    }

    /// A GET, repeated with growing pauses while the store is away.
    async fn get_patiently(&self, name: &str, range: std::ops::Range<u64>) -> Result<Bytes, StoreError> {
        let mut pause = FIRST_PAUSE;
        let mut tries = 1;
        loop {
            match self.segments.store.get_range(name, range.clone()).await {
                Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) if tries < TRIES => {}
                answer => return answer,
            }
            self.world.clock.sleep(pause).await;
            pause *= 2;
            tries += 1;
        }
    }

    /// Verifies and expands. What does not verify is read once more, apart: the way here may have been to blame.
    async fn open_record(&self, want: &Want, object: SegmentId, stored: &Bytes, kept: bool) -> Result<Bytes, Errno> {
        let pointer = &want.pointer;
        let key = self.record_key(want).await.map_err(|error| self.keyless(want, &error))?;
        let elsewhere = LargePages::default();
        let memory = if kept { self.caches.records.memory() } else { &elsewhere };
        let opened = match pointer.open_in(memory, &key, stored) {
            Ok(bytes) => Ok(bytes),
            Err(first) => {
                let range = want.offset..want.offset + u64::from(pointer.stored);
                match self.get_patiently(&object_name(object), range).await {
                    Ok(again) => pointer.open_in(memory, &key, &again),
                    Err(_) => Err(first),
                }
            }
        };
        match opened {
            Ok(bytes) => {
                if kept {
                    self.caches.records.insert((pointer.segment, pointer.index), bytes.clone());
                }
                Ok(bytes)
            }
            Err(error) => {
                self.damaged_record(want, object, &error.to_string());
                Err(Errno::Io)
            }
        }
    }

    async fn record_key(&self, want: &Want) -> Result<Arc<tarn_data::SegmentKey>, MetaError> {
        let family = self.family(want.key.volume).await?;
        let family = family.ok_or_else(|| MetaError::Damaged(format!("no volume {}", want.key.volume.0)))?;
        let salt = self.salt(want.pointer.segment.epoch).await?;
        Ok(self.segments.keys.get(&family.key, &salt, want.pointer.segment))
    }

    fn keyless(&self, want: &Want, error: &MetaError) -> Errno {
        if let MetaError::Damaged(what) = error {
            self.damaged_record(want, want.pointer.segment, what);
            return Errno::Io;
        }
        tracing::warn!(%error, "the key of a record could not be read");
        Errno::TryLater
    }

    /// The object is not there: the record was moved, and its segment's key says where to.
    async fn read_moved(&self, want: &Want, tried: SegmentId, kept: bool) -> Result<Bytes, Errno> {
        self.segments.forget_forwarding(want.pointer.segment);
        let forwarding = match self.forwarding(want.pointer.segment).await {
            Ok(forwarding) => forwarding,
            Err(error) => return Err(self.keyless(want, &error)),
        };
        let forward = forwarding.and_then(|forwarding| forwarding.records.get(&want.pointer.index).copied());
        let Some(forward) = forward.filter(|forward| forward.segment != tried) else {
            if self.store_is_gone().await || self.is_outdated(want).await {
                return Err(Errno::TryLater);
            }
            self.damaged_record(want, tried, "the object is missing");
            return Err(Errno::Io);
        };
        let offset = u64::from(forward.offset);
        let range = offset..offset + u64::from(want.pointer.stored);
        let object = forward.segment;
        match self.get_patiently(&object_name(object), range.clone()).await {
            Ok(stored) => self.open_record(&Want { offset, ..want.clone() }, object, &stored, kept).await,
            Err(StoreError::NotFound(_)) if self.is_outdated(want).await => Err(Errno::TryLater),
            Err(error) => {
                let wants = vec![want.clone()];
                Err(self.read_failed(&Span { object, start: range.start, end: range.end, wants }, &error))
            }
        }
    }

    /// Whether a checkpoint has changed the pointer since it was read: then nothing names the record any more, and where it
    /// was is forgotten. Where that cannot be asked, nothing is known of damage either.
    async fn is_outdated(&self, want: &Want) -> bool {
        let Want { key, pointer, .. } = want;
        if key.kind != Kind::Pointer {
            return false;
        }
        let view = self.stack.load().view.clone();
        match view.get(&key.encode()).await {
            Ok(Some(value)) => RecordPointer::decode(&value).is_ok_and(|present| !same(&present, pointer)),
            Ok(None) | Err(_) => true,
        }
    }

    /// Whether more than one object is gone: the store was taken away, and may be put back.
    async fn store_is_gone(&self) -> bool {
        let owner = self.segments.store.head(crate::owner::record::NAME).await;
        self.health.gone().is_some() || matches!(owner, Err(StoreError::NotFound(_)))
    }

    /// What a segment's key says.
    pub async fn segment(&self, segment: SegmentId) -> Result<Option<SegmentValue>, MetaError> {
        let view = self.stack.load().view.clone();
        let Some(value) = view.get(&Key::segment(segment).encode()).await? else { return Ok(None) };
        let damaged = |error| MetaError::Damaged(format!("the key of segment {segment}: {error}"));
        SegmentValue::decode(&value).map(Some).map_err(damaged)
    }

    /// What a segment's key says of where its records went.
    pub async fn forwarding(&self, segment: SegmentId) -> Result<Option<Arc<Forwarding>>, MetaError> {
        let Some(SegmentValue { state: SegmentState::Forwarding(forwarding), .. }) = self.segment(segment).await?
        else {
            return Ok(None);
        };
        let forwarding = Arc::new(forwarding);
        self.segments.forwarded.write().insert(segment, forwarding.clone());
        Ok(Some(forwarding))
    }

    fn read_failed(&self, span: &Span, error: &StoreError) -> Errno {
        match error {
            StoreError::NotFound(_) | StoreError::Range(..) | StoreError::Damaged(..) => {
                for want in &span.wants {
                    self.damaged_record(want, span.object, &error.to_string());
                }
                Errno::Io
            }
            _ => {
                tracing::warn!(%error, object = %object_name(span.object), "records could not be read");
                Errno::TryLater
            }
        }
    }

    fn damaged_record(&self, want: &Want, object: SegmentId, what: &str) {
        let RecordPointer { segment, index, .. } = want.pointer;
        self.dedupe.damaged(segment, index);
        let object = object_name(object);
        let Key { volume, kind, a, b, .. } = want.key;
        let whose = match kind {
            Kind::Pointer => format!("record {b} of volume {}, inode {a}", volume.0),
            _ => "found when its content was to be stored again".to_owned(),
        };
        self.health.damaged(format!("record {index} of segment {segment}, in {object}: {what}; {whose}"));
    }
}

fn same(a: &RecordPointer, b: &RecordPointer) -> bool {
    (a.segment, a.index) == (b.segment, b.index)
}

fn name(want: &Want) -> Name {
    (want.pointer.segment, want.pointer.index)
}

/// Puts neighbours together.
fn spans(mut wants: Vec<(SegmentId, Want)>) -> Vec<Span> {
    wants.sort_by_key(|(object, want)| (*object, want.offset));
    let mut out: Vec<Span> = Vec::new();
    for (object, want) in wants {
        let (start, end) = (want.offset, want.offset + u64::from(want.pointer.stored));
        match out.last_mut() {
            Some(span)
                if span.object == object
                    && start <= span.end + GAP_MAX
                    && end.max(span.end) - span.start <= RANGE_MAX =>
            {
                span.end = span.end.max(end);
                span.wants.push(want);
            }
            _ => out.push(Span { object, start, end, wants: vec![want] }),
        }
    }
    // Taken from the end: the first come first.
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use tarn_base::ids::Ino;

    use super::*;

    fn want(counter: u32, offset: u32, stored: u32) -> (SegmentId, Want) {
        let segment = SegmentId { epoch: 1, counter };
        let pointer = RecordPointer { segment, offset, stored, ..RecordPointer::default() };
        let key = Key::pointer(VolumeId(1), Ino(1), 0);
        (segment, Want { key, pointer, offset: u64::from(offset) })
    }

    #[test]
    fn neighbours_are_read_together_and_strangers_apart() {
        let wants = vec![want(1, 9000, 1000), want(1, 0, 4096), want(2, 0, 10), want(1, 1 << 20, 100)];
        let spans = spans(wants);
        let shown: Vec<_> =
            spans.iter().rev().map(|span| (span.object.counter, span.start, span.end, span.wants.len())).collect();
        assert_eq!(shown, [(1, 0, 10_000, 2), (1, 1 << 20, (1 << 20) + 100, 1), (2, 0, 10, 1)]);
    }
}
