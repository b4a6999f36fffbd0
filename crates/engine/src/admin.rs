//! What administrators do to volumes. Each change is an entry of the log like any other.
//!
//! - A deleted volume disappears from clients at once; its data stays for [`crate::Config::volume_keep`].
//! - Names of volumes are unique among those that are not deleted.

use std::sync::Arc;

use bytes::Bytes;
use tarn_base::crypto::{Key as Secret, nonce};
use tarn_base::ids::{Uuid, VolumeId};
use tarn_base::mutant;
use tarn_base::time::Time;
use tarn_data::FamilyKey;
use tarn_vfs::{Done, Errno, FileType, VolumeSettings};

use crate::core::Core;
use crate::engine::Engine;
use crate::hash::UNICODE;
use crate::key::Key;
use crate::reclaim::FamilyTotals;
use crate::run::Operation;
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};
use crate::value::{Inode, Usage, VolumeRecord};
use crate::volumes::{UsageCounter, Volume};

/// The first epoch of a volume.
const FIRST_EPOCH: u32 = 1;

/// A volume to be made.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// 1 to 64 of letters, digits, `-`, `_` and `.`, beginning with a letter or digit.
    pub name: String,
    pub settings: VolumeSettings,
    /// Owner and permission bits of the root directory.
    pub uid: u32,
    pub gid: u32,
    pub mode: u16,
}

/// A volume as administrators see it.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    pub id: VolumeId,
    pub name: String,
    pub settings: VolumeSettings,
    pub usage: Usage,
    /// Names the family whose key seals its records.
    pub family: Option<Uuid>,
    /// What its records take in the store, as reclaim last saw it; `None` before that.
    pub stored: Option<FamilyTotals>,
    pub created: Time,
    /// When it was deleted, if it was and can still be brought back.
    pub deleted: Option<Time>,
}

/// Why an administrator's wish was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    #[error("no volume is named {0}; `tarn volume list` shows them")]
    NoVolume(String),
    #[error("a volume named {0} exists already; choose another name")]
    Exists(String),
    #[error(
        "{0:?} is no name for a volume: use 1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit"
    )]
    BadName(String),
    #[error("{0}")]
    BadSetting(String),
    #[error("the change was not made: {0}")]
    Refused(Errno),
}

impl VolumeSpec {
    fn check(&self) -> Result<(), AdminError> {
        check_name(&self.name)?;
        check_settings(&self.settings)
    }
}

fn check_name(name: &str) -> Result<(), AdminError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let first = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if first && name.len() <= 64 && name.bytes().all(plain) {
        Ok(())
    } else {
        Err(AdminError::BadName(name.to_owned()))
    }
}

fn check_settings(settings: &VolumeSettings) -> Result<(), AdminError> {
    let size = settings.record_size;
    if !size.is_power_of_two() || !(4096..=1 << 20).contains(&size) {
        let text = format!("record size {size}: it must be a power of two from 4 KiB to 1 MiB");
        return Err(AdminError::BadSetting(text));
    }
    if settings.write_back_delay_ms > 12 * 3600 * 1000 {
        return Err(AdminError::BadSetting("write-back delay: it must be from 0 to 12 hours".into()));
    }
    if let tarn_vfs::CompressionSetting::Zstd(level) = settings.compression
        && !(1..=19).contains(&level)
    {
        return Err(AdminError::BadSetting(format!("zstd level {level}: it must be from 1 to 19")));
    }
    Ok(())
}

/// Puts a volume's record, and the inode of its root if that is new.
struct PutVolume {
    id: VolumeId,
    record: VolumeRecord,
    root: Option<Inode>,
}

impl Operation for PutVolume {
    type Out = ();

    fn locks(&self) -> LockSet {
        LockSet::exclusive(VolumeId(0), u64::from(self.id.0))
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<()> {
        tx.put(Key::volume(self.id), |out| self.record.encode(out));
        if let Some(root) = &self.root {
            tx.put(Key::inode(self.id, self.record.root), |out| root.encode(out));
            tx.charge(self.id, 0, 1);
        }
        Ok(())
    }
}

impl Core {
    /// The key of a volume's family, from its record.
    pub fn open_family_key(&self, record: &VolumeRecord) -> Result<FamilyKey, tarn_base::crypto::OpenError> {
        let (salt, sealed) = record.family_key.split_at_checked(16).ok_or(tarn_base::crypto::OpenError)?;
        let plain = self.family_wrapper(salt).cipher().open(nonce(0, 0), &record.family.to_le_bytes(), sealed)?;
        let bytes: [u8; 32] = plain.try_into().map_err(|_| tarn_base::crypto::OpenError)?;
        // The salt was drawn for this family alone, so it names it too.
        let id = Uuid(salt.try_into().map_err(|_| tarn_base::crypto::OpenError)?);
        Ok(FamilyKey::new(id, Secret::new(bytes)))
    }

    fn family_wrapper(&self, salt: &[u8]) -> Secret {
        self.identity.shard_key.derive(salt, &[b"tarn family key"])
    }

    /// Draws and wraps the key of a new family. The salt is new each time, so the nonce may be constant.
    fn wrap_new_family_key(&self, family: u32) -> Bytes {
        let salt: [u8; 16] = self.world.random_bytes();
        let key: [u8; 32] = self.world.random_bytes();
        let mut out = salt.to_vec();
        self.family_wrapper(&salt).cipher().seal_to(nonce(0, 0), &family.to_le_bytes(), &key, &mut out);
        out.into()
    }

    /// Makes the volume of a record usable.
    pub fn mount_volume(&self, id: VolumeId, record: VolumeRecord, usage: Arc<UsageCounter>) -> Result<(), Errno> {
        let family = self.open_family_key(&record).map_err(|error| {
            self.damaged(&Key::volume(id), &error.to_string());
            Errno::Io
        })?;
        self.volumes.put(Volume { id, record, family: Arc::new(family), usage });
        Ok(())
    }
}

impl Engine {
    /// Makes a volume; durable when it returns.
    pub async fn create_volume(&self, spec: VolumeSpec) -> Result<VolumeId, AdminError> {
        spec.check()?;
        let _admin = self.core.admin.lock().await;
        if self.find_volume(&spec.name).is_ok() {
            return Err(AdminError::Exists(spec.name));
        }
        let core = &self.core;
        let id = core.numbers.volume().map_err(AdminError::Refused)?;
        let root = core.numbers.inode().map_err(AdminError::Refused)?;
        let now = core.world.clock.now();
        let record = VolumeRecord {
            name: Bytes::copy_from_slice(spec.name.as_bytes()),
            root,
            // The root of a volume is as old as the volume: any number that is not another root's will do.
            root_generation: tarn_base::ids::Position(u64::from(id.0)),
            fsid: core.world.random_u64(),
            epoch: FIRST_EPOCH,
            family: id.0,
            family_key: core.wrap_new_family_key(id.0),
            name_secret: core.world.random_bytes(),
            unicode: UNICODE,
            created: now,
            deleted: None,
            settings: spec.settings.clone(),
        };
        let root = Inode { cookie_lineage: core.identity.lineage, ..root_inode(&spec, &record, now) };
        core.mount_volume(id, record.clone(), Arc::default()).map_err(AdminError::Refused)?;
        let put = self.settle(PutVolume { id, record, root: Some(root) }).await;
        if put.is_err() {
            core.volumes.remove(id);
        }
        put.map(|()| id)
    }

    /// Changes a volume's settings; they hold from the moment it returns.
    pub async fn set_volume(&self, name: &str, settings: VolumeSettings) -> Result<(), AdminError> {
        check_settings(&settings)?;
        let _admin = self.core.admin.lock().await;
        let volume = self.find_volume(name)?;
        let record = VolumeRecord { settings, ..volume.record.clone() };
        self.settle(PutVolume { id: volume.id, record: record.clone(), root: None }).await?;
        self.core.mount_volume(volume.id, record, volume.usage.clone()).map_err(AdminError::Refused)
    }

    /// Takes a volume away from clients; its data stays for a while.
    pub async fn delete_volume(&self, name: &str) -> Result<(), AdminError> {
        let _admin = self.core.admin.lock().await;
        let volume = self.find_volume(name)?;
        let record = VolumeRecord { deleted: Some(self.core.world.clock.now()), ..volume.record.clone() };
        self.settle(PutVolume { id: volume.id, record: record.clone(), root: None }).await?;
        // In one of the two at every moment: an operation that still runs is charged.
        self.core.deleted.lock().insert(volume.id, (record, volume.usage.clone()));
        self.core.volumes.remove(volume.id);
        Ok(())
    }

    /// Brings the volume of this name back that was deleted last.
    pub async fn undelete_volume(&self, name: &str) -> Result<(), AdminError> {
        self.undelete_volume_as(name, name).await
    }

    /// As [`Engine::undelete_volume`], under the name `new_name`: for when another volume has taken the old one.
    pub async fn undelete_volume_as(&self, name: &str, new_name: &str) -> Result<(), AdminError> {
        check_name(new_name)?;
        let _admin = self.core.admin.lock().await;
        if self.find_volume(new_name).is_ok() {
            return Err(AdminError::Exists(new_name.into()));
        }
        let found = {
            let deleted = self.core.deleted.lock();
            let named = deleted.iter().filter(|(_, (record, _))| record.name == name.as_bytes());
            named.max_by_key(|(_, (record, _))| record.deleted).map(|(id, held)| (*id, held.clone()))
        };
        let Some((id, (record, usage))) = found else { return Err(AdminError::NoVolume(name.into())) };
        let name = Bytes::copy_from_slice(new_name.as_bytes());
        let record = VolumeRecord { name, deleted: None, ..record };
        self.settle(PutVolume { id, record: record.clone(), root: None }).await?;
        self.core.mount_volume(id, record, usage).map_err(AdminError::Refused)?;
        self.core.deleted.lock().remove(&id);
        Ok(())
    }

    /// All volumes, deleted ones that can be brought back included, by number.
    pub fn volume_list(&self) -> Vec<VolumeStatus> {
        let present = self.core.volumes.all();
        let mut out: Vec<_> =
            present.iter().map(|volume| status(volume.id, &volume.record, volume.usage.get())).collect();
        out.extend(self.core.deleted.lock().iter().map(|(id, (record, usage))| status(*id, record, usage.get())));
        for volume in &mut out {
            volume.stored = volume.family.and_then(|family| self.reclaim.family_totals(family));
        }
        out.sort_by_key(|volume| volume.id);
        out
    }

    fn find_volume(&self, name: &str) -> Result<Arc<Volume>, AdminError> {
        let found = self.core.volumes.all().into_iter().find(|volume| volume.record.name == name.as_bytes());
        found.ok_or_else(|| AdminError::NoVolume(name.into()))
    }

    /// Runs a change and waits until it is durable.
    async fn settle(&self, operation: PutVolume) -> Result<(), AdminError> {
        let refused = |failed: Done<tarn_vfs::Failure>| AdminError::Refused(failed.value.errno);
        let done = self.core.execute(operation).await.map_err(refused)?;
        if mutant::on(mutant::VOLUME_BEFORE_LOG) {
            return Ok(());
        }
        self.core.log.wait(done.position).await.map_err(|error| AdminError::Refused(self.core.log_failed(&error)))
    }
}

fn status(id: VolumeId, record: &VolumeRecord, usage: Usage) -> VolumeStatus {
    VolumeStatus {
        id,
        name: String::from_utf8_lossy(&record.name).into_owned(),
        settings: record.settings.clone(),
        usage,
        family: record.family_id(),
        stored: None,
        created: record.created,
        deleted: record.deleted,
    }
}

fn root_inode(spec: &VolumeSpec, record: &VolumeRecord, now: Time) -> Inode {
    Inode {
        born: FIRST_EPOCH,
        change: Inode::PENDING,
        generation: record.root_generation,
        kind: FileType::Directory,
        mode: spec.mode,
        links: 2,
        uid: spec.uid,
        gid: spec.gid,
        size: 0,
        records: 0,
        record_bits: spec.settings.record_size.trailing_zeros() as u8,
        device: (0, 0),
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent: record.root,
        next_cookie: tarn_vfs::COOKIE_FIRST,
        cookie_lineage: 0,
        map_generation: 0,
        has_cuts: false,
        distinct: true,
        verifier: None,
        domain: 0,
        target: Bytes::new(),
    }
}
