//! Waiting for a position to become durable, or for what waits to be written to become less.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tarn_base::ids::Position;

use crate::contract::LogError;
use crate::log::{Log, State, Until, Waiter};

/// Completes once what it waits for has come, or never will.
pub struct Wait {
    log: Arc<Log>,
    until: Until,
    /// The number of the registered waker, once polled.
    registered: Option<u64>,
}

impl Log {
    /// Waits until `position` is durable; a flush begins without delay. Ready at once if it is durable already.
    ///
    /// Errors: `Poisoned`; `Refused` for a position not given out yet. Dropping the future only stops waiting.
    pub fn wait(self: &Arc<Log>, position: Position) -> Wait {
        Wait { log: self.clone(), until: Until::Durable(position), registered: None }
    }

    /// Waits until [`Log::has_room`]; a flush begins without delay. First come, first served: those who came later wait for the
    /// room that this one's `bytes` take, until it has seen that there is some.
    ///
    /// Errors: `Poisoned`. Dropping the future only stops waiting.
    pub fn wait_for_room(self: &Arc<Log>, bytes: usize, most: usize) -> Wait {
        Wait { log: self.clone(), until: Until::Room { bytes, most }, registered: None }
    }
}

impl Wait {
    fn is_over(&self, state: &State) -> bool {
        match self.until {
            Until::Durable(position) => position <= self.log.durable(),
            Until::Room { bytes, most } => {
                let before = state.waiters.iter().take_while(|waiter| Some(waiter.id) != self.registered);
                state.has_room(before.map(Waiter::brings).sum(), bytes, most)
            }
        }
    }
}

impl Future for Wait {
    type Output = Result<(), LogError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (log, until) = (self.log.clone(), self.until);
        if let Until::Durable(position) = until {
            if log.durable() >= position {
                self.registered = None;
                return Poll::Ready(Ok(()));
            }
            if position > log.appended() {
                return Poll::Ready(Err(log.refused("somebody waits for a position not given out yet")));
            }
        }
        let mut state = log.state.lock();
        // All verdicts are looked at under the lock: whoever gives one takes the waiters under it afterwards.
        if self.is_over(&state) {
            if let Some(id) = self.registered.take() {
                state.forget(id);
            }
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
                let waiter = Waiter { id, until, waker: context.waker().clone() };
                state.bring += waiter.brings();
                state.waiters.push(waiter);
                self.registered = Some(id);
            }
        }
        drop(state);
        log.want(match until {
            Until::Durable(position) => position,
            Until::Room { .. } => log.appended(),
        });
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let Some(id) = self.registered else { return };
        let served = matches!(self.until, Until::Durable(position) if position <= self.log.durable());
        if !served {
            self.log.state.lock().forget(id);
        }
    }
}
