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
        assert!(told.crashes >= 3, "seed {seed}: {} crashes", told.crashes);
    }
}
