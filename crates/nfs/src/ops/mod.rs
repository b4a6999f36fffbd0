//! The 22 procedures of NFSv3, one file each, and the table that finds them.
//!
//! - [`procedure`]: what a procedure is, and how each is run.
//! - The table's rows are in the order of the procedures' numbers.

pub mod procedure;

mod access;
mod commit;
mod create;
mod fsinfo;
mod fsstat;
mod getattr;
mod link;
mod listing;
mod lookup;
mod mkdir;
mod mknod;
mod null;
mod pathconf;
mod read;
mod readdir;
mod readdirplus;
mod readlink;
mod remove;
mod rename;
mod rmdir;
mod setattr;
mod symlink;
mod write;

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::gate::Gate;
use crate::service::{CallContext, Program, Progress};
use crate::wire::nfs3::{PROGRAM, VERSION};
use crate::wire::rpc::{AcceptStatus, Call};
use crate::wire::xdr::Writer;
use procedure::{Row, row};

/// Every procedure, by its number (RFC 1813 section 3.3).
const TABLE: [Row; 22] = [
    null::ROW,
    row::<getattr::GetAttr>(),
    row::<setattr::SetAttr>(),
    row::<lookup::Lookup>(),
    row::<access::Access>(),
    row::<readlink::ReadLink>(),
    row::<read::Read>(),
    row::<write::Write>(),
    row::<create::Create>(),
    row::<mkdir::MkDir>(),
    row::<symlink::Symlink>(),
    row::<mknod::MkNod>(),
    row::<remove::Remove>(),
    row::<rmdir::RmDir>(),
    row::<rename::Rename>(),
    row::<link::Link>(),
    row::<readdir::ReadDir>(),
    row::<readdirplus::ReadDirPlus>(),
    row::<fsstat::FsStat>(),
    row::<fsinfo::FsInfo>(),
    row::<pathconf::PathConf>(),
    row::<commit::Commit>(),
];

/// The names of [`TABLE`].
const NAMES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut index = 0;
    while index < TABLE.len() {
        names[index] = TABLE[index].name;
        index += 1;
    }
    names
};

/// The NFS program.
pub struct Nfs {
    gate: Arc<Gate>,
}

impl Nfs {
    pub fn new(gate: Arc<Gate>) -> Nfs {
        Nfs { gate }
    }
}

impl Program for Nfs {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        VERSION..=VERSION
    }

    fn name(&self) -> &'static str {
        "nfs"
    }

    fn procedures(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn call(&self, cx: &CallContext<'_>, call: &Call<'_>, reply: &mut Writer) -> Progress {
        match TABLE.get(call.procedure as usize) {
            Some(row) => (row.serve)(&self.gate, cx, call, reply),
            None => Progress::Refused(AcceptStatus::ProcedureUnavailable),
        }
    }

    fn reply_size(&self, call: &Call<'_>) -> usize {
        TABLE.get(call.procedure as usize).map_or(0, |row| (row.reply_size)(call.args))
    }
}
