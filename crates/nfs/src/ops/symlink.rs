//! SYMLINK (RFC 1813 section 3.3.10): a symbolic link.

use bytes::Bytes;
use tarn_vfs::{Change, Effect, Special};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::map;
use crate::wire::nfs3::{self, Status, SymlinkArgs};
use crate::wire::xdr::{Writer, XdrResult};

pub struct Symlink;

impl Procedure for Symlink {
    const NAME: &'static str = "SYMLINK";
    const ONCE: bool = true;

    type Args<'a> = SymlinkArgs<'a>;
    type Reply = Effect;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::symlink(bytes)
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args.place.dir, Intent::Change)?;
        let target = Special::Symlink(Bytes::copy_from_slice(args.target));
        let set = map::set_attributes(&args.attributes);
        let answer = rq.fs().make(&opened.caller, opened.node, args.place.name, target, set);
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
