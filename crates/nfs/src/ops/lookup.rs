//! LOOKUP (RFC 1813 section 3.3.3): the object that a name in a directory names.

use tarn_vfs::{Attr, Change};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, DirOp, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct Lookup;

impl Procedure for Lookup {
    const NAME: &'static str = "LOOKUP";

    type Args<'a> = DirOp<'a>;
    type Reply = (Attr, Attr);
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::dir_op(bytes)
    }

    #[inline]
    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args.dir, Intent::Read)?;
        Ok(Started::new(rq.fs().lookup(&opened.caller, opened.node, args.name), opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        let (object, dir) = reply;
        view.handle(w, object.node);
        view.attr(w, Some(object));
        view.attr(w, Some(dir));
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.attr(w, changes[0].after.as_ref());
    }
}
