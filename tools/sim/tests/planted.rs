//! Each check can fail: a bug is planted, and some seed among a few turns red for the right reason.

mod bent;

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
    let bends = Bends { device: Arc::new(|inner| Arc::new(LyingDevice(inner))), ..Bends::default() };
    // What shows it first is a matter of the seed: a log that ends before what the store says does not even open.
    assert!(first_red(&bends).is_some());
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
