//! Objects as files below one directory of the host.
//!
//! - A file under an object's name is whole and durable: it was written and fsynced under `.tarn/staging` and then
//!   renamed or linked to its name, and every directory on the way was fsynced, before `put` returned.
//! - `Replace` compares and renames under an exclusive lock of `.tarn/lock`; every other change of a name holds the
//!   lock shared. So changes of different processes and threads exclude each other where it matters.
//! - `Create` is one `link`, which fails if the name is taken.
//! - A version is a hash of the content: equal content is the same version, whatever happened in between.
//! - A file in `.tarn/staging` that nobody has locked belongs to no writer; opening the store removes it.
//! - Everything goes through the directory opened at the start. If it is removed or moved away under us, changes fail
//!   and say so; it is never made again. Once a store's directory is in its place again, that one is used: whether it is
//!   the same store is for whoever uses it to find out.
//! - An object and a "directory" of the same name exclude each other (`a` and `a/b`), as on any file system.

mod direct;
mod files;
mod reserve;

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;

use crate::contract::{ObjectInfo, PutMode, Store, StoreError, StoreResult, Version};
use crate::name;

/// A directory as a store. Its calls block on the disk: poll them on a background runtime.
pub struct LocalStore {
    files: RwLock<Arc<files::Files>>,
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalStore({})", self.files().shown())
    }
}

impl LocalStore {
    /// Opens the store in `directory`; with `create`, makes directory and store if they are not there.
    /// Removes what writers that no longer live left half-written.
    pub fn open(directory: &Path, create: bool) -> StoreResult<LocalStore> {
        let files = files::Files::open(directory, create)?;
        files.remove_stale()?;
        Ok(LocalStore { files: RwLock::new(Arc::new(files)) })
    }

    fn files(&self) -> Arc<files::Files> {
        self.files.read().clone()
    }

    /// The directory, if it has its name; else the one that has, if that is a store's.
    fn present(&self) -> StoreResult<Arc<files::Files>> {
        let files = self.files();
        if files.has_its_place()? {
            return Ok(files);
        }
        let now = files.opened_anew()?;
        now.remove_stale()?;
        let now = Arc::new(now);
        *self.files.write() = now.clone();
        Ok(now)
    }

    /// A call that changes nothing, in the directory that was opened for as long as it is there.
    fn reading<T>(&self, call: impl Fn(&files::Files) -> StoreResult<T>) -> StoreResult<T> {
        let files = self.files();
        match call(&files) {
            Err(StoreError::Unavailable(why)) => match self.present() {
                Ok(now) if !Arc::ptr_eq(&now, &files) => call(&now),
                _ => Err(StoreError::Unavailable(why)),
            },
            answer => answer,
        }
    }
}

/// The name, if it is one an object may have and not one of ours.
fn checked(name: &str) -> StoreResult<&str> {
    name::check(name)?;
    if name.split('/').next() == Some(files::OWN) {
        return Err(StoreError::Denied(format!("names below {} belong to the store itself", files::OWN)));
    }
    Ok(name)
}

#[async_trait]
impl Store for LocalStore {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        let name = checked(name)?;
        let version = files::version(&bytes);
        if mode == PutMode::Create {
            return self.create(name, bytes).await.map(|()| version);
        }
        let files = self.present()?;
        let staged = files.stage(&bytes)?;
        let parent = files.make_parents(name)?;
        let _lock = match mode {
            PutMode::Replace(expected) => {
                let lock = files.lock_exclusive()?;
                match files.read(name) {
                    Ok(present) if files::version(&present) == expected => lock,
                    Ok(_) | Err(StoreError::NotFound(_)) => return Err(StoreError::Changed(name.to_owned())),
                    Err(error) => return Err(error),
                }
            }
            PutMode::Overwrite | PutMode::Create => files.lock_shared()?,
        };
        staged.rename_to(name)?;
        files.sync_directory(parent)?;
        Ok(version)
    }

    async fn create(&self, name: &str, bytes: Bytes) -> StoreResult<()> {
        let name = checked(name)?;
        let files = self.present()?;
        let staged = files.stage(&bytes)?;
        let parent = files.make_parents(name)?;
        let _lock = files.lock_shared()?;
        staged.link_to(name)?;
        files.sync_directory(parent)
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        let name = checked(name)?;
        let bytes = self.reading(|files| files.read(name))?;
        let version = files::version(&bytes);
        Ok((Bytes::from(bytes), version))
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        let name = checked(name)?;
        self.reading(|files| files.read_range(name, range.clone())).map(Bytes::from)
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        let name = checked(name)?;
        self.reading(|files| files.info(name))
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        let name = checked(name)?;
        let files = self.present()?;
        let _lock = files.lock_shared()?;
        files.remove(name)
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        name::check_prefix(prefix)?;
        self.reading(|files| files.list(prefix))
    }
}

#[cfg(test)]
mod tests;
