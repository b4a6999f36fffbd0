//! LINK (RFC 1813 section 3.3.15): one more name for an object.

use tarn_vfs::{Change, Effect};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, LinkArgs, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct Link;

impl Procedure for Link {
    const NAME: &'static str = "LINK";
    const ONCE: bool = true;

    type Args<'a> = LinkArgs<'a>;
    type Reply = Effect;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::link(bytes)
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args.handle, Intent::Change)?;
        let dir = rq.open_second(args.place.dir)?;
        let answer = rq.fs().link(&opened.caller, opened.node, dir, args.place.name);
        Ok(Started::new(answer, opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        view.attr(w, reply.attr.as_ref());
        view.change(w, &reply.changes[0]);
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        // The directory's change comes first, as in a success; the object's may follow.
        view.attr(w, changes[1].after.as_ref());
        view.change(w, &changes[0]);
    }
}
