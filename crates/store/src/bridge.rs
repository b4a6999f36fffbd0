//! Our store as an `object_store::ObjectStore`, for the metadata engine, which is written against that.
//!
//! - Every object ends in a [trailer](TRAILER_SIZE) with the identity of the `put` that wrote it, so that a conditional
//!   `put` whose reply was lost recognises itself: it then succeeds instead of losing to itself.
//! - Sizes, ranges and bytes on this side are without the trailer.
//! - An error that another try cannot mend becomes `NotSupported`, the one kind the engine never tries again on; the
//!   [`StoreError`] is its source.
//! - Once [cut](Bridge::cut), a bridge lets nothing through, in either direction: what is left running behind it ends.
//!   Once [sealed](Bridge::seal), it lets only reads through.
//! - A bridge that follows a [`Sequence`] shows nothing of it once its newest object was taken away, and writes nothing over it.
//! - What is named as SlateDB's numbered objects are, by fewer or more digits, is not shown: it would take them for its own.
//! - Sizes of `.sst` objects are remembered; they are written once under a name that is never used again.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, CopyMode, CopyOptions, Error, Extensions, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode as TheirPutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result, UploadPart,
};
use parking_lot::Mutex;

use crate::contract::{ObjectInfo, PutMode, Store, StoreError, Version};
use crate::sequence::{self, Missed, Sequence};

/// Bytes after every object: the identity of its `put` in 28 bytes, zeros after it, and [`TRAILER_MAGIC`].
pub const TRAILER_SIZE: u64 = 32;
/// Ends the trailer and names its version.
pub const TRAILER_MAGIC: [u8; 4] = *b"TNb1";
const IDENTITY_SIZE: usize = 28;

/// How SlateDB hands over the identity of a conditional put.
const PUT_ID_ATTRIBUTE: &str = "slatedbputid";
/// Remembered sizes; an entry is some 150 bytes.
const SIZES_MAX: usize = 16_384;

type Identity = [u8; IDENTITY_SIZE];

/// A store seen as an `object_store::ObjectStore`.
pub struct Bridge {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    follows: Option<Arc<Sequence>>,
    sizes: Mutex<BTreeMap<String, ObjectInfo>>,
    cut: AtomicBool,
    sealed: AtomicBool,
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bridge({:?})", self.inner.store)
    }
}

impl fmt::Display for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Bridge {
    pub fn new(store: Arc<dyn Store>) -> Bridge {
        let (follows, sizes, cut, sealed) = Default::default();
        Bridge { inner: Arc::new(Inner { store, follows, sizes, cut, sealed }) }
    }

    /// As [`Bridge::new`]; what is seen of `sequence` is remembered there, and missed when it is taken away.
    pub fn following(store: Arc<dyn Store>, sequence: Arc<Sequence>) -> Bridge {
        let (sizes, cut, sealed) = Default::default();
        Bridge { inner: Arc::new(Inner { store, follows: Some(sequence), sizes, cut, sealed }) }
    }

    /// Lets no write through from now on; each ends with an error that is not tried again.
    pub fn seal(&self) {
        self.inner.sealed.store(true, Ordering::SeqCst);
    }

    /// Lets nothing through from now on; every call ends with an error that is not tried again.
    pub fn cut(&self) {
        self.inner.cut.store(true, Ordering::SeqCst);
    }
}

impl Inner {
    fn passable(&self) -> Result<()> {
        if self.cut.load(Ordering::SeqCst) {
            return Err(final_error(StoreError::Unavailable("this use of the store has ended".to_owned())));
        }
        Ok(())
    }

    fn writable(&self) -> Result<()> {
        if self.sealed.load(Ordering::SeqCst) {
            return Err(final_error(StoreError::Unavailable("this use of the store may only read".to_owned())));
        }
        self.passable()
    }

    /// The sequence that the object belongs to, its number in it, and the highest that was seen until now.
    fn followed(&self, name: &str) -> Option<(&Sequence, u64, u64)> {
        let sequence = self.follows.as_deref()?;
        Some((sequence, sequence.number(name)?, sequence.seen()))
    }

    /// Notes that the object is there, or misses it if it must be.
    async fn noted<T>(&self, followed: Option<(&Sequence, u64, u64)>, read: Result<T, StoreError>) -> Result<T> {
        match (followed, read) {
            (Some((sequence, number, seen)), Err(error @ StoreError::NotFound(_))) if number == seen => {
                Err(self.absent(sequence, seen, error).await)
            }
            (Some((sequence, number, _)), Ok(read)) => {
                sequence.see(number);
                Ok(read)
            }
            (_, read) => read.map_err(translate),
        }
    }

    /// What is said of an object of a sequence that was seen and is not there: `garbage` if the newest is, for then it was
    /// taken away as such.
    async fn absent(&self, sequence: &Sequence, seen: u64, garbage: StoreError) -> Error {
        match self.store.list(sequence.prefix()).await {
            Ok(listed) if sequence.newest(listed.iter().map(|info| info.name.as_str())) < seen => {
                missed(&sequence.name(seen))
            }
            Ok(_) => translate(garbage),
            Err(error) => translate(error),
        }
    }

    /// Size without the trailer, and time.
    async fn info(&self, name: &str) -> Result<ObjectInfo> {
        if let Some(info) = self.sizes.lock().get(name) {
            return Ok(info.clone());
        }
        let followed = self.followed(name);
        let info = plain(self.noted(followed, self.store.head(name).await).await?)?;
        if name.ends_with(".sst") {
            let mut sizes = self.sizes.lock();
            while sizes.len() >= SIZES_MAX {
                sizes.pop_first();
            }
            sizes.insert(name.to_owned(), info.clone());
        }
        Ok(info)
    }

    async fn put(&self, name: &str, payload: &PutPayload, mode: PutMode, identity: Identity) -> Result<PutResult> {
        self.writable()?;
        let followed = self.followed(name);
        if let Some((sequence, number, seen)) = followed
            && number <= seen
        {
            // Its place is taken, perhaps by this very put, or it was.
            return match self.identity(name).await.map_err(translate)? {
                Some(present) if present == identity && identity != [0; IDENTITY_SIZE] => Ok(put_result(None)),
                Some(_) => Err(translate(StoreError::Exists(name.to_owned()))),
                None => Err(self.absent(sequence, seen, StoreError::Exists(name.to_owned())).await),
            };
        }
        let put = self.put_anew(name, payload, mode, identity).await;
        if let (Some((sequence, number, _)), Ok(_)) = (followed, &put) {
            sequence.see(number);
        }
        put
    }

    async fn put_anew(&self, name: &str, payload: &PutPayload, mode: PutMode, identity: Identity) -> Result<PutResult> {
        self.sizes.lock().remove(name);
        let conditional = mode != PutMode::Overwrite;
        let put = self.store.put(name, with_trailer(payload, identity), mode).await;
        self.passable()?;
        match put {
            Ok(version) => Ok(put_result(Some(version))),
            // Perhaps it was this very put, a moment ago.
            Err(error @ (StoreError::Exists(_) | StoreError::Changed(_) | StoreError::Unknown(_)))
                if conditional && identity != [0; IDENTITY_SIZE] =>
            {
                match self.identity(name).await {
                    Ok(Some(present)) if present == identity => Ok(put_result(None)),
                    Ok(_) => Err(translate(error)),
                    Err(unread) => Err(translate(StoreError::Unknown(format!("{error}; then: {unread}")))),
                }
            }
            Err(error) => Err(translate(error)),
        }
    }

    /// Which put wrote the object that is there.
    async fn identity(&self, name: &str) -> Result<Option<Identity>, StoreError> {
        let size = match self.store.head(name).await {
            Ok(info) => info.size,
            Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let from = size.saturating_sub(TRAILER_SIZE);
        let trailer = self.store.get_range(name, from..size).await?;
        Ok(trailer.first_chunk::<IDENTITY_SIZE>().copied())
    }

    async fn get(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.passable()?;
        let name = location.as_ref();
        if options.head {
            let meta = meta(location, &self.info(name).await?, None);
            options.check_preconditions(&meta)?;
            let range = 0..meta.size;
            return Ok(get_result(meta, Bytes::new(), range));
        }
        let Some(range) = &options.range else {
            let followed = self.followed(name);
            let (bytes, version) = self.noted(followed, self.store.get(name).await).await?;
            let bytes = without_trailer(name, bytes)?;
            let size = bytes.len() as u64;
            let info = ObjectInfo { name: name.to_owned(), size, modified_ms: 0 };
            let meta = meta(location, &info, Some(version));
            options.check_preconditions(&meta)?;
            return Ok(get_result(meta, bytes, 0..size));
        };
        let info = self.info(name).await?;
        let meta = meta(location, &info, None);
        options.check_preconditions(&meta)?;
        let range = within(range, info.size);
        let Some(range) = range else {
            return Err(final_error(StoreError::Range(name.to_owned(), info.size..info.size)));
        };
        let bytes = self.store.get_range(name, range.clone()).await.map_err(translate)?;
        Ok(get_result(meta, bytes, range))
    }

    async fn list(&self, prefix: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        self.passable()?;
        let prefix = prefix.map(|path| path.as_ref()).filter(|path| !path.is_empty());
        let prefix = prefix.map_or(String::new(), |path| format!("{path}/"));
        let follows = self.follows.as_deref().filter(|sequence| sequence.lies_below(&prefix));
        let seen = follows.map_or(0, Sequence::seen);
        let listed = self.store.list(&prefix).await.map_err(translate)?;
        if let Some(sequence) = follows {
            let newest = sequence.newest(listed.iter().map(|info| info.name.as_str()));
            if newest < seen {
                return Err(missed(&sequence.name(seen)));
            }
            sequence.see(newest);
        }
        let mut out = Vec::new();
        for info in listed {
            // What is shorter than a trailer was not written here.
            if !sequence::is_foreign(&info.name)
                && let Ok(info) = plain(info)
            {
                out.push(meta(&Path::from(info.name.as_str()), &info, None));
            }
        }
        Ok(out)
    }

    async fn delete(&self, location: &Path) -> Result<()> {
        self.writable()?;
        self.sizes.lock().remove(location.as_ref());
        self.store.delete(location.as_ref()).await.map_err(translate)
    }
}

fn with_trailer(payload: &PutPayload, identity: Identity) -> Bytes {
    let mut out = Vec::with_capacity(payload.content_length() + TRAILER_SIZE as usize);
    for part in payload {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(&identity);
    out.extend_from_slice(&TRAILER_MAGIC);
    Bytes::from(out)
}

fn without_trailer(name: &str, bytes: Bytes) -> Result<Bytes> {
    match bytes.len().checked_sub(TRAILER_SIZE as usize) {
        Some(size) if bytes.ends_with(&TRAILER_MAGIC) => Ok(bytes.slice(..size)),
        _ => Err(damaged(name)),
    }
}

fn plain(mut info: ObjectInfo) -> Result<ObjectInfo> {
    info.size = info.size.checked_sub(TRAILER_SIZE).ok_or_else(|| damaged(&info.name))?;
    Ok(info)
}

fn damaged(name: &str) -> Error {
    final_error(StoreError::Damaged(name.to_owned(), "its trailer is missing".to_owned()))
}

/// The part of an object of `size` bytes that is asked for; `None` if there is none.
fn within(range: &GetRange, size: u64) -> Option<Range<u64>> {
    let range = match range {
        GetRange::Bounded(range) => range.start..range.end.min(size),
        GetRange::Offset(from) => *from..size,
        GetRange::Suffix(count) => size.saturating_sub(*count)..size,
    };
    (range.start < range.end).then_some(range)
}

fn identity_in(attributes: &Attributes) -> Identity {
    let mut identity = [0; IDENTITY_SIZE];
    let found = attributes.iter().find_map(|(key, value)| match key {
        Attribute::Metadata(key) if key == PUT_ID_ATTRIBUTE => Some(value.as_ref().as_bytes()),
        _ => None,
    });
    if let Some(given) = found.filter(|given| given.len() <= IDENTITY_SIZE) {
        identity[..given.len()].copy_from_slice(given);
    }
    identity
}

fn put_result(version: Option<Version>) -> PutResult {
    PutResult { e_tag: version.map(|version| version.0), version: None, extensions: Extensions::new() }
}

fn meta(location: &Path, info: &ObjectInfo, version: Option<Version>) -> ObjectMeta {
    let last_modified = DateTime::<Utc>::from_timestamp_millis(info.modified_ms).unwrap_or(DateTime::UNIX_EPOCH);
    let e_tag = version.map(|version| version.0);
    ObjectMeta { location: location.clone(), last_modified, size: info.size, e_tag, version: None }
}

fn get_result(meta: ObjectMeta, bytes: Bytes, range: Range<u64>) -> GetResult {
    let payload = GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed());
    GetResult { payload, meta, range, attributes: Attributes::new(), extensions: Extensions::new() }
}

/// Not worth another try: it is to be put back.
fn missed(name: &str) -> Error {
    Error::NotSupported { source: Box::new(Missed(name.to_owned())) }
}

/// An error that is not worth another try.
fn final_error(error: StoreError) -> Error {
    Error::NotSupported { source: Box::new(error) }
}

fn translate(error: StoreError) -> Error {
    match error {
        StoreError::NotFound(ref path) => Error::NotFound { path: path.clone(), source: Box::new(error) },
        StoreError::Exists(ref path) => Error::AlreadyExists { path: path.clone(), source: Box::new(error) },
        StoreError::Changed(ref path) => Error::Precondition { path: path.clone(), source: Box::new(error) },
        StoreError::Unavailable(_) | StoreError::Unknown(_) => {
            Error::Generic { store: "tarn", source: Box::new(error) }
        }
        StoreError::Range(..) | StoreError::Damaged(..) | StoreError::Denied(_) | StoreError::Full(_) => {
            final_error(error)
        }
    }
}

#[async_trait]
impl ObjectStore for Bridge {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let mode = match options.mode {
            TheirPutMode::Overwrite => PutMode::Overwrite,
            TheirPutMode::Create => PutMode::Create,
            TheirPutMode::Update(version) => match version.e_tag {
                Some(tag) => PutMode::Replace(Version(tag)),
                None => return Err(final_error(StoreError::Changed(location.to_string()))),
            },
        };
        self.inner.put(location.as_ref(), &payload, mode, identity_in(&options.attributes)).await
    }

    async fn put_multipart_opts(&self, location: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(Upload { inner: self.inner.clone(), location: location.clone(), parts: Vec::new() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let inner = self.inner.clone();
        let deleted = locations.and_then(move |location| {
            let inner = inner.clone();
            async move { inner.delete(&location).await.map(|()| location) }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let inner = self.inner.clone();
        let prefix = prefix.cloned();
        let listed = async move { inner.list(prefix.as_ref()).await.map(|list| stream::iter(list).map(Ok)) };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let above = prefix.map(|path| path.as_ref()).filter(|path| !path.is_empty());
        let skip = above.map_or(0, |path| path.len() + 1);
        let mut result = ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Extensions::new() };
        for meta in self.inner.list(prefix).await? {
            let name = meta.location.as_ref();
            match name[skip..].find('/') {
                Some(at) => {
                    let common = Path::from(&name[..skip + at]);
                    if result.common_prefixes.last() != Some(&common) {
                        result.common_prefixes.push(common);
                    }
                }
                None => result.objects.push(meta),
            }
        }
        Ok(result)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let bytes = self.inner.get(from, GetOptions::default()).await?.bytes().await?;
        let mode = match options.mode {
            CopyMode::Overwrite => PutMode::Overwrite,
            CopyMode::Create => PutMode::Create,
        };
        self.inner.put(to.as_ref(), &PutPayload::from(bytes), mode, [0; IDENTITY_SIZE]).await.map(drop)
    }
}

/// A multipart upload: parts are kept until the end and written as one object.
struct Upload {
    inner: Arc<Inner>,
    location: Path,
    parts: Vec<Bytes>,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({})", self.location)
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.parts.extend(data);
        Box::pin(async { Ok(()) })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let payload = self.parts.drain(..).collect::<PutPayload>();
        self.inner.put(self.location.as_ref(), &payload, PutMode::Overwrite, [0; IDENTITY_SIZE]).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.parts.clear();
        Ok(())
    }
}
