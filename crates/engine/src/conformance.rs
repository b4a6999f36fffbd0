//! The contract's suite over the engine: hot, cold, and with checkpoints going on.

use std::sync::Arc;
use std::time::Duration;

use tarn_vfs::FileSystem;
use tarn_vfs::suite::{Suite, cases};

use crate::config::Config;
use crate::engine::Engine;
use crate::testing::Rig;

fn report(failed: &[String]) {
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}

fn suite(engine: &Arc<Engine>) -> Suite {
    let volume = engine.volumes()[0].clone();
    Suite::new(engine.clone(), &volume)
}

/// Moves time on while the suite runs, so that nothing that waits for it waits for ever.
fn keep_time(rig: &Rig) {
    let clock = rig.clock.clone();
    rig.world.spawn.spawn(
        "time",
        Box::pin(async move {
            loop {
                tokio::task::yield_now().await;
                clock.advance(Duration::from_millis(1));
            }
        }),
    );
}

#[tokio::test]
async fn the_suite_passes_in_the_overlay() {
    let rig = Rig::new();
    let engine = rig.create().await;
    keep_time(&rig);
    let suite = suite(&engine);
    let mut failed = Vec::new();
    for case in cases() {
        failed.extend(suite.run(&case).await.err().map(|error| format!("{error:?}")));
    }
    report(&failed);
}

/// Nothing stays in RAM: every key, record and dirty byte is fetched.
#[tokio::test]
async fn the_suite_passes_with_checkpoints_and_without_caches() {
    let mut rig = Rig::new();
    rig.config = Config { key_cache_bytes: 0, record_cache_bytes: 0, overlay_bytes: 0, ..rig.config };
    let engine = rig.create().await;
    keep_time(&rig);
    let suite = suite(&engine);
    let checkpoints = engine.clone();
    rig.world.spawn.spawn(
        "checkpoints",
        Box::pin(async move {
            loop {
                let _ = checkpoints.checkpoint().await;
                for _ in 0..7 {
                    tokio::task::yield_now().await;
                }
            }
        }),
    );
    let mut failed = Vec::new();
    for case in cases() {
        failed.extend(suite.run(&case).await.err().map(|error| format!("{error:?}")));
    }
    report(&failed);
}
