//! READLINK (RFC 1813 section 3.3.5): the target of a symbolic link.

use bytes::Bytes;
use tarn_vfs::{Attr, Change};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct ReadLink;

impl Procedure for ReadLink {
    const NAME: &'static str = "READLINK";

    type Args<'a> = &'a [u8];
    type Reply = (Bytes, Attr);
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::one_handle(bytes)
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args, Intent::Read)?;
        Ok(Started::new(rq.fs().readlink(&opened.caller, opened.node), opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        let (target, attr) = reply;
        view.attr(w, Some(attr));
        w.opaque(target);
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.attr(w, changes[0].after.as_ref());
    }
}
