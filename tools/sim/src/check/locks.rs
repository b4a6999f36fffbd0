//! The table of locks, held and waiting, is the model's.

use bytes::Bytes;
use tarn_vfs::{FileSystem, LockInfo};

use crate::failure::{Checked, Failure};
use crate::pairs::Pairs;

pub fn check(engine: &dyn FileSystem, model: &dyn FileSystem, pairs: &Pairs) -> Checked {
    // Locks are asked for through slots, so an object that has some has a twin.
    let translated = model.locks().into_iter().filter_map(|mut info| {
        info.lock.node = pairs.twin(info.lock.node)?;
        Some(info)
    });
    let (should, is) = (legible(translated), legible(engine.locks()));
    if should == is {
        return Ok(());
    }
    Err(Failure::new("locks", format!("{should:#?}"), format!("{is:#?}")))
}

/// Whoever held locks in a log that is lost is on the list of those to be told.
pub fn told(engine: &dyn FileSystem, holders: &[Bytes]) -> Checked {
    let told = engine.clients_to_notify();
    match holders.iter().find(|holder| !told.iter().any(|(client, _)| client == *holder)) {
        None => Ok(()),
        Some(holder) => {
            let expected = format!("{} is told that its locks are lost", holder.escape_ascii());
            Err(Failure::new("locks", expected, format!("told are {told:?}")))
        }
    }
}

fn legible(locks: impl IntoIterator<Item = LockInfo>) -> Vec<String> {
    let line = |info: LockInfo| {
        let LockInfo { lock, waiting, .. } = info;
        let how = if waiting { "waits for" } else { "holds" };
        let (client, owner) = (lock.owner.client.escape_ascii(), lock.owner.owner.escape_ascii());
        let (start, end) = (lock.range.start, lock.range.end);
        format!("{client}, {owner} {how} {:?} {start}..{end} of {:?}", lock.kind, lock.node)
    };
    let mut lines: Vec<String> = locks.into_iter().map(line).collect();
    lines.sort();
    lines
}
