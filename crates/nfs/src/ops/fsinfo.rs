//! FSINFO (RFC 1813 section 3.3.19): what the server can do.

use tarn_vfs::{Attr, Change, FILE_SIZE_MAX, IO_SIZE_MAX};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct FsInfo;

impl Procedure for FsInfo {
    const NAME: &'static str = "FSINFO";

    type Args<'a> = &'a [u8];
    type Reply = Attr;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::one_handle(bytes)
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args, Intent::Read)?;
        Ok(Started::new(rq.fs().getattr(&opened.caller, opened.node), opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        view.attr(w, Some(reply));
        for v in [IO_SIZE_MAX, IO_SIZE_MAX, IO_MULTIPLE, IO_SIZE_MAX, IO_SIZE_MAX, IO_MULTIPLE, LIST_SIZE] {
            w.u32(v);
        }
        w.u64(FILE_SIZE_MAX);
        // time_delta: one nanosecond.
        w.u32(0);
        w.u32(1);
        w.u32(LINK | SYMLINK | HOMOGENEOUS | CANSETTIME);
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.attr(w, changes[0].after.as_ref());
    }
}

/// rtmult, wtmult: requests in whole pages touch whole pages.
const IO_MULTIPLE: u32 = 4096;
/// dtpref: some hundred entries a reply, so that a listing is few round trips and no reply takes long.
const LIST_SIZE: u32 = 64 << 10;

const LINK: u32 = 0x01;
const SYMLINK: u32 = 0x02;
/// PATHCONF is the same for all objects.
const HOMOGENEOUS: u32 = 0x08;
const CANSETTIME: u32 = 0x10;
