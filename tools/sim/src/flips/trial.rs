//! One trial: flip, open, read, scrub, checkpoint, read, scrub, walk; put the bit back, open, read.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tarn_engine::Engine;
use tarn_store::{PutMode, Store};
use tarn_vfs::FileSystem;
use tarn_wal::faulty::FaultyDisk;
use tokio::runtime::{Builder, Runtime};

use super::build::Image;
use super::ears::Ears;
use super::node::Node;
use super::read::{Reading, read_back};
use super::{Class, Flip};

/// Virtual time that any step may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What was seen of a flip.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Why the start was refused.
    pub refused: Option<String>,
    /// With the flipped bit: at once, and after a checkpoint. Against the tree with the last group.
    pub first: Reading,
    pub second: Reading,
    /// The same against the tree without the last group, if the flip is in it.
    pub without: Option<Reading>,
    /// What the engine said: its log, health, scrub, fsck.
    pub said: Vec<String>,
    /// Why it does not open with the bit put back.
    pub refused_after: Option<String>,
    pub last: Reading,
}

/// Of one thread, whose time is paused.
pub fn runtime() -> Runtime {
    match Builder::new_current_thread().enable_time().start_paused(true).build() {
        Ok(runtime) => runtime,
        Err(error) => panic!("a runtime of one thread cannot be made: {error}"),
    }
}

/// Tries one flip; without one it shows how things are.
pub fn run(image: &Image, flip: Option<&Flip>, seed: u64) -> Result<Told, String> {
    let ears = Ears::default();
    let _heard = tracing::subscriber::set_default(ears.clone());
    let mut told = runtime().block_on(async {
        let trial = attempt(image, flip, seed);
        tokio::time::timeout(PATIENCE * 8, trial).await.map_err(|_| "a trial did not end".to_owned())?
    })?;
    told.said.extend(ears.heard());
    Ok(told)
}

async fn attempt(image: &Image, flip: Option<&Flip>, seed: u64) -> Result<Told, String> {
    let mut log = image.log.clone();
    if let Some(Flip { object: None, byte, bit, .. }) = flip {
        log[*byte as usize] ^= 1u8 << *bit;
    }
    let node = Node::new(FaultyDisk::with_image(log, seed), seed, "trial");
    node.clock.jump(image.passed_ms);
    for (name, bytes) in &image.objects {
        node.memory.put(name, bytes.clone(), PutMode::Create).await.map_err(|error| error.to_string())?;
    }
    toggle(&node, flip);
    let mut told = Told::default();
    match node.open(None).await {
        Ok(engine) => look(image, flip, &engine, &mut told).await,
        Err(error) => told.refused = Some(error.to_string()),
    }
    node.kill().await;
    put_back(image, flip, &node, told.refused.is_some());
    match node.open(None).await {
        Ok(engine) => {
            let root = engine.volumes()[0].root;
            let lost = told.without.as_ref().is_some_and(|without| without.wrong.is_empty());
            let tree = if lost { &image.before } else { &image.after };
            told.last = read_back(&*engine, root, tree).await;
        }
        Err(error) => told.refused_after = Some(error.to_string()),
    }
    node.kill().await;
    Ok(told)
}

fn toggle(node: &Node, flip: Option<&Flip>) {
    if let Some(Flip { object: Some(object), byte, bit, .. }) = flip {
        node.memory.tamper(object, |bytes| bytes[*byte as usize] ^= 1u8 << *bit);
    }
}

/// Puts the bit back where the flipped one still is: what was written anew meanwhile is right.
fn put_back(image: &Image, flip: Option<&Flip>, node: &Node, refused: bool) {
    match flip {
        Some(Flip { object: Some(object), byte, .. }) => {
            let was = image.objects.iter().find(|(name, _)| name == object).map(|(_, bytes)| bytes);
            let is = node.memory.contents().into_iter().find(|(name, _)| name == object).map(|(_, bytes)| bytes);
            let (Some(was), Some(is)) = (was, is) else { return };
            let at = *byte as usize;
            let flipped = was.len() == is.len() && was[..at] == is[..at] && was[at + 1..] == is[at + 1..];
            if flipped && was[at] != is[at] {
                toggle(node, flip);
            }
        }
        // A start that was not refused has written to the log.
        Some(Flip { object: None, byte, bit, .. }) if refused => node.disk.flip(*byte, 1u8 << *bit),
        _ => {}
    }
}

async fn look(image: &Image, flip: Option<&Flip>, engine: &Arc<Engine>, told: &mut Told) {
    let root = engine.volumes()[0].root;
    told.first = read_back(&**engine, root, &image.after).await;
    if flip.is_some_and(|flip| flip.class == Class::LastGroup) && !told.first.wrong.is_empty() {
        told.without = Some(read_back(&**engine, root, &image.before).await);
    }
    // Before a checkpoint packs small segments together, and what lay beside their records is not read any more.
    scrub(engine, told).await;
    if let Err(error) = engine.checkpoint().await {
        told.said.push(format!("checkpoint: {error}"));
    }
    let lost = told.without.is_some();
    told.second = read_back(&**engine, root, if lost { &image.before } else { &image.after }).await;
    scrub(engine, told).await;
    match engine.fsck(true, |_| ()).await {
        Ok(report) => told.said.extend(report.findings),
        Err(error) => told.said.push(format!("fsck: {error}")),
    }
    told.said.extend(engine.status().damage);
}

async fn scrub(engine: &Arc<Engine>, told: &mut Told) {
    match engine.scrub(|_| ControlFlow::Continue(())).await {
        Ok(report) => told.said.extend(report.damage.into_iter().chain(report.unread)),
        Err(error) => told.said.push(format!("scrub: {error}")),
    }
}
