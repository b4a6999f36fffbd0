//! How a file system answers: at once where memory suffices, later where something must be fetched.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tarn_base::ids::Position;
use tokio::sync::oneshot;

use crate::error::{Errno, Failure};

/// A result, and what must be durable before anybody is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done<T> {
    pub value: T,
    /// [`Position::ZERO`] when the reply may leave at once; else wait with
    /// [`crate::FileSystem::durable`].
    pub position: Position,
}

impl<T> Done<T> {
    /// A result that may be shown at once.
    pub fn now(value: T) -> Done<T> {
        Done { value, position: Position::ZERO }
    }
}

/// The reply of an operation. A refusal that shows a change nobody may see yet waits as well.
pub type Reply<T> = Result<Done<T>, Done<Failure>>;

/// A reply that is here, or comes. As a future it never blocks when it is here.
pub enum Answer<T> {
    /// Memory sufficed: no allocation, no wake-up.
    Ready(Option<Reply<T>>),
    /// The background runtime works on it.
    Later(oneshot::Receiver<Reply<T>>),
    /// It waits for the log, or for its turn to begin: nothing that would have to be driven.
    Waits(Pin<Box<dyn Future<Output = Reply<T>> + Send>>),
}

impl<T: std::fmt::Debug> std::fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Answer::Ready(reply) => write!(f, "Ready({reply:?})"),
            Answer::Later(_) | Answer::Waits(_) => f.write_str("Later"),
        }
    }
}

impl<T> Answer<T> {
    pub fn ready(reply: Reply<T>) -> Answer<T> {
        Answer::Ready(Some(reply))
    }

    pub fn ok(value: T) -> Answer<T> {
        Answer::ready(Ok(Done::now(value)))
    }

    pub fn refuse(failure: impl Into<Failure>) -> Answer<T> {
        Answer::ready(Err(Done::now(failure.into())))
    }

    /// The reply if it is here; else the answer back.
    pub fn now_or_later(self) -> Result<Reply<T>, Answer<T>> {
        match self {
            Answer::Ready(Some(reply)) => Ok(reply),
            later => Err(later),
        }
    }
}

impl<T: Unpin> Future for Answer<T> {
    type Output = Reply<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply<T>> {
        match self.get_mut() {
            Answer::Ready(reply) => Poll::Ready(reply.take().unwrap_or_else(|| Err(Done::now(Errno::TryLater.into())))),
            // A sender that went away means that the file system is shutting down.
            Answer::Later(receiver) => Pin::new(receiver)
                .poll(cx)
                .map(|received| received.unwrap_or_else(|_| Err(Done::now(Errno::TryLater.into())))),
            Answer::Waits(waits) => waits.as_mut().poll(cx),
        }
    }
}
