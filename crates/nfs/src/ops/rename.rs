//! RENAME (RFC 1813 section 3.3.14): another name, or another directory, for an object.

use tarn_vfs::{Change, Effect};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, RenameArgs, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct Rename;

impl Procedure for Rename {
    const NAME: &'static str = "RENAME";
    const ONCE: bool = true;

    type Args<'a> = RenameArgs<'a>;
    type Reply = Effect;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::rename(bytes)
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args.from.dir, Intent::Change)?;
        let to = rq.open_second(args.to.dir)?;
        let answer = rq.fs().rename(&opened.caller, opened.node, args.from.name, to, args.to.name);
        Ok(Started::new(answer, opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        view.change(w, &reply.changes[0]);
        view.change(w, &reply.changes[1]);
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.change(w, &changes[0]);
        view.change(w, &changes[1]);
    }
}
