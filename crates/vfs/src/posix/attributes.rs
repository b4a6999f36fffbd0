//! What becomes of attributes: set, made, written, read.

use tarn_base::time::Time;

use super::access::{may_read, may_write};
use super::{GROUP_EXECUTE, MODE_BITS, SET_GID, SET_UID};
use crate::error::Errno;
use crate::types::{Attr, Caller, FILE_SIZE_MAX, FileType, Node, SetAttr, SetTime};

/// The size that every directory shows, bytes: entries are not counted in bytes anywhere.
pub const DIRECTORY_SIZE: u64 = 4096;

/// A read changes the access time at most this often, unless the file has changed since; seconds.
const ATIME_SECONDS: i64 = 24 * 3600;

/// The attributes after `set` by `caller` at `now`.
///
/// - Guard first: `GuardFailed` if the ctime is another one.
/// - Size: regular files only (`IsDirectory`, else `Invalid`), write permission (`Access`), at most
///   [`FILE_SIZE_MAX`] (`FileTooBig`). Sets mtime, also when the size stays; by anybody but the superuser it
///   clears set-id bits as a write does. Freeing and charging bytes ([`Attr::used`]) is the caller's.
/// - Owner: only the superuser gives a file away; the owner may "change" it to what it is. Group: the owner may
///   choose one of their own groups. Both clear set-id bits of what is not a directory, the superuser's too, also
///   in a mode set by the same call.
/// - Mode: owner or superuser. The set-group-id bit stays only if the caller is in the (new) group or is the
///   superuser.
/// - Times: to a value only owner or superuser (`NotPermitted`), to now also whoever may write (`Access`).
/// - Anything set changes ctime to `now`; a set with nothing in it changes nothing.
pub fn apply_setattr(attr: &Attr, set: &SetAttr, caller: &Caller, now: Time) -> Result<Attr, Errno> {
    if set.guard.is_some_and(|guard| guard != attr.ctime) {
        return Err(Errno::GuardFailed);
    }
    if set.is_empty() {
        return Ok(attr.clone());
    }
    check_values(set)?;
    check_owner_changes(attr, set, caller)?;
    let mut new = attr.clone();
    if let Some(size) = set.size {
        check_size(attr, caller)?;
        new.size = size;
        new.mtime = now;
        if !caller.is_superuser() {
            new.mode = without_set_id(&new, new.mode, caller);
        }
    }
    check_times(attr, set, caller)?;
    new.uid = set.uid.unwrap_or(attr.uid);
    new.gid = set.gid.unwrap_or(attr.gid);
    if let Some(mode) = set.mode {
        new.mode = mode & MODE_BITS;
        if !caller.is_superuser() && !caller.in_group(new.gid) {
            new.mode &= !SET_GID;
        }
    }
    if (set.uid.is_some() || set.gid.is_some()) && attr.kind != FileType::Directory {
        new.mode = without_set_id(attr, new.mode, caller);
    }
    set_times(&mut new, set, now);
    new.ctime = now;
    Ok(new)
}

impl SetAttr {
    /// Whether nothing would be set; a guard sets nothing.
    pub fn is_empty(&self) -> bool {
        SetAttr { guard: None, ..*self } == SetAttr::default()
    }
}

/// Values that no attribute can have: `Invalid`, `FileTooBig`.
fn check_values(set: &SetAttr) -> Result<(), Errno> {
    let bad_time = |time: Option<SetTime>| matches!(time, Some(SetTime::To(time)) if time.nanos > 999_999_999);
    // POSIX keeps the id of all ones for "leave it".
    if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) || bad_time(set.atime) || bad_time(set.mtime) {
        return Err(Errno::Invalid);
    }
    if set.size.is_some_and(|size| size > FILE_SIZE_MAX) { Err(Errno::FileTooBig) } else { Ok(()) }
}

fn check_size(attr: &Attr, caller: &Caller) -> Result<(), Errno> {
    match attr.kind {
        FileType::Regular => may_write(attr, caller),
        FileType::Directory => Err(Errno::IsDirectory),
        _ => Err(Errno::Invalid),
    }
}

fn check_owner_changes(attr: &Attr, set: &SetAttr, caller: &Caller) -> Result<(), Errno> {
    if caller.is_superuser() {
        return Ok(());
    }
    let owner = caller.uid == attr.uid;
    let uid_ok = set.uid.is_none_or(|uid| owner && uid == attr.uid);
    let gid_ok = set.gid.is_none_or(|gid| owner && (gid == attr.gid || caller.in_group(gid)));
    let mode_ok = set.mode.is_none() || owner;
    if uid_ok && gid_ok && mode_ok { Ok(()) } else { Err(Errno::NotPermitted) }
}

fn check_times(attr: &Attr, set: &SetAttr, caller: &Caller) -> Result<(), Errno> {
    if caller.is_superuser() || caller.uid == attr.uid || (set.atime.is_none() && set.mtime.is_none()) {
        return Ok(());
    }
    if [set.atime, set.mtime].iter().any(|time| matches!(time, Some(SetTime::To(_)))) {
        return Err(Errno::NotPermitted);
    }
    may_write(attr, caller)
}

fn set_times(attr: &mut Attr, set: &SetAttr, now: Time) {
    let value = |time: SetTime| match time {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    if let Some(atime) = set.atime {
        attr.atime = value(atime);
    }
    if let Some(mtime) = set.mtime {
        attr.mtime = value(mtime);
    }
}

/// `mode` without what a change of owner or content takes away: set-user-id always, set-group-id if the group
/// may execute (without that bit it once meant mandatory locking) or the caller is not in the group of `attr`.
fn without_set_id(attr: &Attr, mode: u16, caller: &Caller) -> u16 {
    let mut mode = mode & !SET_UID;
    if mode & GROUP_EXECUTE != 0 || !(caller.is_superuser() || caller.in_group(attr.gid)) {
        mode &= !SET_GID;
    }
    mode
}

/// The attributes of an object of `kind` that `caller` makes in `dir`.
///
/// - Owner: the caller; the superuser may say another. Group: the directory's if that is set-group-id, else the
///   caller's; the superuser may say any, others one of their own. What may not be said is left out silently,
///   because clients send owner and group out of habit.
/// - A directory in a set-group-id directory is one too. A file gets the bit, if group-executable, only from the
///   superuser or a member.
/// - Mode without a wish: only for the owner. A symbolic link's is always 0777.
/// - Times are now unless set: whoever makes an object owns it. Size: as set, for a regular file.
///
/// `device` and the size of a symbolic link are left at zero. Errors: `Invalid`, `FileTooBig`.
pub fn new_attr(
    kind: FileType,
    node: Node,
    dir: &Attr,
    set: &SetAttr,
    caller: &Caller,
    now: Time,
) -> Result<Attr, Errno> {
    check_values(set)?;
    let inherits = dir.mode & SET_GID != 0;
    let default_gid = if inherits { dir.gid } else { caller.gid };
    let (uid, gid) = if caller.is_superuser() {
        (set.uid.unwrap_or(caller.uid), set.gid.unwrap_or(default_gid))
    } else {
        (caller.uid, set.gid.filter(|&gid| caller.in_group(gid)).unwrap_or(default_gid))
    };
    let directory = kind == FileType::Directory;
    let default_mode = if directory { 0o700 } else { 0o600 };
    let mut mode = set.mode.unwrap_or(default_mode) & MODE_BITS;
    if kind == FileType::Symlink {
        mode = 0o777;
    } else if directory && inherits {
        mode |= SET_GID;
    } else if mode & GROUP_EXECUTE != 0 && !caller.is_superuser() && !caller.in_group(gid) {
        mode &= !SET_GID;
    }
    let size = match kind {
        FileType::Regular => set.size.unwrap_or(0),
        FileType::Directory => DIRECTORY_SIZE,
        _ => 0,
    };
    let links = if directory { 2 } else { 1 };
    let made = Attr { node, kind, mode, links, uid, gid, size, ..Attr::default() };
    let mut attr = Attr { atime: now, mtime: now, ctime: now, btime: now, ..made };
    set_times(&mut attr, set, now);
    Ok(attr)
}

/// Whether `caller` may read bytes of this object. Errors: `IsDirectory`, `Invalid` (not a regular file),
/// `Access`.
pub fn check_read(attr: &Attr, caller: &Caller) -> Result<(), Errno> {
    match attr.kind {
        FileType::Regular => may_read(attr, caller),
        FileType::Directory => Err(Errno::IsDirectory),
        _ => Err(Errno::Invalid),
    }
}

/// Whether `caller` may write `count` bytes at `offset`. Errors: `IsDirectory`, `Invalid` (not a regular file),
/// `Access`, `FileTooBig` if the end is beyond [`FILE_SIZE_MAX`].
pub fn check_write(attr: &Attr, caller: &Caller, offset: u64, count: u64) -> Result<(), Errno> {
    match attr.kind {
        FileType::Regular => may_write(attr, caller)?,
        FileType::Directory => return Err(Errno::IsDirectory),
        _ => return Err(Errno::Invalid),
    }
    match offset.checked_add(count) {
        Some(end) if end <= FILE_SIZE_MAX => Ok(()),
        _ => Err(Errno::FileTooBig),
    }
}

/// The attributes after `count` bytes were written at `offset`: size, mtime, ctime, set-id bits unless the
/// superuser wrote. Nothing written changes nothing. [`Attr::used`] is the caller's.
pub fn after_write(attr: &Attr, caller: &Caller, offset: u64, count: u64, now: Time) -> Attr {
    let mut new = attr.clone();
    if count == 0 {
        return new;
    }
    new.size = attr.size.max(offset.saturating_add(count));
    new.mtime = now;
    new.ctime = now;
    if !caller.is_superuser() {
        new.mode = without_set_id(attr, attr.mode, caller);
    }
    new
}

/// Whether a read at `now` should change the access time (as Linux's relatime): it is not later than the last
/// change, or a day old.
pub fn atime_due(attr: &Attr, now: Time) -> bool {
    attr.atime <= attr.mtime || attr.atime <= attr.ctime || now.seconds - attr.atime.seconds >= ATIME_SECONDS
}

#[cfg(test)]
#[path = "attributes_tests.rs"]
mod tests;
