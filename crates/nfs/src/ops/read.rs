//! READ (RFC 1813 section 3.3.6): bytes of a file.
//!
//! The owner may read whatever the mode says: the client checked when the file was opened. Large pieces are
//! attached to the reply, not copied.

use tarn_vfs::{Change, IO_SIZE_MAX, ReadReply};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, RangeArgs, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct Read;

impl Procedure for Read {
    const NAME: &'static str = "READ";

    type Args<'a> = RangeArgs<'a>;
    type Reply = ReadReply;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::range(bytes)
    }

    fn reply_size(args: &Self::Args<'_>) -> usize {
        args.count.min(IO_SIZE_MAX) as usize
    }

    #[inline]
    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let mut opened = rq.open(args.handle, Intent::Read)?;
        opened.caller.owner_override = true;
        let count = args.count.min(IO_SIZE_MAX);
        Ok(Started::new(rq.fs().read(&opened.caller, opened.node, args.offset, count), opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        view.attr(w, Some(&reply.attr));
        w.u32(reply.len() as u32);
        w.bool(reply.eof);
        w.opaque_pieces(&mut reply.data);
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.attr(w, changes[0].after.as_ref());
    }
}
