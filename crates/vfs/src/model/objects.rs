//! Operations on one object.

use bytes::Bytes;
use smallvec::SmallVec;
use tarn_base::ids::VolumeId;
use tarn_base::time::Time;

use super::state::{Content, Object, Outcome, State};
use crate::error::{Errno, Failure};
use crate::posix;
use crate::types::*;

/// A refusal that shows the object as it is.
pub(super) fn refuse(object: &Object, errno: Errno) -> Failure {
    Failure { errno, changes: [object.unchanged(), Change::default()].into() }
}

/// Bytes and inodes that a volume without a limit shows.
const UNLIMITED: u64 = 1 << 60;
const INODES_TOTAL: u64 = 1 << 48;

impl State {
    pub(super) fn statfs(&self, id: VolumeId) -> Outcome<FsStat> {
        let volume = self.volume(id)?;
        let (used, inodes) = (volume.used(), volume.objects.len() as u64);
        let total = volume.info.settings.size_limit.unwrap_or(UNLIMITED);
        Ok(FsStat {
            bytes_total: total,
            bytes_free: total.saturating_sub(used),
            bytes_used: used,
            inodes_total: INODES_TOTAL,
            inodes_free: INODES_TOTAL - inodes,
            inodes_used: inodes,
        })
    }

    pub(super) fn setattr(&mut self, caller: &Caller, node: Node, set: &SetAttr, now: Time) -> Outcome<Effect> {
        let object = self.get(node)?;
        let before = Before::from(&object.attr);
        let mut attr = posix::apply_setattr(&object.attr, set, caller, now).map_err(|errno| refuse(object, errno))?;
        if set.is_empty() {
            return Ok(Effect { changes: [object.unchanged(), Change::default()], ..Effect::default() });
        }
        attr.change = self.next_position();
        let object = self.edit(node)?;
        if let (Some(size), Content::File(records)) = (set.size, &mut object.content) {
            records.truncate(size);
            attr.used = records.used();
        }
        object.attr = attr.clone();
        let change = Change { before: Some(before), after: Some(attr) };
        Ok(Effect { changes: [change, Change::default()], ..Effect::default() })
    }

    pub(super) fn access(&self, caller: &Caller, node: Node, want: Access) -> Outcome<(Access, Attr)> {
        let attr = &self.get(node)?.attr;
        Ok((posix::access(attr, caller, want), attr.clone()))
    }

    pub(super) fn readlink(&mut self, node: Node, now: Time) -> Outcome<(Bytes, Attr)> {
        let object = self.get(node)?;
        let Content::Symlink(target) = &object.content else { return Err(refuse(object, Errno::Invalid)) };
        let target = target.clone();
        Ok((target, self.accessed(node, now)?))
    }

    pub(super) fn read(
        &mut self,
        caller: &Caller,
        node: Node,
        offset: u64,
        count: u32,
        now: Time,
    ) -> Outcome<ReadReply> {
        let object = self.get(node)?;
        posix::check_read(&object.attr, caller).map_err(|errno| refuse(object, errno))?;
        let Content::File(records) = &object.content else { return Err(refuse(object, Errno::Invalid)) };
        let size = object.attr.size;
        let wanted = u64::from(count.min(IO_SIZE_MAX)).min(size.saturating_sub(offset));
        let mut data = SmallVec::new();
        if wanted > 0 {
            data.push(Bytes::from(records.read(offset, wanted as usize)));
        }
        let eof = offset.saturating_add(wanted) >= size;
        let attr = if count > 0 { self.accessed(node, now)? } else { object.attr.clone() };
        Ok(ReadReply { data, eof, attr })
    }

    pub(super) fn write(
        &mut self,
        caller: &Caller,
        node: Node,
        offset: u64,
        data: &[u8],
        stability: Stability,
        now: Time,
    ) -> Outcome<Effect> {
        let object = self.get(node)?;
        let count = data.len() as u64;
        posix::check_write(&object.attr, caller, offset, count).map_err(|errno| refuse(object, errno))?;
        let Content::File(records) = &object.content else { return Err(refuse(object, Errno::Invalid)) };
        let cost = records.cost(offset, count);
        self.volume(node.volume)?.room(cost).map_err(|errno| refuse(object, errno))?;
        let before = Before::from(&object.attr);
        let mut attr = posix::after_write(&object.attr, caller, offset, count, now);
        if count > 0 {
            attr.change = self.next_position();
        }
        let object = self.edit(node)?;
        if let Content::File(records) = &mut object.content {
            records.write(offset, data);
            attr.used = records.used();
        }
        object.attr = attr.clone();
        let change = Change { before: Some(before), after: Some(attr) };
        Ok(Effect { changes: [change, Change::default()], count: data.len() as u32, reached: stability, attr: None })
    }

    pub(super) fn commit(&self, node: Node) -> Outcome<Effect> {
        let object = self.get(node)?;
        match object.attr.kind {
            FileType::Regular => {
                let changes = [object.unchanged(), Change::default()];
                Ok(Effect { changes, reached: Stability::File, ..Effect::default() })
            }
            FileType::Directory => Err(refuse(object, Errno::IsDirectory)),
            _ => Err(refuse(object, Errno::Invalid)),
        }
    }

    /// The attributes after an access, which may have changed the access time.
    pub(super) fn accessed(&mut self, node: Node, now: Time) -> Result<Attr, Errno> {
        if posix::atime_due(&self.get(node)?.attr, now) {
            self.edit(node)?.attr.atime = now;
        }
        Ok(self.get(node)?.attr.clone())
    }
}
