//! ACCESS (RFC 1813 section 3.3.4): which rights the caller has.
//!
//! The bits are those of the contract; what the export forbids is not granted.

use tarn_vfs::{Access as Rights, Attr, Change};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, AccessArgs, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct Access;

impl Procedure for Access {
    const NAME: &'static str = "ACCESS";

    type Args<'a> = AccessArgs<'a>;
    type Reply = (Rights, Attr);
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::access(bytes)
    }

    #[inline]
    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args.handle, Intent::Read)?;
        let mut want = Rights(args.want as u8 & KNOWN);
        if !opened.view.writable {
            want = Rights(want.0 & !CHANGING);
        }
        Ok(Started::new(rq.fs().access(&opened.caller, opened.node, want), opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        let (granted, attr) = reply;
        view.attr(w, Some(attr));
        w.u32(u32::from(granted.0));
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.attr(w, changes[0].after.as_ref());
    }
}

/// READ, LOOKUP, MODIFY, EXTEND, DELETE, EXECUTE.
const KNOWN: u8 = 0x3f;
const CHANGING: u8 = Rights::MODIFY.0 | Rights::EXTEND.0 | Rights::DELETE.0;
