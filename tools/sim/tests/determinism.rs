//! One seed is one history.

use tarn_sim::machine::Bends;
use tarn_sim::story::tell;

#[test]
fn a_seed_tells_the_same_history_every_time() {
    for seed in 1..=12 {
        let (first, second) = (tell(seed, false, Bends::default()), tell(seed, false, Bends::default()));
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!((first.operations, first.crashes), (second.operations, second.crashes), "seed {seed}");
        assert_eq!(first.failure, second.failure, "seed {seed}");
    }
}

#[test]
fn another_seed_tells_another_history() {
    let digests: std::collections::BTreeSet<u64> =
        (100..120).map(|seed| tell(seed, false, Bends::default()).digest).collect();
    assert_eq!(digests.len(), 20);
}

#[test]
fn every_history_has_its_share_of_operations_and_crashes() {
    for seed in 200..220 {
        let told = tell(seed, false, Bends::default());
        assert_eq!(told.failure, None, "seed {seed}");
        assert!(told.operations >= 300, "seed {seed}: {} operations", told.operations);
        assert!(told.crashes >= 3, "seed {seed}: {} crashes", told.crashes);
        assert!(told.coverage.count("endings", "crash while opening") > 0, "seed {seed}");
    }
}

#[test]
fn half_of_the_histories_go_through_the_front_end() {
    let wire = (0..1000).filter(|seed| tarn_sim::plan::Plan::new(*seed).wire).count();
    assert!((400..600).contains(&wire), "{wire}");
    let told = (0..6).map(|seed| tell(seed, false, Bends::default()));
    let (wire, straight): (Vec<_>, Vec<_>) = told.partition(|told| told.coverage.total("calls") > 0);
    assert!(!wire.is_empty() && !straight.is_empty());
}
