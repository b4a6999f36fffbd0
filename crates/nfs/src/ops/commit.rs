//! COMMIT (RFC 1813 section 3.3.21): makes unstable writes durable.
//!
//! The whole file is committed, which a client may not tell from the range it asked for.

use tarn_vfs::{Change, Effect};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, RangeArgs, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct Commit;

impl Procedure for Commit {
    const NAME: &'static str = "COMMIT";

    type Args<'a> = RangeArgs<'a>;
    type Reply = Effect;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::range(bytes)
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args.handle, Intent::Change)?;
        Ok(Started::new(rq.fs().commit(&opened.caller, opened.node), opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        view.change(w, &reply.changes[0]);
        w.fixed(&view.verifier);
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.change(w, &changes[0]);
    }
}
