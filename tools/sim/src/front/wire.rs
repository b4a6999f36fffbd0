//! The file system as a client of NFSv3 sees it: each method is a call in bytes, each result a reply decoded.
//!
//! - Handles are kept as they were first seen, over restarts: a client never makes one.
//! - What does not travel in this protocol - locks, the list of volumes - goes to the engine directly.
//! - What cannot be decoded, or contradicts itself, is noted as a failure.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tarn_base::ids::{Ino, Position, VolumeId};
use tarn_base::time::Time;
use tarn_nfs::wire::nfs3::{Fattr, NfsTime, PROGRAM, Type, VERSION, WccData};
use tarn_nfs::wire::rpc::{AuthSys, Call, ReplyBody, decode_reply};
use tarn_nfs::wire::xdr::{Reader, Writer, XdrError, XdrResult};
use tarn_vfs::*;

use crate::failure::Failure;
use crate::front::line::Heard;
use crate::front::manner::Manner;
use crate::front::observed::TAG;
use crate::front::{Front, status};

/// Handles as they were first seen.
pub type Handles = Arc<Mutex<BTreeMap<Node, Handle>>>;

/// What was sent and heard, by the last call.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub xid: u32,
    pub message: Bytes,
    pub heard: Option<Heard>,
    /// The reply of a repeat at once.
    pub again: Option<Heard>,
    /// No reply says what became of the call.
    pub unknown: bool,
    /// Of a reply to WRITE or COMMIT.
    pub verifier: Option<[u8; 8]>,
    pub wrong: Option<Failure>,
}

/// See the head of the file.
#[derive(Clone)]
pub struct Wire {
    front: Arc<Front>,
    /// What this protocol does not speak of.
    engine: Arc<dyn FileSystem>,
    handles: Handles,
    key: HandleKey,
    host: u64,
    tag: Option<u32>,
    manner: Manner,
    /// Listings with attributes and handles.
    plus: bool,
    /// Every call is this one, made again.
    replay: Option<(u32, Bytes)>,
    pub said: Arc<Mutex<Said>>,
}

/// A reply's results being taken.
struct Results<'a> {
    r: Reader<'a>,
    wire: &'a Wire,
}

impl Wire {
    pub fn new(front: Arc<Front>, engine: Arc<dyn FileSystem>, handles: Handles, host: u64) -> Wire {
        let key = engine.handle_key();
        let (tag, manner, plus, replay, said) = (None, Manner::Once, true, None, Arc::default());
        Wire { front, engine, handles, key, host, tag, manner, plus, replay, said }
    }

    /// For one operation, which the tracker knows by `tag`.
    pub fn tagged(self, tag: u32, manner: Manner, plus: bool) -> Wire {
        Wire { tag: Some(tag), manner, plus, said: Arc::default(), ..self }
    }

    /// Makes a call of before again, byte for byte, whatever it is asked for.
    pub fn replaying(self, xid: u32, message: Bytes) -> Wire {
        Wire { replay: Some((xid, message)), said: Arc::default(), ..self }
    }

    /// Makes the last call again, as it was.
    pub fn again(&self, said: &Said) -> impl Future<Output = Option<Heard>> + use<> {
        let (front, host, xid, message) = (self.front.clone(), self.host, said.xid, said.message.clone());
        async move { Some(front.call(host, xid, &message, Manner::Once).await?.0) }
    }

    fn handle(&self, w: &mut Writer, node: Node) {
        w.opaque(&self.handles.lock().entry(node).or_insert_with(|| self.key.sign(node)).0);
    }

    /// A handle that came: of an object, for ever the same.
    fn seen(&self, bytes: &[u8]) -> XdrResult<Node> {
        let node = self.key.verify(bytes).map_err(|_| XdrError::Value("a handle"))?;
        let kept = *self.handles.lock().entry(node).or_insert_with(|| self.key.sign(node));
        if kept.0 == bytes { Ok(node) } else { Err(XdrError::Value("a handle that is another than before")) }
    }

    fn encode(&self, caller: &Caller, procedure: u32, args: impl FnOnce(&Wire, &mut Writer)) -> (u32, Bytes) {
        if let Some((xid, message)) = &self.replay {
            return (*xid, message.clone());
        }
        let xid = self.front.next_xid();
        let mut gids: SmallVec<[u32; 16]> = SmallVec::from_slice(&caller.groups);
        gids.extend(self.tag.map(|tag| TAG + tag));
        let sys = AuthSys { stamp: 0, machine: b"simulated", uid: caller.uid, gid: caller.gid, gids };
        let mut w = Writer::new();
        Call::encode(&mut w, xid, PROGRAM, VERSION, procedure, Some(&sys));
        args(self, &mut w);
        (xid, w.to_vec().into())
    }

    fn ask<T: Send + 'static>(
        &self,
        caller: &Caller,
        procedure: u32,
        args: impl FnOnce(&Wire, &mut Writer),
        take: impl FnOnce(&mut Results<'_>) -> XdrResult<T> + Send + 'static,
    ) -> Answer<T> {
        let (xid, message) = self.encode(caller, procedure, args);
        *self.said.lock() = Said { xid, message: message.clone(), ..Said::default() };
        let wire = self.clone();
        Answer::Waits(Box::pin(async move {
            let replies = wire.front.call(wire.host, xid, &message, wire.manner).await;
            let Some((heard, again)) = replies else {
                wire.said.lock().unknown = true;
                return Err(Done::now(Errno::Io.into()));
            };
            {
                let mut said = wire.said.lock();
                (said.heard, said.again) = (Some(heard.clone()), again);
            }
            wire.decode(procedure, xid, &heard.message, take)
        }))
    }

    fn decode<T>(
        &self,
        procedure: u32,
        xid: u32,
        message: &[u8],
        take: impl FnOnce(&mut Results<'_>) -> XdrResult<T>,
    ) -> Reply<T> {
        let refuse = |errno: Errno| Err(Done::now(errno.into()));
        let wrong = |found: String| {
            let expected = format!("a reply to procedure {procedure} as RFC 1813 draws it");
            self.said.lock().wrong = Some(Failure::new("protocol", expected, found));
            refuse(Errno::Io)
        };
        let results = match decode_reply(message) {
            Ok((of, ReplyBody::Success(results))) if of == xid => results,
            // SYSTEM_ERR: the log failed, and nobody knows what survives.
            Ok((of, ReplyBody::Refused(5))) if of == xid => {
                self.said.lock().unknown = true;
                return refuse(Errno::Io);
            }
            other => return wrong(format!("{other:?}")),
        };
        let mut results = Results { r: Reader::new(results), wire: self };
        match results.r.u32() {
            Ok(0) => {}
            Ok(status) => {
                return match status::errno(status) {
                    Some(errno) => refuse(errno),
                    None => wrong(format!("status {status}")),
                };
            }
            Err(error) => return wrong(error.to_string()),
        }
        let taken = take(&mut results).and_then(|value| results.r.end().map(|()| value));
        match taken {
            Ok(value) => Ok(Done::now(value)),
            Err(error) => wrong(error.to_string()),
        }
    }
}

impl Results<'_> {
    /// fattr3 of `node`.
    fn fattr(&mut self, node: Node) -> XdrResult<Attr> {
        let fattr = Fattr::decode(&mut self.r)?;
        if fattr.fileid != node.ino.0 {
            return Err(XdrError::Value("the fileid of the object asked for"));
        }
        Ok(attributes(&fattr, node))
    }

    /// post_op_attr; this server always gives them.
    fn attr(&mut self, node: Node) -> XdrResult<Attr> {
        if self.r.bool()? { self.fattr(node) } else { Err(XdrError::Value("attributes are missing")) }
    }

    fn handle(&mut self) -> XdrResult<Node> {
        let bytes = self.r.opaque(64)?;
        self.wire.seen(bytes)
    }

    /// wcc_data of `node`.
    fn change(&mut self, node: Node) -> XdrResult<Change> {
        let wcc = WccData::decode(&mut self.r)?;
        Ok(Change { before: None, after: wcc.after.map(|fattr| attributes(&fattr, node)) })
    }

    /// post_op_fh3, post_op_attr and the directory's wcc_data.
    fn made(&mut self, dir: Node) -> XdrResult<Effect> {
        if !self.r.bool()? {
            return Err(XdrError::Value("the handle of what was made is missing"));
        }
        let node = self.handle()?;
        let attr = Some(self.attr(node)?);
        Ok(Effect { attr, changes: [self.change(dir)?, Change::default()], ..Effect::default() })
    }

    fn verifier(&mut self) -> XdrResult<()> {
        let verifier = *self.r.fixed::<8>()?;
        self.wire.said.lock().verifier = Some(verifier);
        Ok(())
    }

    fn entries(&mut self, dir: Node, plus: bool) -> XdrResult<ListReply> {
        let attr = self.attr(dir)?;
        self.r.fixed::<8>()?;
        let mut entries = Vec::new();
        while self.r.bool()? {
            let ino = Ino(self.r.u64()?);
            let name = Bytes::copy_from_slice(self.r.opaque(NAME_MAX)?);
            let cookie = self.r.u64()?;
            let mut entry = DirEntry { name, ino, kind: FileType::Regular, cookie, attr: None };
            if plus {
                let fattr = self.r.option(Fattr::decode)?.ok_or(XdrError::Value("attributes are missing"))?;
                if !self.r.bool()? || self.handle()?.ino != ino || fattr.fileid != ino.0 {
                    return Err(XdrError::Value("an entry whose handle is the object's"));
                }
                entry.kind = kind(fattr.kind);
            }
            entries.push(entry);
        }
        Ok(ListReply { entries, eof: self.r.bool()?, dir: attr })
    }
}

fn kind(of: Type) -> FileType {
    match of {
        Type::Regular => FileType::Regular,
        Type::Directory => FileType::Directory,
        Type::Block => FileType::Block,
        Type::Character => FileType::Character,
        Type::Link => FileType::Symlink,
        Type::Socket => FileType::Socket,
        Type::Fifo => FileType::Fifo,
    }
}

fn attributes(of: &Fattr, node: Node) -> Attr {
    let time = |time: NfsTime| Time { seconds: i64::from(time.seconds), nanos: time.nanos };
    Attr {
        node,
        kind: kind(of.kind),
        mode: of.mode as u16,
        links: of.links,
        uid: of.uid,
        gid: of.gid,
        size: of.size,
        used: of.used,
        device: of.device,
        atime: time(of.atime),
        mtime: time(of.mtime),
        ctime: time(of.ctime),
        btime: Time::default(),
        change: Position::ZERO,
    }
}

/// sattr3.
fn sattr(w: &mut Writer, set: &SetAttr) {
    w.option(set.mode, |w, mode| w.u32(u32::from(mode)));
    w.option(set.uid, Writer::u32);
    w.option(set.gid, Writer::u32);
    w.option(set.size, Writer::u64);
    for time in [set.atime, set.mtime] {
        match time {
            None => w.u32(0),
            Some(SetTime::Now) => w.u32(1),
            Some(SetTime::To(time)) => {
                w.u32(2);
                nfstime(w, time);
            }
        }
    }
}

fn nfstime(w: &mut Writer, time: Time) {
    w.u32(time.seconds as u32);
    w.u32(time.nanos);
}

impl FileSystem for Wire {
    fn volumes(&self) -> Volumes {
        self.engine.volumes()
    }

    fn handle_key(&self) -> HandleKey {
        self.key
    }

    fn write_verifier(&self) -> [u8; 8] {
        self.engine.write_verifier()
    }

    fn incarnation(&self) -> u32 {
        self.engine.incarnation()
    }

    fn durable(&self, _position: Position) -> Answer<()> {
        // The server has waited.
        Answer::ok(())
    }

    fn statfs(&self, caller: &Caller, volume: VolumeId) -> Answer<FsStat> {
        let root = self.engine.volumes().iter().find(|info| info.id == volume).map(|info| info.root);
        let root = root.unwrap_or(Node { volume, ..Node::default() });
        let args = move |wire: &Wire, w: &mut Writer| wire.handle(w, root);
        self.ask(caller, 18, args, move |r| {
            r.attr(root)?;
            let mut word = || r.r.u64();
            let (bytes_total, bytes_free, _) = (word()?, word()?, word()?);
            let (inodes_total, inodes_free, _) = (word()?, word()?, word()?);
            r.r.u32()?;
            Ok(FsStat { bytes_total, bytes_free, inodes_total, inodes_free, ..FsStat::default() })
        })
    }

    fn getattr(&self, caller: &Caller, node: Node) -> Answer<Attr> {
        self.ask(caller, 1, |wire, w| wire.handle(w, node), move |r| r.fattr(node))
    }

    fn setattr(&self, caller: &Caller, node: Node, set: SetAttr) -> Answer<Effect> {
        let args = |wire: &Wire, w: &mut Writer| {
            wire.handle(w, node);
            sattr(w, &set);
            w.option(set.guard, nfstime);
        };
        self.ask(caller, 2, args, move |r| {
            Ok(Effect { changes: [r.change(node)?, Change::default()], ..Effect::default() })
        })
    }

    fn access(&self, caller: &Caller, node: Node, want: Access) -> Answer<(Access, Attr)> {
        let args = |wire: &Wire, w: &mut Writer| {
            wire.handle(w, node);
            w.u32(u32::from(want.0));
        };
        self.ask(caller, 4, args, move |r| {
            let attr = r.attr(node)?;
            Ok((Access(r.r.u32()? as u8), attr))
        })
    }

    fn readlink(&self, caller: &Caller, node: Node) -> Answer<(Bytes, Attr)> {
        self.ask(
            caller,
            5,
            |wire, w| wire.handle(w, node),
            move |r| {
                let attr = r.attr(node)?;
                Ok((Bytes::copy_from_slice(r.r.opaque(SYMLINK_MAX)?), attr))
            },
        )
    }

    fn read(&self, caller: &Caller, node: Node, offset: u64, count: u32) -> Answer<ReadReply> {
        let args = |wire: &Wire, w: &mut Writer| {
            wire.handle(w, node);
            w.u64(offset);
            w.u32(count);
        };
        self.ask(caller, 6, args, move |r| {
            let attr = r.attr(node)?;
            let (count, eof) = (r.r.u32()?, r.r.bool()?);
            let data = Bytes::copy_from_slice(r.r.opaque(IO_SIZE_MAX as usize)?);
            if data.len() != count as usize {
                return Err(XdrError::Value("as many bytes as are counted"));
            }
            Ok(ReadReply { data: [data].into_iter().collect(), eof, attr })
        })
    }

    fn write(&self, caller: &Caller, node: Node, offset: u64, data: Bytes, stability: Stability) -> Answer<Effect> {
        let args = |wire: &Wire, w: &mut Writer| {
            wire.handle(w, node);
            w.u64(offset);
            w.u32(data.len() as u32);
            w.u32(stability as u32);
            w.opaque(&data);
        };
        self.ask(caller, 7, args, move |r| {
            let changes = [r.change(node)?, Change::default()];
            let count = r.r.u32()?;
            let reached = match r.r.u32()? {
                0 => Stability::Unstable,
                1 => Stability::Data,
                2 => Stability::File,
                _ => return Err(XdrError::Value("a stability")),
            };
            if reached < stability {
                return Err(XdrError::Value("at least the stability that was asked for"));
            }
            r.verifier()?;
            Ok(Effect { attr: None, changes, count, reached })
        })
    }

    fn commit(&self, caller: &Caller, node: Node) -> Answer<Effect> {
        let args = |wire: &Wire, w: &mut Writer| {
            wire.handle(w, node);
            w.u64(0);
            w.u32(0);
        };
        self.ask(caller, 21, args, move |r| {
            let changes = [r.change(node)?, Change::default()];
            r.verifier()?;
            Ok(Effect { changes, reached: Stability::File, ..Effect::default() })
        })
    }

    fn lookup(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<(Attr, Attr)> {
        self.ask(
            caller,
            3,
            |wire, w| place(wire, w, dir, name),
            move |r| {
                let node = r.handle()?;
                Ok((r.attr(node)?, r.attr(dir)?))
            },
        )
    }

    fn list(&self, caller: &Caller, dir: Node, request: ListRequest) -> Answer<ListReply> {
        // Room for at least one entry, and for about as many as are wanted.
        let plus = self.plus;
        let each = if plus { 24 + 124 + 60 } else { 24 + 60 };
        let count = (104 + 300 + 124 + u64::from(request.entries_max) * each).min(1 << 18) as u32;
        let args = |wire: &Wire, w: &mut Writer| {
            wire.handle(w, dir);
            w.u64(request.after);
            w.fixed(&[0; 8]);
            w.u32(count);
            if plus {
                w.u32(count);
            }
        };
        self.ask(caller, if plus { 17 } else { 16 }, args, move |r| r.entries(dir, plus))
    }

    fn create(&self, caller: &Caller, dir: Node, name: &[u8], mode: CreateMode, set: SetAttr) -> Answer<Effect> {
        let args = |wire: &Wire, w: &mut Writer| {
            place(wire, w, dir, name);
            match mode {
                CreateMode::Unchecked => w.u32(0),
                CreateMode::Guarded => w.u32(1),
                CreateMode::Exclusive(_) => w.u32(2),
            }
            match mode {
                CreateMode::Exclusive(verifier) => w.fixed(&verifier.to_be_bytes()),
                _ => sattr(w, &set),
            }
        };
        self.ask(caller, 8, args, move |r| r.made(dir))
    }

    fn mkdir(&self, caller: &Caller, dir: Node, name: &[u8], set: SetAttr) -> Answer<Effect> {
        let args = |wire: &Wire, w: &mut Writer| {
            place(wire, w, dir, name);
            sattr(w, &set);
        };
        self.ask(caller, 9, args, move |r| r.made(dir))
    }

    fn make(&self, caller: &Caller, dir: Node, name: &[u8], what: Special, set: SetAttr) -> Answer<Effect> {
        if let Special::Symlink(target) = &what {
            let args = |wire: &Wire, w: &mut Writer| {
                place(wire, w, dir, name);
                sattr(w, &set);
                w.opaque(target);
            };
            return self.ask(caller, 10, args, move |r| r.made(dir));
        }
        let args = |wire: &Wire, w: &mut Writer| {
            place(wire, w, dir, name);
            w.u32(match what {
                Special::Block { .. } => 3,
                Special::Character { .. } => 4,
                Special::Socket => 6,
                Special::Fifo | Special::Symlink(_) => 7,
            });
            sattr(w, &set);
            if let Special::Block { major, minor } | Special::Character { major, minor } = what {
                w.u32(major);
                w.u32(minor);
            }
        };
        self.ask(caller, 11, args, move |r| r.made(dir))
    }

    fn link(&self, caller: &Caller, node: Node, dir: Node, name: &[u8]) -> Answer<Effect> {
        let args = |wire: &Wire, w: &mut Writer| {
            wire.handle(w, node);
            place(wire, w, dir, name);
        };
        self.ask(caller, 15, args, move |r| {
            let attr = Some(r.attr(node)?);
            Ok(Effect { attr, changes: [r.change(dir)?, Change::default()], ..Effect::default() })
        })
    }

    fn remove(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.ask(caller, 12, |wire, w| place(wire, w, dir, name), move |r| removed(r, dir))
    }

    fn rmdir(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.ask(caller, 13, |wire, w| place(wire, w, dir, name), move |r| removed(r, dir))
    }

    fn rename(&self, caller: &Caller, from: Node, name: &[u8], to: Node, new_name: &[u8]) -> Answer<Effect> {
        let args = |wire: &Wire, w: &mut Writer| {
            place(wire, w, from, name);
            place(wire, w, to, new_name);
        };
        self.ask(caller, 14, args, move |r| {
            Ok(Effect { changes: [r.change(from)?, r.change(to)?], ..Effect::default() })
        })
    }

    fn lock(&self, caller: &Caller, request: LockRequest) -> Answer<LockOutcome> {
        self.engine.lock(caller, request)
    }

    fn unlock(&self, caller: &Caller, node: Node, owner: LockOwner, range: LockRange) -> Answer<()> {
        self.engine.unlock(caller, node, owner, range)
    }

    fn test_lock(&self, caller: &Caller, lock: Lock) -> Answer<Option<Lock>> {
        self.engine.test_lock(caller, lock)
    }

    fn cancel_lock(&self, caller: &Caller, lock: Lock) -> Answer<bool> {
        self.engine.cancel_lock(caller, lock)
    }

    fn release_client(&self, client: &[u8]) -> Answer<()> {
        self.engine.release_client(client)
    }

    fn locks(&self) -> Vec<LockInfo> {
        self.engine.locks()
    }

    fn locks_position(&self) -> Position {
        self.engine.locks_position()
    }

    fn clients_to_notify(&self) -> Vec<(Bytes, Bytes)> {
        self.engine.clients_to_notify()
    }

    fn client_notified(&self, client: &[u8]) -> Answer<()> {
        self.engine.client_notified(client)
    }

    fn in_grace(&self) -> bool {
        self.engine.in_grace()
    }

    fn set_event_sink(&self, sink: Arc<dyn EventSink>) {
        self.engine.set_event_sink(sink);
    }
}

/// diropargs3.
fn place(wire: &Wire, w: &mut Writer, dir: Node, name: &[u8]) {
    wire.handle(w, dir);
    w.opaque(name);
}

fn removed(r: &mut Results<'_>, dir: Node) -> XdrResult<Effect> {
    Ok(Effect { changes: [r.change(dir)?, Change::default()], ..Effect::default() })
}
