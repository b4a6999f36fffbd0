//! Session state: locks, grace, who is to be told of a restart. In the log, not in the bucket (engine rule 10).
//!
//! - A decision about locks is taken, logged and applied while the table is held: log order is table order.
//! - Order of locking: inode stripes, table, gate, log.
//! - A grant to somebody who waited is told once it is durable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};
use tarn_base::codec::{DecodeError, Decoded, Take};
use tarn_base::ids::Position;
use tarn_base::mutant;
use tarn_vfs::EventSink;
use tarn_vfs::locks::{Decision, LockTable, Transition};

use crate::entry::{Entry, SessionChange};
use crate::value::outcome::{take_effect, take_token};

pub const IMAGE_VERSION: u8 = 1;
/// No image is longer: it is put together in memory. Some million outcomes and locks fit.
pub const IMAGE_SIZE_MAX: usize = 1 << 30;

/// The session state of a shard, but for the outcomes ([`crate::once`]).
#[derive(Default)]
pub struct Session {
    table: Mutex<LockTable>,
    /// Position of the table's last change; changes with it.
    changed: AtomicU64,
    /// Steady time until which only reclaims are granted.
    grace_until: RwLock<Option<Duration>>,
    sink: OnceLock<Arc<dyn EventSink>>,
    /// Pieces of an image met in replay, until the last has come.
    pieces: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    /// The number of the piece that must come next.
    next: u32,
    bytes: Vec<u8>,
}

impl Pieces {
    /// Takes the next piece; gives the whole image with the last one.
    ///
    /// Pieces that do not continue what was begun are the end of an image whose beginning was trimmed with the frames
    /// before: a whole one follows it.
    fn take(&mut self, piece: u32, last: bool, bytes: &[u8]) -> Decoded<Option<Vec<u8>>> {
        if piece == 0 || piece != self.next {
            *self = Pieces::default();
        }
        if piece != self.next {
            return Ok(None);
        }
        if self.bytes.len() + bytes.len() > IMAGE_SIZE_MAX {
            return Err(DecodeError::Range("the image of session state"));
        }
        self.bytes.extend_from_slice(bytes);
        self.next = piece.checked_add(1).ok_or(DecodeError::Range("the image of session state"))?;
        Ok(last.then(|| std::mem::take(self).bytes))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?})", self.table)
    }
}

impl Session {
    pub fn table(&self) -> MutexGuard<'_, LockTable> {
        self.table.lock()
    }

    /// Takes a decision's transitions into the table that was held since.
    pub fn apply(&self, table: &mut LockTable, transitions: &[Transition], position: Position) {
        table.apply_all(transitions);
        self.changed.fetch_max(position.0, Ordering::Relaxed);
    }

    /// What must be durable before anybody is told what the table, which he holds, says.
    pub fn changed(&self) -> Position {
        Position(self.changed.load(Ordering::Relaxed))
    }

    pub fn set_sink(&self, sink: Arc<dyn EventSink>) {
        // The contract says once, before the first call; a second one changes nothing.
        let _ = self.sink.set(sink);
    }

    /// Only reclaims are granted until then.
    pub fn begin_grace(&self, until: Duration) {
        *self.grace_until.write() = Some(until);
    }

    pub fn sink(&self) -> Option<Arc<dyn EventSink>> {
        self.sink.get().cloned()
    }

    pub fn in_grace(&self, now: Duration) -> bool {
        self.grace_until.read().is_some_and(|until| now < until)
    }

    /// Applies a change read back from the log.
    pub fn replay(&self, change: &SessionChange, position: Position, once: &crate::once::OnceTable) -> Decoded<()> {
        match change {
            SessionChange::Outcome(..) if mutant::on(mutant::REPLY_NOT_REPLAYED) => {}
            SessionChange::Outcome(token, effect) => once.remember(token, (**effect).clone(), position),
            SessionChange::Lock(bytes) => {
                let mut take = Take::new(bytes);
                self.table.lock().apply(&Transition::decode(&mut take)?);
                take.end()?;
            }
            SessionChange::Image { piece, last, bytes } => {
                let whole = self.pieces.lock().take(*piece, *last, bytes)?;
                if let Some(whole) = whole {
                    self.restore(&whole, once)?;
                }
            }
        }
        Ok(())
    }

    fn restore(&self, image: &[u8], once: &crate::once::OnceTable) -> Decoded<()> {
        let mut take = Take::new(image);
        let version = take.u8()?;
        if version != IMAGE_VERSION {
            return Err(DecodeError::Version(u32::from(version)));
        }
        let table = LockTable::decode(&mut take)?;
        let mut outcomes = Vec::new();
        for _ in 0..take.count(40)? {
            outcomes.push((take_token(&mut take)?, Position(take.u64()?), take_effect(&mut take)?));
        }
        take.end()?;
        *self.table.lock() = table;
        once.clear();
        for (token, position, effect) in outcomes {
            once.remember(&token, effect, position);
        }
        Ok(())
    }
}

/// Notes a decision in an entry. The caller holds the table and applies it when the entry is in the log.
pub fn note_decision<T>(entry: &mut Entry, decision: &Decision<T>) {
    for transition in &decision.transitions {
        let mut bytes = Vec::new();
        transition.encode(&mut bytes);
        entry.session.push(SessionChange::Lock(bytes.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_an_image_only_from_the_first_to_the_last() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.take(0, true, b"whole"), Ok(Some(b"whole".to_vec())));
        // Its beginning was trimmed.
        assert_eq!(pieces.take(1, false, b"rest"), Ok(None));
        assert_eq!(pieces.take(2, true, b"rest"), Ok(None));
        // A crash came between.
        assert_eq!(pieces.take(0, false, b"never "), Ok(None));
        assert_eq!(pieces.take(0, false, b"the "), Ok(None));
        assert_eq!(pieces.take(1, true, b"image"), Ok(Some(b"the image".to_vec())));
    }
}
