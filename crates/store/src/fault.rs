//! Faults where the caller wants them: for tests and simulation.
//!
//! - [`Faults::decide`] is asked once about every call, before it is made, and decides all that becomes of it.
//! - A fault never changes what is stored, except that the call itself is done or not.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tarn_base::world::Clock;

use crate::contract::{ObjectInfo, PutMode, Store, StoreError, StoreResult, Version};
use crate::operation::{Kind, Operation};

/// What becomes of a call, after waiting for `delay`.
#[derive(Clone, Debug, Default)]
pub struct Fault {
    pub delay: Duration,
    pub effect: Effect,
}

/// What a call does.
#[derive(Clone, Debug, Default)]
pub enum Effect {
    /// What it should.
    #[default]
    None,
    /// Nothing, and says this.
    Before(StoreError),
    /// What it should, but says that it does not know.
    After,
    /// A read gives so many bytes at most, without an error.
    Truncate(u64),
    /// A read gives bytes of which this bit, counted from the front modulo the length, is another.
    Flip(u64),
}

/// Decides about calls.
pub trait Faults: Send + Sync {
    fn decide(&self, operation: Operation<'_>) -> Fault;
}

impl<F: Fn(Operation<'_>) -> Fault + Send + Sync> Faults for F {
    fn decide(&self, operation: Operation<'_>) -> Fault {
        self(operation)
    }
}

/// `inner` with faults.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    faults: Arc<dyn Faults>,
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fault({:?})", self.inner)
    }
}

impl FaultStore {
    pub fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>, faults: Arc<dyn Faults>) -> FaultStore {
        FaultStore { inner, clock, faults }
    }

    /// What is to become of the call, once its delay is over; an error if it is not made.
    async fn begin(&self, kind: Kind, name: &str, size: u64) -> StoreResult<Effect> {
        let fault = self.faults.decide(Operation { kind, name, size });
        if !fault.delay.is_zero() {
            self.clock.sleep(fault.delay).await;
        }
        match fault.effect {
            Effect::Before(error) => Err(error),
            effect => Ok(effect),
        }
    }
}

/// The answer of a call that was made, unless it gets lost.
fn end<T>(effect: &Effect, answer: StoreResult<T>) -> StoreResult<T> {
    match effect {
        Effect::After => Err(StoreError::Unknown("a reply was lost by a fault".to_owned())),
        _ => answer,
    }
}

fn spoil(effect: &Effect, bytes: Bytes) -> Bytes {
    match effect {
        Effect::Truncate(size) => bytes.slice(..bytes.len().min(usize::try_from(*size).unwrap_or(usize::MAX))),
        Effect::Flip(bit) if !bytes.is_empty() => {
            let mut bytes = bytes.to_vec();
            let bit = bit % (bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            Bytes::from(bytes)
        }
        _ => bytes,
    }
}

#[async_trait]
impl Store for FaultStore {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        let effect = self.begin(Kind::Put, name, bytes.len() as u64).await?;
        end(&effect, self.inner.put(name, bytes, mode).await)
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        let effect = self.begin(Kind::Get, name, 0).await?;
        let (bytes, version) = end(&effect, self.inner.get(name).await)?;
        Ok((spoil(&effect, bytes), version))
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        let effect = self.begin(Kind::GetRange, name, range.end.saturating_sub(range.start)).await?;
        let bytes = end(&effect, self.inner.get_range(name, range).await)?;
        Ok(spoil(&effect, bytes))
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        let effect = self.begin(Kind::Head, name, 0).await?;
        end(&effect, self.inner.head(name).await)
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        let effect = self.begin(Kind::Delete, name, 0).await?;
        end(&effect, self.inner.delete(name).await)
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        let effect = self.begin(Kind::List, prefix, 0).await?;
        end(&effect, self.inner.list(prefix).await)
    }
}
