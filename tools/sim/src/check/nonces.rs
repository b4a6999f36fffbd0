//! Nothing else is ever sealed under a nonce that was used: frames of the log, segments.
//!
//! - A frame's nonce is its opening and offset, a segment's key comes from its number: what bears the same name
//!   has the same bytes, however often it is sent and whether or not it arrives.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tarn_store::{ObjectInfo, PutMode, Store, StoreResult, Version};
use tarn_wal::{LogDevice, decoders};

use crate::failure::{Checked, Failure};

/// Everything that was sealed, by its name and as a digest; and the first that differed.
#[derive(Debug, Default)]
pub struct Nonces {
    seen: Mutex<BTreeMap<String, u64>>,
    twice: Mutex<Option<String>>,
}

impl Nonces {
    fn sealed(&self, name: String, bytes: &[u8]) {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(bytes);
        let digest = hasher.finish();
        if *self.seen.lock().entry(name.clone()).or_insert(digest) != digest {
            self.twice.lock().get_or_insert(name);
        }
    }

    pub fn check(&self) -> Checked {
        match &*self.twice.lock() {
            None => Ok(()),
            Some(name) => Err(Failure::new("nonces", "one content for each nonce", format!("{name} was sealed twice"))),
        }
    }
}

/// A device whose frames are noted.
pub struct NotedDevice(pub Arc<dyn LogDevice>, pub Arc<Nonces>);

impl LogDevice for NotedDevice {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read(at, buf)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        // A frame that is read back and written again has whatever a torn write left behind its end.
        let frame = decoders::frame_seal(data).zip(decoders::frame_sealed(data));
        if let Some(((log, opening, offset), sealed)) = frame {
            self.1.sealed(format!("the frame of log {log} at {offset} of opening {opening}"), sealed);
        }
        self.0.write(at, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

/// A store whose segments are noted.
#[derive(Debug)]
pub struct NotedStore(pub Arc<dyn Store>, pub Arc<Nonces>);

#[async_trait]
impl Store for NotedStore {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        if tarn_data::parse_object_name(name).is_some() {
            self.1.sealed(name.to_owned(), &bytes);
        }
        self.0.put(name, bytes, mode).await
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        self.0.get(name).await
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        self.0.get_range(name, range).await
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        self.0.head(name).await
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        self.0.delete(name).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        self.0.list(prefix).await
    }
}
