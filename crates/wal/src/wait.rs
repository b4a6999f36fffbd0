//! Waiting for a position to become durable, or for what waits to be written to become less.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tarn_base::ids::Position;

use crate::contract::LogError;
use crate::log::{Log, RoomWaiter, Waiter};

/// Completes once its position is durable, or never will be.
pub struct Wait {
    log: Arc<Log>,
    position: Position,
    /// The number of the registered waker, once polled.
    registered: Option<u64>,
}

/// Completes once there is room, or never will be.
pub struct WaitForRoom {
    log: Arc<Log>,
    bytes: usize,
    most: usize,
    first: bool,
    /// The number under which it stands in the queue, once polled, or stood until it was let in.
    registered: Option<u64>,
}

impl Log {
    /// Waits until `position` is durable; a flush begins without delay. Ready at once if it is durable already.
    ///
    /// Errors: `Poisoned`; `Refused` for a position not given out yet. Dropping the future only stops waiting.
    pub fn wait(self: &Arc<Log>, position: Position) -> Wait {
        Wait { log: self.clone(), position, registered: None }
    }

    /// Waits until [`Log::has_room`]; a flush begins without delay. Who came first, or asks to be `first`, is let in first.
    /// Polled again without having been woken it looks again, and keeps its place.
    ///
    /// Errors: `Poisoned`. Dropping the future only stops waiting.
    pub fn wait_for_room(self: &Arc<Log>, bytes: usize, most: usize, first: bool) -> WaitForRoom {
        WaitForRoom { log: self.clone(), bytes, most, first, registered: None }
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

impl Future for WaitForRoom {
    type Output = Result<(), LogError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let log = self.log.clone();
        let mut state = log.state.lock();
        // Read under the lock: whoever gives the verdict takes the waiters under it afterwards.
        if let Some(poisoned) = log.ring.condemned() {
            return Poll::Ready(Err(poisoned));
        }
        let place = match self.registered {
            Some(id) => state.rooms.iter().position(|waiter| waiter.id == id),
            None if self.first => Some(state.rooms.iter().take_while(|waiter| waiter.first).count()),
            None => Some(state.rooms.len()),
        };
        let Some(place) = place else {
            self.registered = None;
            return Poll::Ready(Ok(()));
        };
        let is_in = place == 0 && state.has_room(self.bytes, self.most);
        match self.registered {
            Some(_) if is_in => drop(state.rooms.pop_front()),
            Some(_) => state.rooms[place].waker.clone_from(context.waker()),
            None if is_in => {}
            None => {
                let (id, waker) = (state.next_waiter, context.waker().clone());
                state.next_waiter += 1;
                let WaitForRoom { bytes, most, first, .. } = *self;
                state.rooms.insert(place, RoomWaiter { id, bytes, most, first, waker });
                self.registered = Some(id);
            }
        }
        drop(state);
        if is_in {
            self.registered = None;
            return Poll::Ready(Ok(()));
        }
        log.want(log.appended());
        Poll::Pending
    }
}

impl Drop for WaitForRoom {
    fn drop(&mut self) {
        let Some(id) = self.registered else { return };
        let mut ready = Vec::new();
        let mut state = self.log.state.lock();
        state.rooms.retain(|waiter| waiter.id != id);
        // It may have been let in, or have been what the others waited behind.
        state.let_in(&mut ready);
        drop(state);
        ready.into_iter().for_each(|waker| waker.wake());
    }
}
