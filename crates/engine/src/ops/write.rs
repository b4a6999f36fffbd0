//! Writing bytes.

use std::sync::Arc;

use bytes::Bytes;
use tarn_vfs::posix::{after_write, check_read, check_write};
use tarn_vfs::{Before, Caller, Change, Effect, Errno, IO_SIZE_MAX, Node, Stability};

use super::data::{self, records_of};
use super::read::Read;
use crate::core::{Core, LARGE};
use crate::entry::Payload;
use crate::hold::Held;
use crate::run::{Operation, refuse};
use crate::stripes::LockSet;
use crate::tx::{Step, Stop, Tx};
use crate::value::Inode;

pub struct Write {
    pub caller: Caller,
    pub node: Node,
    pub offset: u64,
    pub data: Bytes,
    pub stability: Stability,
}

impl Operation for Write {
    type Out = Effect;

    fn locks(&self) -> LockSet {
        LockSet::exclusive(self.node.volume, self.node.ino.0)
    }

    fn hold(&self, core: &Arc<Core>) -> Option<Held> {
        // A large one was held before its bytes were taken from the network.
        if self.data.len() < LARGE { core.hold(self.data.len()) } else { None }
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<Effect> {
        let mut inode = tx.node(self.node)?;
        let attr = inode.attr(self.node.volume, self.node.ino);
        self.apply(tx, &mut inode).map_err(|stop| match stop {
            Stop::Refuse(failure) => {
                let change = Change { before: Some(Before::from(&attr)), after: Some(attr.clone()) };
                refuse(failure.errno, [change, Change::default()])
            }
            other => other,
        })?;
        let after = inode.attr(self.node.volume, self.node.ino);
        let change = Change { before: Some(Before::from(&attr)), after: Some(after) };
        Ok(Effect {
            attr: None,
            changes: [change, Change::default()],
            count: self.data.len() as u32,
            reached: self.stability,
        })
    }
}

impl Write {
    /// Whether the file holds these bytes at this place.
    fn is_there(&self, tx: &mut Tx<'_>, inode: &Inode) -> Step<bool> {
        let len = self.data.len();
        if inode.size < self.offset + len as u64 {
            return Ok(false);
        }
        let read = Read { caller: self.caller.clone(), node: self.node, offset: self.offset, count: len as u32 };
        let mut taken = 0;
        let pieces = read.pieces(tx, inode.layout(), len as u64)?;
        Ok(pieces.iter().all(|piece| {
            let same = self.data[taken..].starts_with(piece);
            taken += piece.len();
            same
        }))
    }

    fn apply(&self, tx: &mut Tx<'_>, inode: &mut Inode) -> Step<()> {
        let len = self.data.len() as u64;
        if len > u64::from(IO_SIZE_MAX) {
            return Err(Errno::Invalid.into());
        }
        let volume = tx.volume(self.node.volume)?;
        let before = inode.attr(self.node.volume, self.node.ino);
        let allowed = check_write(&before, &self.caller, self.offset, len);
        // That its bytes are there may be told to whoever may read them.
        let reads = || allowed == Err(Errno::Access) && check_read(&before, &self.caller).is_ok();
        let tells = tx.again && (allowed.is_ok() || reads());
        if !tells {
            allowed?;
        }
        if len == 0 {
            allowed?;
            return Ok(());
        }
        // What is lost cannot be compared: its client writes it anew, under another name.
        let there = |tx: &mut Tx<'_>| match self.is_there(tx, inode) {
            Err(Stop::Refuse(_)) => Err(Errno::TryLater.into()),
            read => read,
        };
        if tells && there(tx)? {
            // Times and mode may be newer than the bytes: nothing is changed, and what is there is waited for.
            tx.seen = if self.stability == Stability::Unstable { tx.seen } else { tx.seen.max(inode.change) };
            return Ok(());
        }
        allowed?;
        let cuts = tx.cuts(self.node.volume, self.node.ino, inode.has_cuts)?;
        let unstable = self.stability == Stability::Unstable;
        let unlogged = unstable && tx.core.bypasses(&volume, self.node.ino, self.data.len());
        let kept = (unlogged || self.data.len() >= tx.core.config.kept_min).then(|| tx.core.log.hold(&self.data));
        tx.entry_mut().whole = kept.clone().unwrap_or_default();
        let mut taken = 0;
        for (record, start, end) in records_of(inode.record_bits, self.offset, len) {
            let part = (end - start) as usize;
            let payload = match &kept {
                Some(kept) if unlogged => Payload::Unlogged(kept.slice(taken..taken + part)),
                Some(kept) => Payload::Kept(kept.slice(taken..taken + part)),
                None => Payload::Bytes(self.data.slice(taken..taken + part)),
            };
            taken += part;
            data::write_record(tx, &volume, self.node.ino, inode, cuts.as_ref(), (record, start), payload)?;
        }
        let after = after_write(&before, &self.caller, self.offset, len, tx.now());
        inode.adopt(&after);
        tx.grows = after.size > inode.size;
        inode.size = after.size;
        tx.unstable = unstable;
        tx.put_inode(self.node.volume, self.node.ino, inode);
        Ok(())
    }
}
