//! During life every operation answers as the model does, in the order in which both took effect.
//!
//! - A refusal for the moment is right only if nothing was changed, and only for a reason that the world gives.
//! - A change that the model makes is in the engine's log.

use tarn_vfs::Errno;
use tarn_vfs::op::{Op, Outcome, Seen};

use crate::failure::Failure;
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
    if outcome.seen == ran.outcome.seen {
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
        _ => false,
    };
    if excused && !ran.changed {
        return Ok(false);
    }
    Err(differs(format!("{}: {}", legible::op(op), legible::seen(&ran.outcome.seen))))
}

/// Answers that differ and are right both.
fn equivalent(op: &Op, model: &Seen, engine: &Seen) -> bool {
    match op {
        // The model locks anything; and to unlock what is gone may be called done.
        Op::Lock { .. } => matches!(engine, Seen::Refused(Errno::Invalid)),
        Op::Unlock { .. } => *model == Seen::Refused(Errno::Stale) && *engine == Seen::Nothing,
        _ => false,
    }
}
