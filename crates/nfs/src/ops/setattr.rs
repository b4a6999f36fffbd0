//! SETATTR (RFC 1813 section 3.3.2): changes attributes, the size among them.
//!
//! A change of size is checked as a write is: whoever opened the file may cut it, whatever its mode has become.

use tarn_vfs::{Change, Effect};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::map;
use crate::wire::nfs3::{self, SetAttrArgs, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct SetAttr;

impl Procedure for SetAttr {
    const NAME: &'static str = "SETATTR";
    const ONCE: bool = true;

    type Args<'a> = SetAttrArgs<'a>;
    type Reply = Effect;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::setattr(bytes)
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let mut opened = rq.open(args.handle, Intent::Change)?;
        opened.caller.owner_override = args.attributes.size.is_some();
        let mut set = map::set_attributes(&args.attributes);
        set.guard = args.guard.map(map::from_time);
        Ok(Started::new(rq.fs().setattr(&opened.caller, opened.node, set), opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        view.change(w, &reply.changes[0]);
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.change(w, &changes[0]);
    }
}
