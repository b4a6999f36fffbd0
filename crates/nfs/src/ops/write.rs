//! WRITE (RFC 1813 section 3.3.7): bytes into a file.
//!
//! The reply says how durable the data is when it leaves, never more. Data that may be lost does not wait for the log;
//! changes of others that the reply's attributes show do, which the file system knows. More than a reply to FSINFO
//! announced is cut to that, which the count tells.

use bytes::Bytes;
use tarn_vfs::{Change, Effect, IO_SIZE_MAX};

use super::procedure::{Failed, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::map;
use crate::session::once;
use crate::wire::nfs3::{self, Status, WriteArgs};
use crate::wire::xdr::{Writer, XdrResult};

pub struct Write;

impl Procedure for Write {
    const NAME: &'static str = "WRITE";

    type Args<'a> = WriteArgs<'a>;
    type Reply = Effect;
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::write(bytes)
    }

    #[inline]
    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let mut opened = rq.pass_as(args.handle, Intent::Change, rq.sent(once::write_digest(&args)))?;
        opened.caller.owner_override = true;
        let data = &args.data[..args.data.len().min(IO_SIZE_MAX as usize)];
        let data = if data.is_empty() { Bytes::new() } else { rq.cx.message.slice_ref(data) };
        let stability = map::stability(args.stable);
        let answer = rq.fs().write(&opened.caller, opened.node, args.offset, data, stability);
        Ok(Started::new(answer, opened.view))
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        view.change(w, &reply.changes[0]);
        w.u32(reply.count);
        w.u32(map::stable_how(reply.reached) as u32);
        w.fixed(&view.verifier);
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.change(w, &changes[0]);
    }
}
