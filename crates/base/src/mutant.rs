//! Planted bugs: one for each rule whose breaking must be noticed.
//!
//! - [`on`] stands at the place of the rule. Without the feature `mutants` it is `false` for the compiler, and nothing
//!   of this is in the program.
//! - With the feature, a program may switch one on with `choose`; until it does, none is.
//! - `cargo x mutants` runs each and names the check that catches it.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// How the command line and `TARN_MUTANT` call it.
    pub name: &'static str,
    /// What it breaks, with the number of the rule in `docs/internals/engine.md`, or the format.
    pub rule: &'static str,
}

macro_rules! mutants {
    ($($name:ident, $label:literal, $rule:literal;)*) => {
        $(pub const $name: Mutant = Mutant { name: $label, rule: $rule };)*

        /// All of them.
        pub const ALL: &[Mutant] = &[$($name),*];
    };
}

mutants! {
    LOG_FLUSH_OMITTED, "log-flush-omitted", "4: durable means flushed";
    REPLY_BEFORE_APPEND, "reply-before-append", "3: a reply waits for the log";
    POSITION_REUSED, "position-reused", "2: no position is given out twice";
    VERIFIER_CONSTANT, "verifier-constant", "2: the verifier changes when data may be lost";
    COMMIT_LEAVES_UNLOGGED, "commit-leaves-unlogged", "5: COMMIT brings into the log what has passed it by";
    SETTLED_OVER_NEWER, "settled-over-newer", "5: what is settled covers nothing newer";
    NONCE_REUSED, "nonce-reused", "6: a frame's nonce is used once";
    DAMAGE_READ_AS_TORN_TAIL, "damage-read-as-torn-tail", "4: what was durable does not just end";
    RENAME_IN_TWO_ENTRIES, "rename-in-two-entries", "7: an operation is one entry";
    RENAME_IN_TWO_BATCHES, "rename-in-two-batches", "14: a checkpoint is one batch";
    REPLY_NOT_REPLAYED, "reply-not-replayed", "9: an outcome survives with its operation";
    LATE_COPY_RUNS, "late-copy-runs", "9: a late copy does not run over what came since";
    RECLAIM_REFUSED, "reclaim-refused", "10: in grace reclaims are granted";
    LOCK_GRANTED_IN_GRACE, "lock-granted-in-grace", "10: in grace only reclaims are granted";
    OLDER_OVER_NEWER, "older-over-newer", "15: of generations that are stored together the newest counts";
    TRIM_TOO_EARLY, "trim-too-early", "15: the log is trimmed after the batch";
    BATCH_BEFORE_SEGMENTS, "batch-before-segments", "15: what a batch names is written before it";
    TIMEOUT_TAKEN_AS_FAILED, "timeout-taken-as-failed", "15: a PUT without an answer may have happened";
    CHECKPOINT_DONE_TWICE, "checkpoint-done-twice", "15: P says whether a batch is there";
    REMOVAL_NOT_TOLD, "removal-not-told", "15: the store is told of a removal, but of what it never had";
    NEGATIVE_KEPT, "negative-kept", "15: a cached absence ends with the exchange";
    NAMES_FORGOTTEN, "names-forgotten", "15: what is known of a directory's names ends or grows with the exchange";
    HASH_TAKEN_AS_DISTINCT, "hash-taken-as-distinct", "19: names that share a hash are kept together";
    LISTING_KEPT, "listing-kept", "15: a cached listing ends with the exchange";
    TRUNCATED_TAIL_SHOWN, "truncated-tail-shown", "8: what was cut off never comes back";
    DELETED_BEFORE_BATCH, "deleted-before-batch", "24: an object goes after the batch that condemns it";
    COUNT_NOT_RAISED, "count-not-raised", "23: a pointer to a shared record is counted";
    SHARED_TAKEN_AS_DEAD, "shared-taken-as-dead", "23: a record lives as long as one pointer names it";
    OLD_CONTENT_TAKEN_FOR_ZEROS, "old-content-taken-for-zeros", "21: the zeros that a pointer tells of are there";
    CONTENT_TAKEN_BY_LENGTH, "content-taken-by-length", "25: what is shared has the whole digest in common";
    RESERVED_DELETED, "reserved-deleted", "24: a reserved segment that only the last batch names stays";
    VOLUME_BEFORE_LOG, "volume-before-log", "3: an administrator's answer waits for the log";
    SLEEPER_ANSWERS, "sleeper-answers", "31: who stood still looks whose the store is before it answers";
    CLAIM_IGNORED, "claim-ignored", "31: who has seen a claim answers nothing";
}

/// Whether `mutant` is on in this process.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn on(_mutant: Mutant) -> bool {
    false
}

/// Whether `mutant` is on in this process.
#[cfg(feature = "mutants")]
pub fn on(mutant: Mutant) -> bool {
    CHOSEN.get() == Some(&mutant)
}

#[cfg(feature = "mutants")]
static CHOSEN: std::sync::OnceLock<Mutant> = std::sync::OnceLock::new();

/// Switches on the mutant of this name for the rest of the process; the first choice stays. `None`: there is none.
#[cfg(feature = "mutants")]
pub fn choose(name: &str) -> Option<Mutant> {
    let mutant = *ALL.iter().find(|mutant| mutant.name == name)?;
    Some(*CHOSEN.get_or_init(|| mutant))
}
