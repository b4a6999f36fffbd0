//! Where objects live, as one writes it: `file:///dir`, `mem://`, `s3://bucket/prefix`, `az://container/prefix`.
//!
//! - A URL has one meaning and one spelling; what is not understood is refused with what would be.
//! - Secrets are not part of it; they come from the environment.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use tarn_base::world::World;

use crate::cloud::CloudStore;
use crate::contract::{Store, StoreError, StoreResult};
use crate::local::LocalStore;
use crate::memory::MemoryStore;
use crate::name;
use crate::prefix::PrefixStore;

/// A place for objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// An absolute path.
    Local(PathBuf),
    /// In this process's memory; gone with it.
    Memory,
    /// The prefix is a name without slash at its end, or empty.
    S3 { bucket: String, prefix: String },
    /// The prefix is a name without slash at its end, or empty.
    Azure { container: String, prefix: String },
}

/// Why a URL names no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("{0:?} is not a store URL; use file:///DIR, s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or mem://")]
    Scheme(String),
    #[error("{0:?} has no absolute path; use three slashes: file:///DIR")]
    Relative(String),
    #[error("{0:?} names no bucket or container; use s3://BUCKET/PREFIX or az://CONTAINER/PREFIX")]
    Bucket(String),
    #[error("the prefix of {0:?} may have letters, digits, '.', '_', '=' and '-' between single slashes only")]
    Prefix(String),
    #[error("{0:?}: nothing may follow mem://")]
    Memory(String),
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<StoreUrl, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| UrlError::Scheme(url.to_owned()))?;
        match scheme {
            "file" if rest.starts_with('/') => Ok(StoreUrl::Local(PathBuf::from(rest))),
            "file" => Err(UrlError::Relative(url.to_owned())),
            "mem" if rest.is_empty() => Ok(StoreUrl::Memory),
            "mem" => Err(UrlError::Memory(url.to_owned())),
            "s3" => bucket(url, rest).map(|(bucket, prefix)| StoreUrl::S3 { bucket, prefix }),
            "az" => bucket(url, rest).map(|(container, prefix)| StoreUrl::Azure { container, prefix }),
            _ => Err(UrlError::Scheme(url.to_owned())),
        }
    }
}

fn bucket(url: &str, rest: &str) -> Result<(String, String), UrlError> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if bucket.is_empty() || !bucket.bytes().all(allowed) {
        return Err(UrlError::Bucket(url.to_owned()));
    }
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    if !prefix.is_empty() && name::check(prefix).is_err() {
        return Err(UrlError::Prefix(url.to_owned()));
    }
    Ok((bucket.to_owned(), prefix.to_owned()))
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = |prefix: &str| if prefix.is_empty() { "" } else { "/" };
        match self {
            StoreUrl::Local(path) => write!(f, "file://{}", path.display()),
            StoreUrl::Memory => f.write_str("mem://"),
            StoreUrl::S3 { bucket, prefix } => write!(f, "s3://{bucket}{}{prefix}", slash(prefix)),
            StoreUrl::Azure { container, prefix } => write!(f, "az://{container}{}{prefix}", slash(prefix)),
        }
    }
}

impl StoreUrl {
    /// Opens the place. A directory is made if `create` says so; buckets and containers never are.
    pub fn open(&self, create: bool, world: &World) -> StoreResult<Arc<dyn Store>> {
        match self {
            StoreUrl::Local(path) => Ok(Arc::new(LocalStore::open(path, create)?)),
            StoreUrl::Memory => Ok(Arc::new(MemoryStore::new(world.clock.clone()))),
            StoreUrl::S3 { bucket, prefix } => below(CloudStore::s3(bucket)?, prefix),
            StoreUrl::Azure { container, prefix } => below(CloudStore::azure(container)?, prefix),
        }
    }
}

fn below(store: CloudStore, prefix: &str) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(PrefixStore::new(Arc::new(store), prefix)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_understood_and_written_back() {
        for url in ["file:///var/lib/tarn", "mem://", "s3://bucket", "s3://my.bucket/a/b", "az://container/x"] {
            let parsed: StoreUrl = url.parse().unwrap();
            assert_eq!(parsed.to_string(), url);
        }
        let slash: StoreUrl = "s3://bucket/a/".parse().unwrap();
        assert_eq!(slash, StoreUrl::S3 { bucket: "bucket".to_owned(), prefix: "a".to_owned() });
    }

    #[test]
    fn each_mistake_is_told() {
        let told = |url: &str| url.parse::<StoreUrl>().unwrap_err().to_string();
        assert!(told("/var/lib/tarn").contains("use file:///DIR"));
        assert!(told("gs://bucket").contains("use file:///DIR"));
        assert!(told("file://var/lib/tarn").contains("three slashes"));
        assert!(told("s3:///prefix").contains("names no bucket"));
        assert!(told("s3://").contains("names no bucket"));
        assert!(told("s3://user:secret@bucket/").contains("names no bucket"));
        assert!(told("az://container/a//b").contains("prefix"));
        assert!(told("s3://bucket/a b").contains("prefix"));
        assert!(told("mem://x").contains("nothing may follow"));
    }
}
