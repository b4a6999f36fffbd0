//! Memory of frames whose plaintext was kept beyond their flush, counted while it is and used again afterwards: what the
//! kernel gives anew costs as much as filling it.
//!
//! - It holds only what was kept at one time.
//! - What nobody needed between two calls of [`Pool::rest`] is given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::frame::Frame;

#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Bytes of frames that somebody keeps.
    held: AtomicUsize,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    /// The last one is used first.
    bodies: Vec<Vec<u8>>,
    /// The fewest that lay here since the last rest.
    needless: usize,
}

impl Pool {
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Memory for a frame, if there is any.
    pub fn take(&self) -> Option<Vec<u8>> {
        let mut idle = self.idle.lock();
        let body = idle.bodies.pop();
        idle.needless = idle.needless.min(idle.bodies.len());
        body
    }

    fn give(&self, mut body: Vec<u8>) {
        body.clear();
        self.idle.lock().bodies.push(body);
    }

    /// Gives back what was not needed since the last call.
    pub fn rest(&self) {
        let mut idle = self.idle.lock();
        let count = idle.needless;
        let gone: Vec<Vec<u8>> = idle.bodies.drain(..count).collect();
        idle.needless = idle.bodies.len();
        drop(idle);
        drop(gone);
    }
}

/// The plaintext of a closed frame that somebody keeps.
pub(crate) struct Held {
    frame: Arc<Frame>,
    pool: Arc<Pool>,
}

impl Held {
    /// Keeps `frame`, and has it counted for as long.
    pub fn new(frame: Arc<Frame>, pool: Arc<Pool>) -> Held {
        pool.held.fetch_add(frame.body.capacity(), Ordering::Relaxed);
        Held { frame, pool }
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.frame.body[..self.frame.len]
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pool.held.fetch_sub(self.frame.body.capacity(), Ordering::Relaxed);
        // One that is still being flushed goes the way of all frames.
        if let Some(frame) = Arc::into_inner(std::mem::take(&mut self.frame)) {
            self.pool.give(frame.body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_what_is_not_needed_goes() {
        let pool = Arc::new(Pool::default());
        let keep = || Held::new(Arc::new(Frame { body: Vec::with_capacity(100), ..Frame::default() }), pool.clone());
        let kept: Vec<Held> = (0..5).map(|_| keep()).collect();
        assert!(pool.held() >= 500);
        drop(kept);
        assert_eq!(pool.held(), 0);
        pool.rest();
        let taken: Vec<_> = (0..2).map(|_| pool.take().expect("five lie there")).collect();
        taken.into_iter().for_each(|body| pool.give(body));
        // Two of five were needed.
        pool.rest();
        assert_eq!(pool.idle.lock().bodies.len(), 2);
        pool.rest();
        assert!(pool.take().is_none());
    }
}
