//! Where the log is lost and somebody held locks, reclaims are granted for a while, and nothing else is.

use bytes::Bytes;
use tarn_vfs::{Caller, Errno, FileSystem, Lock, LockOutcome, LockOwner, LockRange, LockRequest};

use crate::failure::{Checked, Failure};

const NAME: &str = "grace";

/// `held`: locks that were held when the log was lost. Leaves no lock behind.
pub async fn check(engine: &dyn FileSystem, held: &[Lock]) -> Checked {
    let Some(lock) = held.first() else { return Ok(()) };
    if !engine.in_grace() {
        return Err(Failure::new(NAME, format!("grace, for {:?} was lost", lock.owner), "none"));
    }
    let owner = LockOwner { client: Bytes::from_static(b"a stranger"), ..lock.owner.clone() };
    let range = LockRange { start: u64::MAX - 1, end: u64::MAX };
    let new = Lock { owner, range, ..lock.clone() };
    let answer = ask(engine, new, false).await;
    if answer != Err(Errno::Grace) {
        return Err(Failure::new(NAME, "a new lock is refused in grace", format!("{answer:?}")));
    }
    let answer = ask(engine, lock.clone(), true).await;
    if answer != Ok(LockOutcome::Granted) {
        return Err(Failure::new(NAME, format!("{lock:?} is reclaimed in grace"), format!("{answer:?}")));
    }
    let released = engine.unlock(&Caller::root(), lock.node, lock.owner.clone(), lock.range).await;
    released.map(drop).map_err(|done| Failure::new(NAME, "an unlock", format!("{:?}", done.value.errno)))
}

async fn ask(engine: &dyn FileSystem, lock: Lock, reclaim: bool) -> Result<LockOutcome, Errno> {
    let request = LockRequest { lock, wait: false, reclaim, callback: Bytes::from_static(b"callback") };
    let answer = engine.lock(&Caller::root(), request).await;
    answer.map(|done| done.value).map_err(|done| done.value.errno)
}
