//! How a call is sent: once, or as networks and clients send it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::chance::Chance;
use crate::front::Front;
use crate::front::line::{Heard, Line};

/// See the head of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    #[default]
    Once,
    /// Twice on one connection, the second before the first is answered.
    Twice,
    /// After so many milliseconds again on a new connection; the old one stays, and nobody hears what it says.
    Elsewhere(u64),
    /// The connection ends when the call is sent, or so many milliseconds later; then again on a new one.
    Cut(u64),
    /// On a connection that holds it back until so many milliseconds after it was answered on a new one.
    Behind(u64),
}

impl Manner {
    pub fn draw(chance: &mut Chance) -> Manner {
        match chance.below(100) {
            0..5 => Manner::Twice,
            5..9 => Manner::Elsewhere(chance.below(20)),
            9..13 => Manner::Cut(chance.below(3) * chance.below(20)),
            13..17 => Manner::Behind(chance.range(1, 100)),
            _ => Manner::Once,
        }
    }

    /// As the coverage counts it.
    pub fn name(self) -> &'static str {
        match self {
            Manner::Once => "sent once",
            Manner::Twice => "sent twice at once",
            Manner::Elsewhere(_) => "sent again on a new connection",
            Manner::Cut(_) => "connection cut, sent again",
            Manner::Behind(_) => "overtaken on a new connection",
        }
    }
}

/// The first reply, and that of a repeat if one came.
pub type Replies = (Heard, Option<Heard>);

/// How long a connection stays that a call came late on.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Connections tried for one call.
const ATTEMPTS: u32 = 8;

impl Front {
    /// Sends a call from `host` and waits for its reply; `None` if connections only break.
    pub async fn call(self: &Arc<Self>, host: u64, xid: u32, message: &Bytes, manner: Manner) -> Option<Replies> {
        let line = self.line(host);
        let pause = |millis: u64| tokio::time::sleep(Duration::from_millis(millis));
        match manner {
            Manner::Once => {}
            Manner::Twice => {
                let first = line.send(xid, message).await;
                let second = line.send(xid, message).await;
                let (first, second) = futures::join!(first, second);
                if let Ok(first) = first {
                    return Some((first, second.ok()));
                }
            }
            Manner::Elsewhere(after) => {
                let unheard = line.send(xid, message).await;
                pause(after).await;
                let old = self.reconnect(host);
                let heard = self.until_answered(host, xid, message).await?;
                drop((unheard, old));
                return Some((heard, None));
            }
            Manner::Cut(after) => {
                let unheard = line.send(xid, message).await;
                if after > 0 {
                    pause(after).await;
                }
                drop((unheard, line, self.reconnect(host)));
            }
            Manner::Behind(after) => {
                drop(self.reconnect(host));
                let heard = self.until_answered(host, xid, message).await?;
                self.send_late(line, xid, message.clone(), after);
                return Some((heard, None));
            }
        }
        Some((self.until_answered(host, xid, message).await?, None))
    }

    /// What `line` held back comes through after so many milliseconds; nobody hears what it says.
    fn send_late(&self, line: Arc<Line>, xid: u32, message: Bytes, after: u64) {
        let late = async move {
            tokio::time::sleep(Duration::from_millis(after)).await;
            let unheard = line.send(xid, &message).await;
            let _ = tokio::time::timeout(LATE_MAX, unheard).await;
        };
        self.world.spawn.spawn("late", Box::pin(late));
    }

    /// Sends a call again for as long as the connection breaks.
    async fn until_answered(&self, host: u64, xid: u32, message: &Bytes) -> Option<Heard> {
        for _ in 0..ATTEMPTS {
            let reply = self.line(host).send(xid, message).await;
            if let Ok(heard) = reply.await {
                return Some(heard);
            }
        }
        None
    }
}
