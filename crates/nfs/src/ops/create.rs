//! CREATE (RFC 1813 section 3.3.8): a regular file.

use tarn_vfs::{Change, CreateMode, Effect};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::map;
use crate::wire::nfs3::{self, CreateArgs, CreateHow, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct Create;

impl Procedure for Create {
    const NAME: &'static str = "CREATE";
    const ONCE: bool = true;

    type Args<'a> = CreateArgs<'a>;
    type Reply = Effect;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::create(bytes)
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args.place.dir, Intent::Change)?;
        let (mode, set) = match args.how {
            CreateHow::Unchecked(sattr) => (CreateMode::Unchecked, map::set_attributes(&sattr)),
            CreateHow::Guarded(sattr) => (CreateMode::Guarded, map::set_attributes(&sattr)),
            CreateHow::Exclusive(verifier) => (CreateMode::Exclusive(u64::from_be_bytes(verifier)), Default::default()),
        };
        let answer = rq.fs().create(&opened.caller, opened.node, args.place.name, mode, set);
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
