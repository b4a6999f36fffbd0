//! The six procedures of MOUNT.
//!
//! - The path is looked up as root, as a server does that opens a directory for somebody; what the client then
//!   may do with the handle is judged at each call.
//! - Whether the client may mount is judged before anything is looked up, so that nobody else learns names.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tarn_base::ids::Position;
use tarn_base::world::World;
use tarn_vfs::{Caller, Errno, FileType, Node};

use super::list::Mounts;
use super::path::{self, MountPath};
use crate::exports::Export;
use crate::exports::rules::Verdict;
use crate::gate::Gate;
use crate::service::{CallContext, Program, Progress};
use crate::wire::mount3::{self, PROGRAM, Status, VERSION};
use crate::wire::rpc::{self, AcceptStatus, Call};
use crate::wire::xdr::Writer;

/// By number (RFC 1813 section 5.2).
const TABLE: [Row; 6] = [
    Row { name: "NULL", serve: |_, _, _, _| Progress::now(0) },
    Row { name: "MNT", serve: Mount::mount },
    Row { name: "DUMP", serve: Mount::dump },
    Row { name: "UMNT", serve: Mount::unmount },
    Row { name: "UMNTALL", serve: Mount::unmount_all },
    Row { name: "EXPORT", serve: Mount::export },
];

const NAMES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut index = 0;
    while index < TABLE.len() {
        names[index] = TABLE[index].name;
        index += 1;
    }
    names
};

/// How long a mount waits for a host name in the rules, in steps of [`NAME_WAIT_STEP`]. Clients give up later.
const NAME_WAIT_STEPS: u32 = 100;
const NAME_WAIT_STEP: Duration = Duration::from_millis(50);

struct Row {
    name: &'static str,
    serve: fn(&Mount, &CallContext<'_>, &Call<'_>, &mut Writer) -> Progress,
}

/// The MOUNT program.
pub struct Mount {
    inner: Arc<Inner>,
}

struct Inner {
    gate: Arc<Gate>,
    world: World,
    mounts: Arc<Mounts>,
}

impl Mount {
    pub fn new(gate: Arc<Gate>, world: World, mounts: Arc<Mounts>) -> Mount {
        Mount { inner: Arc::new(Inner { gate, world, mounts }) }
    }

    fn mount(&self, cx: &CallContext<'_>, call: &Call<'_>, _: &mut Writer) -> Progress {
        let Ok(path) = mount3::path(call.args) else {
            return Progress::Refused(AcceptStatus::GarbageArguments);
        };
        let (inner, path, peer) = (self.inner.clone(), path.to_vec(), cx.peer);
        Progress::Later(Box::pin(async move {
            let mut w = Writer::new();
            let progress = match inner.mount(&path, peer).await {
                Ok((node, position)) => {
                    w.u32(Status::Ok as u32);
                    w.opaque(&inner.gate.key().sign(node).0);
                    w.u32(1);
                    w.u32(rpc::AUTH_SYS);
                    Progress::Done { position, status: 0 }
                }
                Err(status) => {
                    w.u32(status as u32);
                    Progress::now(status as u32)
                }
            };
            (w, progress)
        }))
    }

    fn dump(&self, _: &CallContext<'_>, _: &Call<'_>, w: &mut Writer) -> Progress {
        for mounted in self.inner.mounts.list() {
            w.bool(true);
            w.opaque(mounted.client.to_string().as_bytes());
            w.opaque(mounted.path.as_bytes());
        }
        w.bool(false);
        Progress::now(0)
    }

    fn unmount(&self, cx: &CallContext<'_>, call: &Call<'_>, _: &mut Writer) -> Progress {
        let Ok(path) = mount3::path(call.args) else {
            return Progress::Refused(AcceptStatus::GarbageArguments);
        };
        if let Some(path) = path::parse(path) {
            self.inner.mounts.remove(cx.peer.ip(), &path.spelling());
        }
        Progress::now(0)
    }

    fn unmount_all(&self, cx: &CallContext<'_>, _: &Call<'_>, _: &mut Writer) -> Progress {
        self.inner.mounts.remove_all(cx.peer.ip());
        Progress::now(0)
    }

    fn export(&self, _: &CallContext<'_>, _: &Call<'_>, w: &mut Writer) -> Progress {
        for export in self.inner.gate.exports.current().by_path() {
            w.bool(true);
            w.opaque(export.path().as_bytes());
            for client in export.rules.clients() {
                w.bool(true);
                w.opaque(client.as_bytes());
            }
            w.bool(false);
        }
        w.bool(false);
        Progress::now(0)
    }
}

impl Inner {
    async fn mount(&self, path: &[u8], peer: SocketAddr) -> Result<(Node, Position), Status> {
        let path = path::parse(path).ok_or(Status::Inval)?;
        let root = self.judge(&path, peer).await?;
        let mut node = root;
        let mut position = Position::ZERO;
        let caller = Caller::root();
        for name in &path.directories {
            let found = self.gate.fs.lookup(&caller, node, name).await.map_err(|failed| status(failed.value.errno))?;
            position = position.max(found.position);
            node = found.value.0.node;
        }
        let found = self.gate.fs.getattr(&caller, node).await.map_err(|failed| status(failed.value.errno))?;
        if found.value.kind != FileType::Directory {
            return Err(Status::NotDir);
        }
        self.mounts.add(peer.ip(), &path.spelling(), self.world.clock.now());
        Ok((node, position.max(found.position)))
    }

    /// The root of the volume that `path` begins with, if `peer` may mount it.
    async fn judge(&self, path: &MountPath<'_>, peer: SocketAddr) -> Result<Node, Status> {
        for _ in 0..NAME_WAIT_STEPS {
            let verdict = {
                let table = self.gate.exports.current();
                let export = match path.volume {
                    Some(name) => table.by_name(name),
                    None => only(&table.by_path()),
                };
                let export = export.ok_or(Status::NoEnt)?;
                (self.gate.exports.judge(export, peer), export.volume.root)
            };
            match verdict {
                (Verdict::Allowed(_), root) => return Ok(root),
                (Verdict::Denied, _) => return Err(Status::Acces),
                (Verdict::Unresolved, _) => self.world.clock.sleep(NAME_WAIT_STEP).await,
            }
        }
        Err(Status::Acces)
    }
}

/// `/` means the volume if there is one; it does not choose among several.
fn only<'a>(exports: &[&'a Export]) -> Option<&'a Export> {
    match exports {
        [export] => Some(*export),
        _ => None,
    }
}

fn status(errno: Errno) -> Status {
    match errno {
        Errno::NotFound | Errno::Stale => Status::NoEnt,
        Errno::NotDirectory => Status::NotDir,
        Errno::Access => Status::Acces,
        Errno::NotPermitted => Status::Perm,
        Errno::NameTooLong => Status::NameTooLong,
        Errno::Io => Status::Io,
        Errno::Invalid => Status::Inval,
        _ => Status::ServerFault,
    }
}

impl Program for Mount {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        VERSION..=VERSION
    }

    fn name(&self) -> &'static str {
        "mount"
    }

    fn procedures(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn call(&self, cx: &CallContext<'_>, call: &Call<'_>, reply: &mut Writer) -> Progress {
        match TABLE.get(call.procedure as usize) {
            Some(row) => (row.serve)(self, cx, call, reply),
            None => Progress::Refused(AcceptStatus::ProcedureUnavailable),
        }
    }
}
