//! Writing session state out: its image at the head of the log, and grants to those who wait.

use bytes::Bytes;
use smallvec::SmallVec;
use tarn_base::codec::Put;
use tarn_base::ids::Position;
use tarn_vfs::locks::LockTable;
use tarn_vfs::{Effect, Event, LockInfo, OnceToken};
use tarn_wal::LogError;

use crate::core::Core;
use crate::entry::{Entry, SessionChange};
use crate::once::OUTCOMES_MAX;
use crate::session::{IMAGE_SIZE_MAX, IMAGE_VERSION, note_decision};
use crate::value::outcome::{put_effect, put_token};

/// Bytes of one piece of an image; within what an entry may hold.
const PIECE_SIZE: usize = 1 << 20;

/// For frames and what rounds them up, beyond an eighth of the image.
const PIECE_SPARE: u64 = 16 << 10;

/// An outcome in an image, hardly ever more.
const OUTCOME_SIZE: u64 = 352;
/// What part of the log the outcomes of an image take at most, and bytes: all changes wait while it is put together, with
/// every checkpoint. But those of one client always fit.
const OUTCOMES_SHARE: u64 = 16;
const OUTCOMES_SIZE_MAX: u64 = 16 << 20;

/// How many outcomes an image has of how many that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcomes {
    pub written: usize,
    pub all: usize,
}

/// The image of these locks and outcomes, as [`crate::session::Session::replay`] takes it back in pieces.
pub(crate) fn encode_image(table: &LockTable, outcomes: &[(OnceToken, Effect, Position)]) -> Vec<u8> {
    let mut image = Vec::new();
    image.put_u8(IMAGE_VERSION);
    table.encode(&mut image);
    image.put_u32(outcomes.len() as u32);
    for (token, effect, position) in outcomes {
        put_token(&mut image, token);
        image.put_u64(position.0);
        // Outcomes are stamped before they are remembered, so nothing is left open here.
        put_effect(&mut image, effect, &mut SmallVec::new());
    }
    image
}

impl Core {
    /// The log that knew the locks is lost: these clients held some, and only reclaims are granted for a while.
    ///
    /// They stand in the log before anything else of this opening, so that a crash does not forget them.
    pub fn session_lost(&self, clients: Vec<(Bytes, Bytes)>) -> Result<(), LogError> {
        let mut table = self.session.table();
        let decision = table.decide_notify(clients);
        if !decision.transitions.is_empty() {
            let mut entry = Entry::default();
            note_decision(&mut entry, &decision);
            let _gate = self.gate.read();
            self.append_gated(&self.present(), &entry, None, true)?;
            table.apply_all(&decision.transitions);
        }
        self.session.begin_grace(self.world.clock.steady() + self.config.grace);
        Ok(())
    }

    /// Outcomes that an image written now may have.
    pub fn outcomes_in_image(&self) -> usize {
        let room = (self.log.capacity() / OUTCOMES_SHARE).min(OUTCOMES_SIZE_MAX) / OUTCOME_SIZE;
        self.once.remembered().min(OUTCOMES_MAX.max(room as usize))
    }

    /// Writes the session state at the head of the log, with the newest `outcomes_max` outcomes, so that what is before
    /// it may be trimmed. Gives the position of its last piece, and how many outcomes are in it.
    ///
    /// [`LogError::Full`] leaves nothing behind.
    pub fn append_session_image(&self, outcomes_max: usize) -> Result<(Position, Outcomes), LogError> {
        let table = self.session.table();
        let _gate = self.gate.write();
        let all = self.outcomes_in_image();
        let outcomes = self.once.outcomes(all.min(outcomes_max));
        let image = encode_image(&table, &outcomes);
        if image.len() > IMAGE_SIZE_MAX {
            return Err(LogError::Full);
        }
        if image.len() as u64 + image.len() as u64 / 8 + PIECE_SPARE > self.log.capacity() - self.log.used() {
            return Err(LogError::Full);
        }
        let mut position = Position::ZERO;
        let pieces = image.chunks(PIECE_SIZE).count();
        for (piece, bytes) in image.chunks(PIECE_SIZE).enumerate() {
            let change = SessionChange::Image {
                piece: piece as u32,
                last: piece + 1 == pieces,
                bytes: Bytes::copy_from_slice(bytes),
            };
            let entry = Entry { session: vec![change], ..Entry::default() };
            position = self.append_gated(&self.present(), &entry, None, true)?;
        }
        Ok((position, Outcomes { written: outcomes.len(), all }))
    }

    /// Tells of grants once `position` is durable.
    pub fn tell_granted(&self, granted: Vec<LockInfo>, position: Position) {
        let Some(sink) = self.session.sink() else { return };
        let durable = self.log.wait(position);
        self.world.spawn.spawn(
            "lock grants",
            Box::pin(async move {
                // Without the log the grant does not stand, and nobody hears of it.
                if durable.await.is_ok() {
                    granted.into_iter().for_each(|lock| sink.event(Event::LockGranted(lock)));
                }
            }),
        );
    }
}
