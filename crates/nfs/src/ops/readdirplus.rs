//! READDIRPLUS (RFC 1813 section 3.3.17): names in a directory, with attributes and handles.

use tarn_vfs::handle::HANDLE_SIZE;
use tarn_vfs::{Change, ListReply};

use super::listing::Limits;
use super::procedure::{Failed, Outcome, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, ReadDirPlusArgs, Status, entry_plus_overhead};
use crate::wire::xdr::{Writer, XdrResult};

pub struct ReadDirPlus;

fn limits(args: &ReadDirPlusArgs<'_>) -> Limits {
    Limits::new(args.max_count, args.dir_count, entry_plus_overhead(HANDLE_SIZE))
}

impl Procedure for ReadDirPlus {
    const NAME: &'static str = "READDIRPLUS";

    type Args<'a> = ReadDirPlusArgs<'a>;
    type Reply = ListReply;
    type Keep = Limits;

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::readdirplus(bytes)
    }

    fn reply_size(args: &Self::Args<'_>) -> usize {
        limits(args).size_max
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args.dir, Intent::Read)?;
        let limits = limits(&args);
        let answer = rq.fs().list(&opened.caller, opened.node, limits.request(args.cookie, true));
        Ok(Started { outcome: Outcome::Answer(answer), view: opened.view, keep: limits })
    }

    fn grant(w: &mut Writer, view: &View, limits: Limits, reply: &mut ListReply) -> Result<(), Failed> {
        limits.encode(w, view, reply, |w, entry| {
            w.u64(entry.ino.0);
            w.opaque(&entry.name);
            w.u64(entry.cookie);
            view.attr(w, entry.attr.as_ref());
            w.option(entry.attr.as_ref(), |w, attr| view.handle(w, attr.node));
        })
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.attr(w, changes[0].after.as_ref());
    }
}
