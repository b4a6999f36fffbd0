//! The model against the suite, and what only the model can be asked.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::Position;
use tarn_vfs::model::{FixedClock, Model};
use tarn_vfs::op::{Data, Op, Seen, Slot, Slots};
use tarn_vfs::walk;
use tarn_vfs::*;

/// The model never waits, so neither does this.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the model made somebody wait"),
    }
}

fn ok<T>(answer: Answer<T>) -> T {
    match answer.now_or_later() {
        Ok(Ok(done)) => {
            assert_eq!(done.position, Position::ZERO);
            done.value
        }
        Ok(Err(done)) => panic!("refused: {:?}", done.value.errno),
        Err(_) => panic!("the model made somebody wait"),
    }
}

fn errno<T>(answer: Answer<T>) -> Option<Errno> {
    now(answer_error(answer))
}

async fn answer_error<T>(answer: Answer<T>) -> Option<Errno> {
    match answer.now_or_later() {
        Ok(reply) => reply.err().map(|done| done.value.errno),
        Err(_) => None,
    }
}

#[test]
fn the_model_passes_the_suite() {
    let model = Arc::new(Model::with_volume());
    let volume = model.volumes()[0].clone();
    let count = now(suite::check(model, &volume)).unwrap_or_else(|failed| {
        panic!("{}", failed.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    });
    assert!(count > 80, "only {count} cases ran");
}

#[test]
fn a_full_volume_refuses_bytes_and_takes_them_again_after_a_removal() {
    let model = Model::new(Arc::new(FixedClock::new()));
    let settings = VolumeSettings { size_limit: Some(256 << 10), ..VolumeSettings::default() };
    let volume = model.add_volume("small", settings, &Caller::root());
    let root = Caller::root();
    let create = |name: &[u8]| model.create(&root, volume.root, name, CreateMode::Guarded, SetAttr::default());
    let file = ok(create(b"f")).attr.unwrap().node;
    let write = |node, offset| model.write(&root, node, offset, vec![1; 64 << 10].into(), Stability::File);
    for record in 0..4 {
        ok(write(file, record << 16));
    }
    assert_eq!(errno(write(file, 4 << 16)), Some(Errno::NoSpace));
    ok(write(file, 0));
    assert_eq!(ok(model.statfs(&root, volume.id)).bytes_free, 0);
    let other = ok(create(b"g")).attr.unwrap().node;
    assert_eq!(errno(write(other, 0)), Some(Errno::NoSpace));
    ok(model.setattr(&root, file, SetAttr { size: Some(1), ..SetAttr::default() }));
    ok(write(other, 0));
}

#[test]
fn volumes_are_apart() {
    let model = Model::with_volume();
    let other = model.add_volume("other", VolumeSettings::default(), &Caller::root());
    let (root, first) = (Caller::root(), model.volumes()[0].clone());
    let file = ok(model.create(&root, first.root, b"f", CreateMode::Guarded, SetAttr::default())).attr.unwrap();
    assert_eq!(errno(model.link(&root, file.node, other.root, b"f")), Some(Errno::CrossVolume));
    assert_eq!(errno(model.rename(&root, first.root, b"f", other.root, b"f")), Some(Errno::CrossVolume));
    assert_eq!(errno(model.lookup(&root, other.root, b"f")), Some(Errno::NotFound));
}

#[test]
fn the_access_time_follows_a_change_and_then_waits_a_day() {
    let clock = FixedClock::new();
    let model = Model::new(Arc::new(clock.clone()));
    let volume = model.add_volume("vol", VolumeSettings::default(), &Caller::root());
    let root = Caller::root();
    let file = ok(model.create(&root, volume.root, b"f", CreateMode::Guarded, SetAttr::default())).attr.unwrap();
    let read_after = |seconds| {
        clock.advance(Duration::from_secs(seconds));
        ok(model.read(&root, file.node, 0, 1)).attr.atime.seconds - file.btime.seconds
    };
    assert_eq!(read_after(1), 1);
    assert_eq!(read_after(1), 1);
    assert_eq!(read_after(86_400), 86_402);
    ok(model.write(&root, file.node, 0, Bytes::from_static(b"x"), Stability::File));
    assert_eq!(read_after(5), 86_407);
}

#[test]
fn locks_lost_with_the_log_are_told_and_only_reclaimed_during_grace() {
    let model = Model::with_volume();
    let (root, dir) = (Caller::root(), model.volumes()[0].root);
    let node = ok(model.create(&root, dir, b"f", CreateMode::Guarded, SetAttr::default())).attr.unwrap().node;
    let owner = LockOwner { client: "client".into(), owner: "owner".into(), process: 1 };
    let lock = Lock { node, owner, kind: LockKind::Exclusive, range: LockRange { start: 0, end: 9 } };
    let request = LockRequest { lock, wait: false, reclaim: false, callback: "callback".into() };
    ok(model.lock(&root, request.clone()));
    let verifier = model.write_verifier();
    model.lose_session_state();
    model.set_grace(true);
    assert_ne!(model.write_verifier(), verifier);
    assert_eq!(model.clients_to_notify(), [(Bytes::from("client"), Bytes::from("callback"))]);
    assert_eq!(errno(model.lock(&root, request.clone())), Some(Errno::Grace));
    assert_eq!(ok(model.lock(&root, LockRequest { reclaim: true, ..request })), LockOutcome::Granted);
    ok(model.client_notified(b"client"));
    assert!(model.clients_to_notify().is_empty());
}

/// A history that touches most operations; the same on every file system.
fn history() -> Vec<Op> {
    let (root, dir, file, link) = (Slot(0), Slot(1), Slot(2), Slot(3));
    let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    let name = |name: &'static str| Bytes::from(name);
    vec![
        Op::Mkdir { dir: root, name: name("dir"), set, into: dir },
        Op::Create { dir, name: name("file"), mode: CreateMode::Exclusive(7), set: SetAttr::default(), into: file },
        Op::Write { node: file, offset: 100_000, data: Data { seed: 5, count: 70_000 }, stability: Stability::File },
        Op::Link { node: file, dir: root, name: name("second") },
        Op::Make { dir, name: name("link"), what: Special::Symlink(name("file")), set, into: link },
        Op::Rename { from: dir, name: name("link"), to: root, new_name: name("moved") },
        Op::Lookup { dir: root, name: name("second"), into: Slot(4) },
        Op::Setattr { node: file, set: SetAttr { size: Some(150_000), ..SetAttr::default() } },
        Op::Rmdir { dir: root, name: name("dir") },
        Op::Read { node: file, offset: 0, count: 1 << 20 },
        Op::List { dir: root, page: 2 },
        Op::Remove { dir, name: name("file") },
        Op::Getattr { node: Slot(99) },
    ]
}

fn play(model: &Model) -> Vec<Seen> {
    let mut slots = Slots::from([(Slot(0), model.volumes()[0].root)]);
    let seen = history().into_iter().map(|op| {
        let outcome = now(op.run(model, &Caller::root(), &slots));
        op.note(&outcome, &mut slots);
        outcome.seen
    });
    seen.collect()
}

#[test]
fn one_history_gives_one_tree_whatever_the_numbers() {
    let (one, two) = (Model::with_volume(), Model::with_volume());
    let root = two.volumes()[0].root;
    // Numbers are not the same in the second.
    ok(two.mkdir(&Caller::root(), root, b"x", SetAttr::default()));
    ok(two.rmdir(&Caller::root(), root, b"x"));
    let seen = play(&one);
    assert_eq!(seen, play(&two));
    assert_eq!(seen[8], Seen::Refused(Errno::NotEmpty));
    assert_eq!(seen[12], Seen::Refused(Errno::Stale));
    let dump = |model: &Model| now(walk::dump(model, model.volumes()[0].root, true)).unwrap();
    assert_eq!(dump(&one), dump(&two));
    assert_eq!(dump(&one).0.len(), 4, "{}", dump(&one));
    assert!(dump(&one).differences(&dump(&two), 9).is_empty());
}

#[test]
fn a_snapshot_stays_as_it_was_and_can_be_gone_back_to() {
    let model = Model::with_volume();
    let root = model.volumes()[0].root;
    play(&model);
    let dump = |model: &Model| now(walk::dump(model, root, true)).unwrap();
    let (snapshot, before) = (model.snapshot(), dump(&model));
    let node = ok(model.lookup(&Caller::root(), root, b"second")).0.node;
    ok(model.write(&Caller::root(), node, 0, Bytes::from_static(b"changed"), Stability::File));
    ok(model.remove(&Caller::root(), root, b"moved"));
    assert_eq!(dump(&snapshot), before);
    assert_eq!(before.differences(&dump(&model), 9).len(), 2);
    model.restore(&snapshot);
    assert_eq!(dump(&model), before);
}
