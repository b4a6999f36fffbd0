//! GETATTR (RFC 1813 section 3.3.1): the attributes of an object.

use tarn_vfs::{Attr, Change};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::map;
use crate::wire::nfs3::{self, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct GetAttr;

impl Procedure for GetAttr {
    const NAME: &'static str = "GETATTR";

    type Args<'a> = &'a [u8];
    type Reply = Attr;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::one_handle(bytes)
    }

    #[inline]
    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args, Intent::Read)?;
        Ok(Started::new(rq.fs().getattr(&opened.caller, opened.node), opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        map::attributes(reply, view.fsid).encode(w);
        Ok(())
    }

    fn refuse(_: &mut Writer, _: &View, _: &[Change; 2]) {}
}
