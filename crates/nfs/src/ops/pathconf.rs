//! PATHCONF (RFC 1813 section 3.3.20): limits of names and links.

use tarn_vfs::{Attr, Change, LINK_MAX, NAME_MAX};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct PathConf;

impl Procedure for PathConf {
    const NAME: &'static str = "PATHCONF";

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
        w.u32(LINK_MAX);
        w.u32(NAME_MAX as u32);
        // no_trunc, chown_restricted, case_insensitive, case_preserving.
        for flag in [true, true, false, true] {
            w.bool(flag);
        }
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.attr(w, changes[0].after.as_ref());
    }
}
