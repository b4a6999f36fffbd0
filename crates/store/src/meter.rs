//! Counts what is asked of a store: calls, bytes, and what went wrong.
//!
//! - Counters only grow. Each is exact; a snapshot taken during calls may be between two counters of one call.
//! - A call counts when it begins; one that was dropped has neither bytes nor an error.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tarn_base::world::Clock;

use crate::contract::{ObjectInfo, PutMode, Store, StoreError, StoreResult, Version};
use crate::operation::Kind;

/// What can go wrong, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    NotFound,
    /// A conditional `put` that lost.
    Conflict,
    Range,
    Damaged,
    Denied,
    Full,
    Unavailable,
    Unknown,
}

impl Trouble {
    pub const ALL: [Trouble; 8] = [
        Trouble::NotFound,
        Trouble::Conflict,
        Trouble::Range,
        Trouble::Damaged,
        Trouble::Denied,
        Trouble::Full,
        Trouble::Unavailable,
        Trouble::Unknown,
    ];

    /// As metrics write it.
    pub fn label(self) -> &'static str {
        match self {
            Trouble::NotFound => "not_found",
            Trouble::Conflict => "conflict",
            Trouble::Range => "range",
            Trouble::Damaged => "damaged",
            Trouble::Denied => "denied",
            Trouble::Full => "full",
            Trouble::Unavailable => "unavailable",
            Trouble::Unknown => "unknown",
        }
    }

    fn of(error: &StoreError) -> Trouble {
        match error {
            StoreError::NotFound(_) => Trouble::NotFound,
            StoreError::Exists(_) | StoreError::Changed(_) => Trouble::Conflict,
            StoreError::Range(..) => Trouble::Range,
            StoreError::Damaged(..) => Trouble::Damaged,
            StoreError::Denied(_) => Trouble::Denied,
            StoreError::Full(_) => Trouble::Full,
            StoreError::Unavailable(_) => Trouble::Unavailable,
            StoreError::Unknown(_) => Trouble::Unknown,
        }
    }
}

/// Counts of one kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub calls: u64,
    /// Bytes of objects, sent or received, of calls that succeeded.
    pub bytes: u64,
    /// Time of calls that came to an end, with success or without; 0 of a meter without a clock.
    pub microseconds: u64,
    /// By [`Trouble`], in its order.
    pub troubles: [u64; Trouble::ALL.len()],
}

impl Counts {
    pub fn of(&self, trouble: Trouble) -> u64 {
        self.troubles[trouble as usize]
    }

    /// Calls that ended in any error.
    pub fn errors(&self) -> u64 {
        self.troubles.iter().sum()
    }
}

#[derive(Default)]
struct Counters {
    calls: AtomicU64,
    bytes: AtomicU64,
    microseconds: AtomicU64,
    troubles: [AtomicU64; Trouble::ALL.len()],
}

/// The counters of a [`MeterStore`]; readable while it is used.
#[derive(Default)]
pub struct Meter {
    kinds: [Counters; Kind::ALL.len()],
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(Kind::ALL.map(|kind| (kind.label(), self.counts(kind)))).finish()
    }
}

impl Meter {
    pub fn counts(&self, kind: Kind) -> Counts {
        let counters = &self.kinds[kind as usize];
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            calls: load(&counters.calls),
            bytes: load(&counters.bytes),
            microseconds: load(&counters.microseconds),
            troubles: std::array::from_fn(|at| load(&counters.troubles[at])),
        }
    }

    fn begin(&self, kind: Kind) -> &Counters {
        let counters = &self.kinds[kind as usize];
        counters.calls.fetch_add(1, Ordering::Relaxed);
        counters
    }
}

impl Counters {
    fn end<T>(&self, answer: StoreResult<T>, took: Duration, bytes: impl Fn(&T) -> usize) -> StoreResult<T> {
        self.microseconds.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        match &answer {
            Ok(value) => self.bytes.fetch_add(bytes(value) as u64, Ordering::Relaxed),
            Err(error) => self.troubles[Trouble::of(error) as usize].fetch_add(1, Ordering::Relaxed),
        };
        answer
    }
}

/// `inner`, counted.
pub struct MeterStore {
    inner: Arc<dyn Store>,
    meter: Arc<Meter>,
    clock: Option<Arc<dyn Clock>>,
}

impl fmt::Debug for MeterStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meter({:?})", self.inner)
    }
}

impl MeterStore {
    pub fn new(inner: Arc<dyn Store>) -> MeterStore {
        MeterStore { inner, meter: Arc::default(), clock: None }
    }

    /// Also counts the time that calls take, by `clock`.
    pub fn timed(inner: Arc<dyn Store>, clock: Arc<dyn Clock>) -> MeterStore {
        MeterStore { clock: Some(clock), ..MeterStore::new(inner) }
    }

    pub fn meter(&self) -> Arc<Meter> {
        self.meter.clone()
    }

    async fn measure<T>(
        &self,
        kind: Kind,
        call: impl Future<Output = StoreResult<T>>,
        bytes: impl Fn(&T) -> usize,
    ) -> StoreResult<T> {
        let counters = self.meter.begin(kind);
        let begun = self.now();
        let answer = call.await;
        counters.end(answer, self.now().saturating_sub(begun), bytes)
    }

    fn now(&self) -> Duration {
        self.clock.as_ref().map_or(Duration::ZERO, |clock| clock.steady())
    }
}

#[async_trait]
impl Store for MeterStore {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        let size = bytes.len();
        self.measure(Kind::Put, self.inner.put(name, bytes, mode), |_| size).await
    }

    async fn create(&self, name: &str, bytes: Bytes) -> StoreResult<()> {
        let size = bytes.len();
        self.measure(Kind::Put, self.inner.create(name, bytes), |()| size).await
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        self.measure(Kind::Get, self.inner.get(name), |(bytes, _)| bytes.len()).await
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        self.measure(Kind::GetRange, self.inner.get_range(name, range), Bytes::len).await
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        self.measure(Kind::Head, self.inner.head(name), |_| 0).await
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        self.measure(Kind::Delete, self.inner.delete(name), |()| 0).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        self.measure(Kind::List, self.inner.list(prefix), |_| 0).await
    }
}
