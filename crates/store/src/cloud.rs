//! S3 and Azure, through the `object_store` crate.
//!
//! - Nothing is tried again here: each call is one request, so each error says what became of that request. The
//!   [`retry`](crate::retry) decorator is for trying again.
//! - A `put` or `delete` without an answer is [`StoreError::Unknown`]; one that was answered with "slow down", "too many" or
//!   that never connected is [`StoreError::Unavailable`]. A read without an answer is `Unavailable`: it changed nothing.
//! - The version of an object is its ETag.
//! - The status of a reply is private to `object_store`; it is read from the text of its error.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{ClientConfigKey, HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode as TheirPutMode, PutOptions, PutPayload,
    RetryConfig, UpdateVersion,
};

use crate::contract::{ObjectInfo, PutMode, Store, StoreError, StoreResult, Version};
use crate::name;

/// How long one request may take, unless the environment says otherwise: a segment over a slow line.
const TIMEOUT: &str = "120s";

/// A bucket or container.
pub struct CloudStore {
    inner: Arc<dyn ObjectStore>,
}

impl fmt::Debug for CloudStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cloud({})", self.inner)
    }
}

impl CloudStore {
    /// Any backend of the crate; it must not retry by itself.
    pub fn new(inner: Arc<dyn ObjectStore>) -> CloudStore {
        CloudStore { inner }
    }

    /// The S3 bucket, with the crate's `AWS_*` environment variables (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
    /// `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`, ...).
    pub fn s3(bucket: &str) -> StoreResult<CloudStore> {
        let store = s3_builder(bucket).build().map_err(|error| misconfigured("s3", bucket, &error))?;
        Ok(CloudStore::new(Arc::new(store)))
    }

    /// The Azure container, with the crate's `AZURE_*` environment variables (`AZURE_STORAGE_ACCOUNT_NAME`,
    /// `AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_SAS_TOKEN`, `AZURE_STORAGE_USE_EMULATOR`, ...).
    pub fn azure(container: &str) -> StoreResult<CloudStore> {
        let store = azure_builder(container).build().map_err(|error| misconfigured("az", container, &error))?;
        Ok(CloudStore::new(Arc::new(store)))
    }
}

fn s3_builder(bucket: &str) -> AmazonS3Builder {
    let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(no_retry());
    match std::env::var_os("AWS_TIMEOUT") {
        Some(_) => builder,
        None => builder.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), TIMEOUT),
    }
}

fn azure_builder(container: &str) -> MicrosoftAzureBuilder {
    let builder = MicrosoftAzureBuilder::from_env().with_container_name(container).with_retry(no_retry());
    match std::env::var_os("AZURE_TIMEOUT") {
        Some(_) => builder,
        None => builder.with_config(AzureConfigKey::Client(ClientConfigKey::Timeout), TIMEOUT),
    }
}

fn no_retry() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn misconfigured(scheme: &str, bucket: &str, error: &Error) -> StoreError {
    StoreError::Denied(format!("{scheme}://{bucket} cannot be opened with this environment: {error}"))
}

/// What a call without an answer leaves behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Reads,
    Changes,
}

/// What an error of `object_store` says about `name`.
fn translate(name: &str, call: Call, error: &Error) -> StoreError {
    let told = describe(error);
    let missing = ["NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"];
    if missing.iter().any(|code| told.contains(code)) {
        return StoreError::Denied(format!("there is no such bucket or container: {told}"));
    }
    match error {
        Error::NotFound { .. } => return StoreError::NotFound(name.to_owned()),
        // Another conditional request on the object is under way; this one was not done.
        Error::AlreadyExists { .. } | Error::Precondition { .. } if told.contains("ConditionalRequestConflict") => {
            return StoreError::Unavailable(told);
        }
        Error::AlreadyExists { .. } => return StoreError::Exists(name.to_owned()),
        Error::Precondition { .. } | Error::NotModified { .. } => return StoreError::Changed(name.to_owned()),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => return StoreError::Denied(told),
        Error::InvalidPath { .. } | Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            return StoreError::Denied(told);
        }
        _ => {}
    }
    let not_done = match (status(&told), transport(error)) {
        (Some(507), _) => return StoreError::Full(told),
        (Some(416), _) => return StoreError::Range(name.to_owned(), 0..0),
        (Some(429 | 503), _) => true,
        // 408: the request did not arrive whole. 5xx: it may have been done. Other 4xx: refused.
        (Some(400..=499), _) => return StoreError::Denied(told),
        (Some(_), _) => false,
        (None, Some(kind)) => kind == HttpErrorKind::Connect,
        (None, None) => false,
    };
    if not_done || call == Call::Reads { StoreError::Unavailable(told) } else { StoreError::Unknown(told) }
}

/// The error and its causes, each said once.
fn describe(error: &Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !told.contains(&text) {
            told = format!("{told}: {text}");
        }
        cause = error.source();
    }
    told
}

/// The HTTP status that an error's text mentions.
fn status(told: &str) -> Option<u16> {
    let (_, rest) = told.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// How a request failed that has no reply.
fn transport(error: &Error) -> Option<HttpErrorKind> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

fn path(name: &str) -> StoreResult<Path> {
    name::check(name)?;
    Path::parse(name).map_err(|error| StoreError::Denied(error.to_string()))
}

fn version(tag: Option<String>) -> StoreResult<Version> {
    tag.map(Version).ok_or_else(|| StoreError::Denied("it gives no ETags and cannot be used".to_owned()))
}

fn info(meta: ObjectMeta) -> ObjectInfo {
    let modified_ms = meta.last_modified.timestamp_millis();
    ObjectInfo { name: meta.location.to_string(), size: meta.size, modified_ms }
}

#[async_trait]
impl Store for CloudStore {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        let path = path(name)?;
        let theirs = match &mode {
            PutMode::Overwrite => TheirPutMode::Overwrite,
            PutMode::Create => TheirPutMode::Create,
            PutMode::Replace(version) => {
                TheirPutMode::Update(UpdateVersion { e_tag: Some(version.0.clone()), version: None })
            }
        };
        let put = self.inner.put_opts(&path, PutPayload::from(bytes), PutOptions::from(theirs)).await;
        let done = put.map_err(|error| match (translate(name, Call::Changes, &error), &mode) {
            (StoreError::Changed(name), PutMode::Create) => StoreError::Exists(name),
            (StoreError::Exists(name) | StoreError::NotFound(name), PutMode::Replace(_)) => StoreError::Changed(name),
            (error, _) => error,
        })?;
        version(done.e_tag)
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        let path = path(name)?;
        let failed = |error| translate(name, Call::Reads, &error);
        let got = self.inner.get_opts(&path, GetOptions::default()).await.map_err(failed)?;
        let version = version(got.meta.e_tag.clone())?;
        let size = got.meta.size;
        let bytes = got.bytes().await.map_err(failed)?;
        if bytes.len() as u64 != size {
            return Err(StoreError::Unavailable(format!("{name}: {} of {size} bytes arrived", bytes.len())));
        }
        Ok((bytes, version))
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        let path = path(name)?;
        let outside = || StoreError::Range(name.to_owned(), range.clone());
        if range.start >= range.end {
            let size = self.head(name).await?.size;
            let within = range.start == range.end && range.end <= size;
            return if within { Ok(Bytes::new()) } else { Err(outside()) };
        }
        match self.inner.get_range(&path, range.clone()).await {
            Ok(bytes) if bytes.len() as u64 == range.end - range.start => Ok(bytes),
            Ok(_) => Err(outside()),
            Err(error) => match translate(name, Call::Reads, &error) {
                StoreError::Range(..) => Err(outside()),
                StoreError::NotFound(name) => Err(StoreError::NotFound(name)),
                // Some ways of asking beyond the end are answered with an error of the crate's own.
                error => match self.head(name).await {
                    Ok(info) if info.size < range.end => Err(outside()),
                    _ => Err(error),
                },
            },
        }
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        let path = path(name)?;
        let meta = self.inner.head(&path).await.map_err(|error| translate(name, Call::Reads, &error))?;
        Ok(info(meta))
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        let path = path(name)?;
        match self.inner.delete(&path).await.map_err(|error| translate(name, Call::Changes, &error)) {
            Err(StoreError::NotFound(_)) => Ok(()),
            result => result,
        }
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        name::check_prefix(prefix)?;
        // The crate lists below whole parts only.
        let above = prefix.rsplit_once('/').map(|(above, _)| Path::from(above));
        let listed: Result<Vec<ObjectMeta>, Error> = self.inner.list(above.as_ref()).try_collect().await;
        let listed = listed.map_err(|error| translate(prefix, Call::Reads, &error))?;
        let mut out: Vec<ObjectInfo> =
            listed.into_iter().map(info).filter(|info| info.name.starts_with(prefix)).collect();
        out.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: HttpErrorKind) -> Error {
        let source = HttpError::new(kind, std::io::Error::other("lost"));
        Error::Generic { store: "S3", source: Box::new(source) }
    }

    fn answered(status: &str) -> Error {
        let source = format!("Server returned non-2xx status code: {status}: body");
        Error::Generic { store: "S3", source: source.into() }
    }

    #[test]
    fn a_request_may_take_as_long_as_a_segment_does_over_a_slow_line() {
        let told = [
            s3_builder("bucket").get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::Timeout)),
            azure_builder("container").get_config_value(&AzureConfigKey::Client(ClientConfigKey::Timeout)),
        ];
        for told in told {
            assert_eq!(told.expect("a timeout"), TIMEOUT);
        }
    }

    #[test]
    fn a_lost_reply_to_a_change_is_unknown() {
        for kind in [HttpErrorKind::Timeout, HttpErrorKind::Interrupted, HttpErrorKind::Request] {
            assert!(matches!(translate("x", Call::Changes, &failed(kind)), StoreError::Unknown(_)));
            assert!(matches!(translate("x", Call::Reads, &failed(kind)), StoreError::Unavailable(_)));
        }
        let connect = translate("x", Call::Changes, &failed(HttpErrorKind::Connect));
        assert!(matches!(connect, StoreError::Unavailable(_)));
    }

    #[test]
    fn a_status_says_what_was_done() {
        let put = |status| translate("x", Call::Changes, &answered(status));
        assert!(matches!(put("503 Service Unavailable"), StoreError::Unavailable(_)));
        assert!(matches!(put("429 Too Many Requests"), StoreError::Unavailable(_)));
        assert!(matches!(put("500 Internal Server Error"), StoreError::Unknown(_)));
        assert!(matches!(put("400 Bad Request"), StoreError::Denied(_)));
        assert!(matches!(put("507 Insufficient Storage"), StoreError::Full(_)));
    }

    #[test]
    fn a_missing_bucket_is_not_a_missing_object() {
        let source = "Server returned non-2xx status code: 404 Not Found: <Code>NoSuchBucket</Code>";
        let error = Error::NotFound { path: "x".to_owned(), source: source.into() };
        assert!(matches!(translate("x", Call::Reads, &error), StoreError::Denied(_)));
    }

    #[test]
    fn competing_conditions_are_worth_another_try() {
        let source = "status code: 409 Conflict: <Code>ConditionalRequestConflict</Code>";
        let error = Error::AlreadyExists { path: "x".to_owned(), source: source.into() };
        assert!(matches!(translate("x", Call::Changes, &error), StoreError::Unavailable(_)));
    }
}
