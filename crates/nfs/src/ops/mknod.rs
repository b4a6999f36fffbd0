//! MKNOD (RFC 1813 section 3.3.11): a special file.

use tarn_vfs::{Change, Effect, Special};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::map;
use crate::wire::nfs3::{self, MkNodArgs, MkNodWhat, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct MkNod;

impl Procedure for MkNod {
    const NAME: &'static str = "MKNOD";
    const ONCE: bool = true;

    type Args<'a> = MkNodArgs<'a>;
    type Reply = Effect;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::mknod(bytes)
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args.place.dir, Intent::Change)?;
        let (special, sattr) = match args.what {
            MkNodWhat::Block(sattr, (major, minor)) => (Special::Block { major, minor }, sattr),
            MkNodWhat::Character(sattr, (major, minor)) => (Special::Character { major, minor }, sattr),
            MkNodWhat::Socket(sattr) => (Special::Socket, sattr),
            MkNodWhat::Fifo(sattr) => (Special::Fifo, sattr),
            MkNodWhat::Other => return Err(Status::BadType),
        };
        let set = map::set_attributes(&sattr);
        let answer = rq.fs().make(&opened.caller, opened.node, args.place.name, special, set);
        Ok(Started::new(answer, opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        view.made(w, reply.attr.as_ref());
        view.change(w, &reply.changes[0]);
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.change(w, &changes[0]);
    }
}
