//! SlateDB over simulated hours: compaction and garbage collection under commits and views, checked against a model.
//!
//! Time passes only where everything waits for it; SlateDB's every wait goes through the world's clock.

mod support;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock, World};
use tarn_meta::slate::{SlateOpener, SlateOptions};
use tarn_meta::{Batch, MetaOpener, MetaView};
use tarn_store::memory::MemoryStore;
use tarn_store::meter::MeterStore;
use tarn_store::operation::Kind;

type Model = BTreeMap<Bytes, Bytes>;

/// Stands still until [`VirtualClock::leap`].
#[derive(Clone, Default)]
struct VirtualClock(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    now: Duration,
    count: u64,
    sleepers: BTreeMap<(Duration, u64), Option<Waker>>,
}

impl VirtualClock {
    /// Moves to the next moment that anyone waits for.
    fn leap(&self) {
        let mut waiting = self.0.lock();
        if let Some(((moment, _), waker)) = waiting.sleepers.pop_first() {
            waiting.now = waiting.now.max(moment);
            drop(waiting);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

struct Sleep(VirtualClock, (Duration, u64));

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.0.0.lock();
        if waiting.now >= self.1.0 {
            return Poll::Ready(());
        }
        waiting.sleepers.insert(self.1, Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.0.0.lock().sleepers.remove(&self.1);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        Time { seconds: 1_700_000_000, nanos: 0 }.later(self.0.lock().now)
    }
    fn steady(&self) -> Duration {
        self.0.lock().now
    }
    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        let mut waiting = self.0.lock();
        waiting.count += 1;
        let moment = (waiting.now + span, waiting.count);
        Box::pin(Sleep(self.clone(), moment))
    }
}

trait Later {
    fn later(self, span: Duration) -> Time;
}

impl Later for Time {
    fn later(self, span: Duration) -> Time {
        Time::from_nanos(self.seconds * 1_000_000_000 + i64::from(self.nanos) + span.as_nanos() as i64)
    }
}

/// Runs `future`; whenever nothing else gets on, time does.
async fn simulate<T>(clock: &VirtualClock, future: impl Future<Output = T>) -> T {
    let pass = async {
        loop {
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
            clock.leap();
        }
    };
    tokio::select! {
        result = future => result,
        () = pass => unreachable!("time does not end"),
    }
}

async fn contents(view: &dyn MetaView) -> Model {
    let page = view.scan(b"\0", b"\xff", usize::MAX).await.unwrap();
    assert!(page.complete);
    page.entries.into_iter().collect()
}

/// Changes some keys in the way of a checkpoint: overwrites, creations, removals.
fn change(random: &World, round: u32, model: &mut Model) -> Batch {
    let mut changes = BTreeMap::new();
    for _ in 0..40 {
        let key = Bytes::from(format!("key-{:04}", random.random_u64() % 3000));
        let value = (random.random_u64() & 3 != 0).then(|| Bytes::from(format!("{round} {key:?}").repeat(4)));
        changes.insert(key, value);
    }
    for (key, value) in &changes {
        match value {
            Some(value) => model.insert(key.clone(), value.clone()),
            None => model.remove(key),
        };
    }
    Batch { changes: changes.into_iter().collect() }
}

#[tokio::test(flavor = "current_thread")]
async fn two_hours_of_checkpoints_lose_nothing_and_leave_little() {
    let clock = VirtualClock::default();
    let world = World { clock: Arc::new(clock.clone()), ..support::world(11) };
    let memory = Arc::new(MemoryStore::new(world.clock.clone()));
    let metered = Arc::new(MeterStore::new(memory.clone()));
    let meter = metered.meter();
    let opener = SlateOpener::new(metered, "meta", world.clone(), SlateOptions::default());
    simulate(&clock, async {
        let mut model = Model::new();
        let mut store = opener.open().await.unwrap();
        let mut views = Vec::new();
        for round in 0..1440 {
            store.commit(change(&world, round, &mut model)).await.unwrap();
            if round % 97 == 0 {
                views.push((round, store.view(), model.clone()));
            }
            // Held for twenty minutes, longer than garbage is kept.
            while views.first().is_some_and(|(taken, ..)| taken + 240 < round) {
                let (taken, view, expected) = views.remove(0);
                assert!(contents(&*view).await == expected, "the view of round {taken} changed");
            }
            if round % 480 == 479 {
                views.clear();
                store.close().await.unwrap();
                store = opener.open().await.unwrap();
            }
            world.clock.sleep(Duration::from_secs(5)).await;
            if round % 60 == 0 {
                assert!(contents(&*store.view()).await == model, "round {round} is not what was committed");
            }
        }
        let keys: Vec<Bytes> = (0..3000).map(|number| Bytes::from(format!("key-{number:04}"))).collect();
        let found = store.view().get_sorted(&keys).await.unwrap();
        assert!(keys.iter().zip(found).all(|(key, value)| model.get(key) == value.as_ref()));
        store.close().await.unwrap();
        drop(store);
        let store = opener.open().await.unwrap();
        assert!(contents(&*store.view()).await == model, "not everything is there after opening again");
    })
    .await;
    let count = |part: &str| memory.contents().iter().filter(|(name, _)| name.contains(part)).count();
    println!(
        "{} tables, {} manifests, {} compactions left",
        count("compacted/"),
        count("manifest/"),
        count("compactions/")
    );
    println!("{meter:?}");
    assert!(meter.counts(Kind::Delete).calls > 1000, "no garbage was collected");
    assert!(count("compacted/") < 500 && count("manifest/") < 900 && count("compactions/") < 900);
}
