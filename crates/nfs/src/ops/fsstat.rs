//! FSSTAT (RFC 1813 section 3.3.18): how full the volume is; what `df` shows.

use tarn_vfs::{Answer, Attr, Change, Done, Failure, FsStat as Usage, Reply};

use super::procedure::{Failed, Outcome, Procedure, Request, Started, View};
use crate::gate::Intent;
use crate::wire::nfs3::{self, Status};
use crate::wire::xdr::{Writer, XdrResult};

pub struct FsStat;

impl Procedure for FsStat {
    const NAME: &'static str = "FSSTAT";

    type Args<'a> = &'a [u8];
    type Reply = (Usage, Attr);
    type Keep = ();

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>> {
        nfs3::one_handle(bytes)
    }

    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status> {
        let opened = rq.open(args, Intent::Read)?;
        let attr = rq.fs().getattr(&opened.caller, opened.node);
        let usage = rq.fs().statfs(&opened.caller, opened.node.volume);
        Ok(Started { outcome: both(usage, attr), view: opened.view, keep: () })
    }

    fn grant(w: &mut Writer, view: &View, (): (), reply: &mut Self::Reply) -> Result<(), Failed> {
        let (usage, attr) = &reply;
        view.attr(w, Some(attr));
        for v in [
            usage.bytes_total,
            usage.bytes_free,
            usage.bytes_free,
            usage.inodes_total,
            usage.inodes_free,
            usage.inodes_free,
        ] {
            w.u64(v);
        }
        // invarsec: may change at any time.
        w.u32(0);
        Ok(())
    }

    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]) {
        view.attr(w, changes[0].after.as_ref());
    }
}

/// Both answers as one.
fn both(usage: Answer<Usage>, attr: Answer<Attr>) -> Outcome<(Usage, Attr)> {
    match (usage.now_or_later(), attr.now_or_later()) {
        (Ok(usage), Ok(attr)) => Outcome::Answer(Answer::ready(join(usage, attr))),
        (usage, attr) => Outcome::Future(Box::pin(async move {
            let usage = match usage {
                Ok(reply) => reply,
                Err(answer) => answer.await,
            };
            let attr = match attr {
                Ok(reply) => reply,
                Err(answer) => answer.await,
            };
            join(usage, attr)
        })),
    }
}

fn join(usage: Reply<Usage>, attr: Reply<Attr>) -> Reply<(Usage, Attr)> {
    match (usage, attr) {
        (Ok(usage), Ok(attr)) => {
            let position = usage.position.max(attr.position);
            Ok(Done { value: (usage.value, attr.value), position })
        }
        (Err(failure), Ok(attr)) => Err(with_attributes(failure, attr)),
        (_, Err(failure)) => Err(failure),
    }
}

/// A failed count still tells the attributes.
fn with_attributes(mut failure: Done<Failure>, attr: Done<Attr>) -> Done<Failure> {
    failure.position = failure.position.max(attr.position);
    let [first, second] = failure.value.changes.into_inner();
    failure.value.changes = [Change { after: Some(attr.value), ..first }, second].into();
    failure
}
