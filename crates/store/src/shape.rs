//! A store as slow as one wants it: latency, operations per second, bytes per second.
//!
//! - Calls and bytes take their turn on the steady clock: in any span no more pass than the rate allows, plus one.
//! - Latency is added to every call and overlaps with that of others.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::world::Clock;

use crate::contract::{ObjectInfo, PutMode, Store, StoreResult, Version};

/// How slow. The default is not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Before every call.
    pub latency: Duration,
    /// Calls per second; `None` is without limit, 0 counts as 1.
    pub operations_per_second: Option<u64>,
    /// Bytes per second, both directions together; `None` is without limit, 0 counts as 1.
    pub bytes_per_second: Option<u64>,
}

/// A slowness with a name, so that two measurements mean the same by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Not slowed down.
    Ram,
    /// Four standard disks of a provider: 2,000 calls and 240 MB a second.
    Std,
    /// Four premium disks: 20,000 calls a second.
    Prem,
    /// A bucket of the same region: 15 ms before every call, 500 MB a second.
    Blob,
    /// A bucket on another continent: 87 ms, 100 Mbit a second.
    S3Wan,
}

impl Profile {
    pub const ALL: [Profile; 5] = [Profile::Ram, Profile::Std, Profile::Prem, Profile::Blob, Profile::S3Wan];

    /// As it is written.
    pub fn label(self) -> &'static str {
        match self {
            Profile::Ram => "ram",
            Profile::Std => "std",
            Profile::Prem => "prem",
            Profile::Blob => "blob",
            Profile::S3Wan => "s3wan",
        }
    }

    pub fn shape(self) -> Shape {
        let (millis, operations_per_second, bytes_per_second) = match self {
            Profile::Ram => (0, None, None),
            Profile::Std => (0, Some(2_000), Some(240_000_000)),
            Profile::Prem => (0, Some(20_000), None),
            Profile::Blob => (15, None, Some(500_000_000)),
            Profile::S3Wan => (87, None, Some(12_500_000)),
        };
        Shape { latency: Duration::from_millis(millis), operations_per_second, bytes_per_second }
    }
}

impl FromStr for Profile {
    type Err = ();

    fn from_str(text: &str) -> Result<Profile, ()> {
        Profile::ALL.into_iter().find(|profile| profile.label() == text).ok_or(())
    }
}

#[derive(Default)]
struct State {
    shape: Shape,
    /// When the next call may begin, on the steady clock.
    call_free: Duration,
    /// When the next byte may pass, on the steady clock.
    byte_free: Duration,
}

/// `inner`, slowed down.
pub struct ShapeStore {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl fmt::Debug for ShapeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape({:?})", self.inner)
    }
}

/// How long `count` things take at `rate` per second.
fn span(count: u64, rate: Option<u64>) -> Duration {
    rate.map_or(Duration::ZERO, |rate| {
        let nanos = u128::from(count) * 1_000_000_000 / u128::from(rate.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    })
}

impl ShapeStore {
    pub fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>, shape: Shape) -> ShapeStore {
        ShapeStore { inner, clock, state: Mutex::new(State { shape, ..State::default() }) }
    }

    /// Holds for calls that begin from now on.
    pub fn set(&self, shape: Shape) {
        self.state.lock().shape = shape;
    }

    async fn wait_until(&self, moment: Duration) {
        let now = self.clock.steady();
        if moment > now {
            self.clock.sleep(moment - now).await;
        }
    }

    /// Waits for the turn of a call that sends `bytes`.
    async fn begin(&self, bytes: usize) {
        let moment = {
            let mut state = self.state.lock();
            let start = self.clock.steady().max(state.call_free);
            state.call_free = start + span(1, state.shape.operations_per_second);
            start + state.shape.latency
        };
        self.wait_until(moment).await;
        self.pass(bytes).await;
    }

    /// Waits until `bytes` have passed.
    async fn pass(&self, bytes: usize) {
        let moment = {
            let mut state = self.state.lock();
            let start = self.clock.steady().max(state.byte_free);
            state.byte_free = start + span(bytes as u64, state.shape.bytes_per_second);
            state.byte_free
        };
        self.wait_until(moment).await;
    }
}

#[async_trait]
impl Store for ShapeStore {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        self.begin(bytes.len()).await;
        self.inner.put(name, bytes, mode).await
    }

    async fn create(&self, name: &str, bytes: Bytes) -> StoreResult<()> {
        self.begin(bytes.len()).await;
        self.inner.create(name, bytes).await
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        self.begin(0).await;
        let (bytes, version) = self.inner.get(name).await?;
        self.pass(bytes.len()).await;
        Ok((bytes, version))
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        self.begin(0).await;
        let bytes = self.inner.get_range(name, range).await?;
        self.pass(bytes.len()).await;
        Ok(bytes)
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        self.begin(0).await;
        self.inner.head(name).await
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        self.begin(0).await;
        self.inner.delete(name).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        self.begin(0).await;
        self.inner.list(prefix).await
    }
}
