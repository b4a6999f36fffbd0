//! Each check can fail: a bug is planted, and some seed among a few turns red for the right reason.

mod bent;

use std::collections::BTreeSet;
use std::sync::Arc;

use bent::{Bent, Bug, LyingDevice};
use tarn_sim::machine::Bends;
use tarn_sim::story::tell;

/// Seeds that are tried before a bug counts as unseen.
const SEEDS: u64 = 40;

/// The property that the first red seed names.
fn first_red(bends: &Bends) -> Option<&'static str> {
    (0..SEEDS).find_map(|seed| tell(seed, false, bends.clone()).failure).map(|failure| failure.property)
}

fn planted(bug: Bug) -> Bends {
    Bends { file_system: Arc::new(move |inner| Arc::new(Bent::new(inner, bug))), ..Bends::default() }
}

#[test]
fn a_log_whose_flushes_do_nothing_is_noticed() {
    let bends = Bends { device: Arc::new(|inner| Arc::new(LyingDevice::new(inner))), ..Bends::default() };
    let reds = (0..SEEDS).filter_map(|seed| tell(seed, false, bends.clone()).failure);
    let reds: BTreeSet<&str> = reds.map(|failure| failure.property).collect();
    // What was promised is missing; or a lock, an outcome or a change of a volume that was, or so much that the store is ahead of its log.
    assert!(reds.contains("promise"), "{reds:?}");
    assert!(reds.is_subset(&["promise", "locks", "once", "opening", "volumes"].into()), "{reds:?}");
}

#[test]
fn a_reply_that_does_not_wait_for_the_log_is_noticed() {
    assert_eq!(first_red(&planted(Bug::DurableAtOnce)), Some("promise"));
}

#[test]
fn a_write_verifier_that_never_changes_is_noticed() {
    assert_eq!(first_red(&planted(Bug::ConstantVerifier)), Some("verifier"));
}

#[test]
fn a_verifier_that_clients_see_stay_over_a_loss_is_noticed() {
    assert_eq!(first_red(&planted(Bug::VerifierSticks)), Some("unstable"));
}

#[test]
fn cookies_that_mean_another_entry_after_a_restart_are_noticed() {
    assert_eq!(first_red(&planted(Bug::CookiesMove)), Some("listing"));
}

#[test]
fn tokens_that_are_ignored_are_noticed() {
    assert!(matches!(first_red(&planted(Bug::TokensIgnored)), Some("once" | "tree" | "answers")));
}

#[test]
fn an_acknowledged_change_that_was_never_made_is_noticed() {
    assert_eq!(first_red(&planted(Bug::RemovesLost)), Some("answers"));
}

#[test]
fn bytes_that_are_not_those_written_are_noticed() {
    assert!(matches!(first_red(&planted(Bug::BytesSpoilt)), Some("answers" | "tree")));
}

#[test]
fn without_a_bug_nothing_is_noticed() {
    assert_eq!(first_red(&Bends::default()), None);
}
