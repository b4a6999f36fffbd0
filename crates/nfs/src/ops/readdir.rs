//! READDIR (RFC 1813 section 3.3.16): names in a directory.

use tarn_vfs::{Change, ListReply};

use super::listing::Limits;
use super::procedure::{Failed, Outcome, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, ReadDirArgs, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct ReadDir;

fn limits(args: &ReadDirArgs<'_>) -> Limits {
    Limits::new(args.count, u32::MAX, 0)
}

impl Procedure for ReadDir {
    const NAME: &'static str = "READDIR";

    type Args<'a> = ReadDirArgs<'a>;
    type Reply = ListReply;
    type Keep = Limits;

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::readdir(bytes)
    }

    fn reply_size(args: &Self::Args<'_>) -> usize {
        limits(args).size_max
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args.dir, Intent::Read)?;
        let limits = limits(&args);
        let answer = rq.fs().list(&opened.caller, opened.node, limits.request(args.cookie, false));
        Ok(Started { outcome: Outcome::Answer(answer), view: opened.view, keep: limits })
    }

    fn grant(w: &mut Writer, view: &View, limits: Limits, reply: &mut ListReply) -> Result<(), Failed> {
        limits.encode(w, view, reply, |w, entry| {
            w.u64(entry.ino.0);
            w.opaque(&entry.name);
            w.u64(entry.cookie);
        })
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.attr(w, changes[0].after.as_ref());
    }
}
