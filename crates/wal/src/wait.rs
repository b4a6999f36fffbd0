//! Waiting for a position to become durable.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tarn_base::ids::Position;

use crate::contract::LogError;
use crate::log::{Log, Waiter};

/// Completes once its position is durable, or never will be.
pub struct Wait {
    log: Arc<Log>,
    position: Position,
    /// The number of the registered waker, once polled.
    registered: Option<u64>,
}

impl Log {
    /// Waits until `position` is durable; a flush begins without delay. Ready at once if it is durable already.
    ///
    /// Errors: `Poisoned`; `Refused` for a position not given out yet. Dropping the future only stops waiting.
    pub fn wait(self: &Arc<Log>, position: Position) -> Wait {
        Wait { log: self.clone(), position, registered: None }
    }
}

impl Future for Wait {
    type Output = Result<(), LogError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (log, position) = (self.log.clone(), self.position);
        if log.durable() >= position {
            self.registered = None;
            return Poll::Ready(Ok(()));
        }
        if position > log.appended() {
            return Poll::Ready(Err(log.refused("somebody waits for a position not given out yet")));
        }
        let mut state = log.state.lock();
        // Both verdicts are looked at again under the lock: whoever gives one takes the waiters under it afterwards.
        if log.durable() >= position {
            return Poll::Ready(Ok(()));
        }
        if let Some(poisoned) = log.ring.condemned() {
            return Poll::Ready(Err(poisoned));
        }
        let known = self.registered.and_then(|id| state.waiters.iter_mut().find(|waiter| waiter.id == id));
        match known {
            Some(waiter) => waiter.waker.clone_from(context.waker()),
            None => {
                let id = state.next_waiter;
                state.next_waiter += 1;
                state.waiters.push(Waiter { id, position, waker: context.waker().clone() });
                self.registered = Some(id);
            }
        }
        drop(state);
        log.want(position);
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(id) = self.registered
            && self.log.durable() < self.position
        {
            self.log.state.lock().waiters.retain(|waiter| waiter.id != id);
        }
    }
}
