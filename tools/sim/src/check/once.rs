//! A repeat of a call that took effect gives the first outcome again, and changes nothing.

use bytes::Bytes;
use tarn_base::ids::Position;
use tarn_vfs::op::{Op, Outcome, Slots};
use tarn_vfs::{Caller, FileSystem};

use crate::failure::{Checked, Failure};
use crate::legible;
pub use crate::tracker::remembers;

/// A call with a token, and what came of it.
#[derive(Clone, Debug)]
pub struct Past {
    pub op: Op,
    pub caller: Caller,
    /// What its slots stood for.
    pub slots: Slots,
    pub outcome: Outcome,
    pub at: Position,
    /// The bytes sent and heard, if it went through the front end.
    pub call: Option<Sent>,
}

/// A call in bytes.
#[derive(Clone, Debug)]
pub struct Sent {
    pub host: u64,
    pub xid: u32,
    pub message: Bytes,
    pub reply: Bytes,
}

/// Makes the call again.
pub async fn check(engine: &dyn FileSystem, past: &Past) -> Checked {
    let again = past.op.run(engine, &past.caller, &past.slots).await;
    same(past, &again)
}

/// The outcome of a repeat is that of the first call.
pub fn same(past: &Past, again: &Outcome) -> Checked {
    let show = |outcome: &Outcome| format!("{} {:?}", legible::seen(&outcome.seen), outcome.node);
    if again.seen == past.outcome.seen && again.node == past.outcome.node {
        return Ok(());
    }
    let expected = format!("{} at {}, repeated: {}", legible::op(&past.op), past.at, show(&past.outcome));
    Err(Failure::new("once", expected, show(again)))
}

/// The reply of a repeat is, byte for byte, that of the first call.
pub fn encoded(op: &Op, first: &[u8], again: &[u8]) -> Checked {
    if first == again {
        return Ok(());
    }
    let expected = format!("{}, repeated, is answered by {}", legible::op(op), hex(first));
    Err(Failure::new("once", expected, hex(again)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
