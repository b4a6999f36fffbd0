//! Recovery: the log's entries over the store's state at P.
//!
//! - Entries up to P are in the store; of them only session changes are applied again.
//! - Every entry after P is applied in order, in generations closed where they were closed before, so that what a
//!   record is charged is decided as before.
//! - Numbers that an entry shows in use are not given out again.
//! - Nothing here writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tarn_base::codec::DecodeError;
use tarn_base::ids::{Position, VolumeId};
use tarn_meta::MetaView;
use tarn_vfs::WriteSpeed;
use tarn_wal::{LogError, Recovery};

use crate::checkpoint::end_generation;
use crate::entry::Entry;
use crate::error::OpenError;
use crate::key::{Key, Kind};
use crate::missing::Missing;
use crate::once::OnceTable;
use crate::overlay::{Generation, OverlayValue};
use crate::run::apply_data;
use crate::session::Session;
use crate::value::{NotifyRecord, ShardState, Usage, VolumeRecord};
use crate::volumes::UsageCounter;

/// Keys of one page of a scan.
const PAGE: usize = 1000;

/// A volume as found, deleted or not.
#[derive(Clone, Debug)]
pub struct Found {
    pub record: VolumeRecord,
    pub usage: Arc<UsageCounter>,
}

/// What the store holds at P, as far as it is kept in RAM.
#[derive(Debug, Default)]
pub struct Base {
    pub state: ShardState,
    pub volumes: BTreeMap<VolumeId, Found>,
    /// Clients that held locks.
    pub notify: Vec<NotifyRecord>,
}

/// What replay rebuilt.
#[derive(Debug)]
pub struct Rebuilt {
    /// Newest first, as the stack has them.
    pub generations: Vec<Arc<Generation>>,
    pub volumes: BTreeMap<VolumeId, Found>,
    pub next_inode: u64,
    pub next_volume: u32,
    /// As the store knew it.
    pub lineage: u32,
    pub once: OnceTable,
    pub session: Session,
    /// Data that had passed the log by.
    pub missing: Missing,
    /// Entries applied, and bytes of theirs.
    pub entries: u64,
    pub bytes: u64,
}

impl Base {
    /// Of a store that was created just now.
    pub fn new() -> Base {
        let state = ShardState { next_inode: 1, next_volume: 1, ..ShardState::default() };
        Base { state, ..Base::default() }
    }

    /// Reads the state of a shard; `None` if there is none yet.
    pub async fn read(view: &Arc<dyn MetaView>) -> Result<Option<Base>, OpenError> {
        let Some(value) = view.get(&Key::shard().encode()).await? else { return Ok(None) };
        let state = ShardState::decode(&value).map_err(|error| damaged(&Key::shard(), error))?;
        let mut volumes = BTreeMap::new();
        for (key, value) in scan(view, Kind::Volume).await? {
            let record = VolumeRecord::decode(&value).map_err(|error| damaged(&key, error))?;
            volumes.insert(VolumeId(key.a as u32), Found { record, usage: Arc::default() });
        }
        for (key, value) in scan(view, Kind::Usage).await? {
            let usage = Usage::decode(&value).map_err(|error| damaged(&key, error))?;
            if let Some(found) = volumes.get_mut(&VolumeId(key.a as u32)) {
                found.usage = Arc::new(UsageCounter::new(usage));
            }
        }
        let mut notify = Vec::new();
        for (key, value) in scan(view, Kind::Notify).await? {
            notify.push(NotifyRecord::decode(&value).map_err(|error| damaged(&key, error))?);
        }
        Ok(Some(Base { state, volumes, notify }))
    }
}

/// All shard-wide keys of a kind.
async fn scan(view: &Arc<dyn MetaView>, kind: Kind) -> Result<Vec<(Key, bytes::Bytes)>, OpenError> {
    let mut from = Key { volume: VolumeId(0), partition: 0, kind, a: 0, b: 0 };
    let to = Key { a: u64::MAX, b: u64::MAX, ..from };
    let mut out = Vec::new();
    loop {
        let page = view.scan(&from.encode(), &to.encode(), PAGE).await?;
        for (bytes, value) in page.entries {
            let key = Key::decode(&bytes).ok_or_else(|| OpenError::Damaged(format!("a key of kind {kind:?}")))?;
            out.push((key, value));
        }
        match out.last().and_then(|(last, _)| last.after()) {
            Some(next) if !page.complete => from = next,
            _ => return Ok(out),
        }
    }
}

fn damaged(key: &Key, error: DecodeError) -> OpenError {
    match error {
        DecodeError::Version(version) => OpenError::Newer(version),
        error => OpenError::Damaged(format!("{:?} {}: {error}", key.kind, key.a)),
    }
}

/// Rebuilds one entry after another.
#[derive(Debug)]
pub struct Replay {
    after: Position,
    overlay_bytes: u64,
    now: Duration,
    rebuilt: Rebuilt,
}

impl Replay {
    /// Begins over `base`; `overlay_bytes` of dirty data are held in RAM, the rest is read back.
    pub fn new(base: Base, overlay_bytes: u64, now: Duration) -> Replay {
        let after = base.state.position;
        let rebuilt = Rebuilt {
            generations: vec![Arc::new(Generation::new(1, after, now))],
            volumes: base.volumes,
            next_inode: base.state.next_inode,
            next_volume: base.state.next_volume,
            lineage: base.state.lineage,
            once: OnceTable::default(),
            session: Session::default(),
            missing: Missing::default(),
            entries: 0,
            bytes: 0,
        };
        Replay { after, overlay_bytes, now, rebuilt }
    }

    /// Reads the whole log.
    pub fn run(mut self, log: &mut Recovery) -> Result<Rebuilt, OpenError> {
        log.replay(|entry| self.entry(entry))?;
        Ok(self.rebuilt)
    }

    fn entry(&mut self, read: tarn_wal::Entry) -> Result<(), OpenError> {
        let tarn_wal::Entry { position, place, payload } = read;
        let undecodable = |error| match error {
            DecodeError::Version(version) => OpenError::Newer(version),
            error => {
                let reason = format!("entry {position}: {error}");
                OpenError::LogDamaged(LogError::Damaged { offset: place.frame, reason })
            }
        };
        let (entry, data_at) = Entry::decode(&payload).map_err(undecodable)?;
        let rebuilt = &mut self.rebuilt;
        for change in &entry.session {
            rebuilt.session.replay(change, position, &rebuilt.once).map_err(undecodable)?;
        }
        if position <= self.after {
            return Ok(());
        }
        if entry.changes_store() {
            rebuilt.entries += 1;
            rebuilt.bytes += payload.len() as u64;
        }
        let open = rebuilt.generations[0].clone();
        for (key, value) in &entry.keys {
            rebuilt.learn(key, value.as_deref()).map_err(undecodable)?;
            // The log does not say what was new.
            open.put(*key, OverlayValue { value: value.clone(), barrier: position, new: false });
        }
        for (volume, bytes, inodes) in &entry.usage {
            if let Some(found) = rebuilt.volumes.get(volume) {
                found.usage.add(*bytes, *inodes);
            }
        }
        rebuilt.missing.entry(&entry, position);
        let held: u64 = rebuilt.generations.iter().map(|generation| generation.ram_bytes()).sum();
        apply_data(&open, &entry, place, data_at as u32, held > self.overlay_bytes / 4 * 3);
        if entry.closes {
            let usage = rebuilt.volumes.iter().map(|(id, found)| (*id, found.usage.get())).collect();
            let numbers = (rebuilt.next_inode, rebuilt.next_volume);
            let next = end_generation(&open, position, numbers, usage, self.now);
            rebuilt.generations.insert(0, next);
        }
        Ok(())
    }
}

impl Rebuilt {
    /// Whether a volume answers before its changes are durable, so that a crash may have lost some.
    pub fn exposes_answers(&self) -> bool {
        self.volumes.values().any(|found| found.record.settings.write_speed == WriteSpeed::High)
    }

    /// Takes over what a key says of volumes and numbers in use.
    fn learn(&mut self, key: &Key, value: Option<&[u8]>) -> Result<(), DecodeError> {
        match (key.kind, value) {
            (Kind::Inode, Some(_)) => {
                let ino = tarn_base::ids::Ino(key.a);
                if ino.partition() == 0 {
                    self.next_inode = self.next_inode.max(ino.number() + 1);
                }
            }
            (Kind::Volume, Some(value)) => {
                let id = VolumeId(key.a as u32);
                self.next_volume = self.next_volume.max(id.0.saturating_add(1));
                let record = VolumeRecord::decode(value)?;
                let usage = self.volumes.get(&id).map(|found| found.usage.clone()).unwrap_or_default();
                self.volumes.insert(id, Found { record, usage });
            }
            (Kind::Volume, None) => {
                self.volumes.remove(&VolumeId(key.a as u32));
            }
            _ => {}
        }
        Ok(())
    }
}
