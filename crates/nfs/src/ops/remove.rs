//! REMOVE (RFC 1813 section 3.3.12): removes a name that is not a directory's.

use tarn_vfs::{Change, Effect};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, DirOp, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct Remove;

impl Procedure for Remove {
    const NAME: &'static str = "REMOVE";
    const ONCE: bool = true;

    type Args<'a> = DirOp<'a>;
    type Reply = Effect;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::dir_op(bytes)
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args.dir, Intent::Change)?;
        Ok(Started::new(rq.fs().remove(&opened.caller, opened.node, args.name), opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        view.change(w, &reply.changes[0]);
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.change(w, &changes[0]);
    }
}
