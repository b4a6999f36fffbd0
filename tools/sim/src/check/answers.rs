//! During life every operation answers as the model does, in the order in which both took effect.
//!
//! - A refusal for the moment is right only if nothing was changed, and only for a reason that the world gives.
//! - A change that the model makes is in the engine's log.

use tarn_vfs::op::{Op, Outcome, Seen};
use tarn_vfs::{Errno, FileType};

use crate::failure::Failure;
use crate::front::status;
use crate::legible;
use crate::tracker::Ran;

const NAME: &str = "answers";

/// What may keep the engine from answering.
#[derive(Clone, Copy, Debug)]
pub struct Excuses {
    /// The store fails at times.
    pub store: bool,
    /// The log has failed.
    pub log: bool,
    /// The store may be full, or a volume has a limit. What a truncation cut off is charged until the background has removed it, so that the
    /// limit may be met a little early.
    pub limit: bool,
    /// The answer came through the front end, which says less: some refusals share a word, and a listing without attributes does not
    /// tell what things are.
    pub wire: bool,
}

/// Whether the model's answer was given; `false` for a refusal for the moment.
pub fn check(op: &Op, outcome: &Outcome, ran: Option<&Ran>, excuses: Excuses) -> Result<bool, Failure> {
    let differs = |expected: String| Failure::new(NAME, expected, legible::seen(&outcome.seen));
    let Some(ran) = ran else {
        return match outcome.seen {
            Seen::Refused(Errno::TryLater) => Ok(false),
            _ => Err(differs(format!("{} takes effect before it answers", legible::op(op)))),
        };
    };
    if comparable(op, &outcome.seen, excuses.wire) == comparable(op, &ran.outcome.seen, excuses.wire) {
        if ran.must_change && !ran.changed {
            let expected = format!("{} is in the log when it is answered", legible::op(op));
            return Err(Failure::new(NAME, expected, format!("nothing was appended; {} is last", ran.at)));
        }
        return Ok(true);
    }
    if !ran.is_atomic() || equivalent(op, &ran.outcome.seen, &outcome.seen) {
        return Ok(true);
    }
    let excused = match outcome.seen {
        Seen::Refused(Errno::TryLater) => true,
        Seen::Refused(Errno::Io) => excuses.store || excuses.log,
        Seen::Refused(Errno::ReadOnly) => excuses.log,
        Seen::Refused(Errno::NoSpace) => excuses.limit,
        _ => false,
    };
    if excused && !ran.changed {
        return Ok(false);
    }
    Err(differs(format!("{}: {}", legible::op(op), legible::seen(&ran.outcome.seen))))
}

/// What an answer must tell: whether these operations give the object as well is left open.
fn comparable(op: &Op, seen: &Seen, wire: bool) -> Seen {
    match (op, seen) {
        (_, Seen::Refused(errno)) if wire => Seen::Refused(status::told(*errno)),
        (_, Seen::Entries(entries)) if wire => {
            Seen::Entries(entries.iter().map(|(name, _)| (name.clone(), FileType::Regular)).collect())
        }
        (
            Op::Setattr { .. } | Op::Remove { .. } | Op::Rmdir { .. } | Op::Rename { .. },
            Seen::Changed { count, after, .. },
        ) => Seen::Changed { object: None, count: *count, after: *after },
        _ => seen.clone(),
    }
}

/// Answers that differ and are right both.
fn equivalent(op: &Op, model: &Seen, engine: &Seen) -> bool {
    match op {
        // The model locks anything; and to unlock what is gone may be called done.
        Op::Lock { .. } => matches!(engine, Seen::Refused(Errno::Invalid)),
        // Which of two reasons to refuse comes first is left open.
        Op::Link { .. } | Op::Rename { .. } => {
            matches!(model, Seen::Refused(_)) && *engine == Seen::Refused(Errno::CrossVolume)
        }
        Op::Unlock { .. } => *model == Seen::Refused(Errno::Stale) && *engine == Seen::Nothing,
        _ => false,
    }
}
