//! Settings: what the command line, the configuration file and the defaults come to.
//!
//! - A flag beats the file, the file beats the default. Settings are plain data.
//! - Every default has its reason beside it.
//! - Nothing is created or opened here.

mod file;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use file::File;
use tarn_engine::OVERLAY_LEAST;
use tarn_store::shape::Profile;
use tarn_store::url::StoreUrl;

use crate::exit::{Outcome, Stop};
use crate::{memory, sizes};

/// The port of NFS, and so of every client's default.
pub const NFS_PORT: u16 = 2049;
/// The port of status and metrics.
pub const ADMIN_PORT: u16 = 9120;

/// What was given on the command line of `tarn serve`.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    pub data: Option<PathBuf>,
    pub log: Option<PathBuf>,
    pub store: Option<String>,
    pub key_file: Option<PathBuf>,
    pub nfs: Option<String>,
    pub admin: Option<String>,
    pub portmap: bool,
    pub config: Option<PathBuf>,
    pub unsafe_log: bool,
    pub take: bool,
    pub accept_loss: bool,
}

/// Everything that a server is told.
#[derive(Clone, Debug)]
pub struct Settings {
    pub data: PathBuf,
    pub store: StorePlace,
    /// None: `key` in the data directory.
    pub key_file: Option<PathBuf>,
    pub log_dir: PathBuf,
    /// Bytes; none: a tenth of the log's disk, at most 8 GiB.
    pub log_size: Option<u64>,
    pub unsafe_log: bool,
    pub nfs: SocketAddr,
    pub portmap: bool,
    /// Threads that serve.
    pub cores: usize,
    /// An operation that takes longer is reported.
    pub slow_operation: Duration,
    pub admin: Option<SocketAddr>,
    /// Bytes of decoded file data kept.
    pub cache_data: u64,
    /// Bytes of inodes, names and pointers kept.
    pub cache_names: u64,
    /// Bytes of the dedupe index.
    pub cache_dedupe: u64,
    /// Bytes of changes in memory that the store does not hold yet.
    pub checkpoint_memory: u64,
    /// Fill of the log at which a checkpoint starts.
    pub log_fill_percent: u8,
    pub level: String,
    /// For measurements: the store is slowed down to this.
    pub store_shape: Option<Profile>,
    /// Claim a store that another node left open.
    pub take: bool,
    /// Open without the log that the store was left with.
    pub accept_loss: bool,
}

/// Where objects live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePlace {
    pub url: StoreUrl,
    /// It is `objects` in the data directory, because nobody said otherwise.
    pub is_embedded: bool,
}

impl StorePlace {
    /// The place as its operator would write it.
    pub fn show(&self) -> String {
        self.url.to_string()
    }

    fn parse(text: &str) -> Outcome<StorePlace> {
        let bad = |reason: String| Stop::StoreUrl { url: text.to_owned(), reason };
        match text.parse().map_err(|error: tarn_store::url::UrlError| bad(error.to_string()))? {
            StoreUrl::Memory => Err(bad("memory does not survive the process; use a directory or a bucket".to_owned())),
            url => Ok(StorePlace { url, is_embedded: false }),
        }
    }
}

impl Settings {
    /// Reads the file that `flags` name, if any, and joins both with the defaults.
    pub fn gather(flags: &Flags) -> Outcome<Settings> {
        let file = match &flags.config {
            Some(path) => File::read(path)?,
            None => File::default(),
        };
        Settings::join(flags, &file, memory::limit())
    }

    /// `memory` is the limit in bytes that cache sizes are taken from.
    pub fn join(flags: &Flags, file: &File, memory: u64) -> Outcome<Settings> {
        let data = absolute(flags.data.clone().or(file.data.clone()).unwrap_or_else(default_data))?;
        let store = match flags.store.as_deref().or(file.store.as_deref()) {
            Some(url) => StorePlace::parse(url)?,
            None => StorePlace { url: StoreUrl::Local(data.join("objects")), is_embedded: true },
        };
        let log_dir = match flags.log.clone().or(file.log.dir.clone()) {
            Some(dir) => absolute(dir)?,
            None => data.join("log"),
        };
        let key_file = flags.key_file.clone().or(file.key_file.clone()).map(absolute).transpose()?;
        // Loopback only: an export to a network is a decision that somebody takes.
        let nfs = flags.nfs.as_deref().or(file.nfs.listen.as_deref());
        let nfs = nfs.map_or(Ok(loopback(NFS_PORT)), |text| parse_address("nfs.listen", text, NFS_PORT))?;
        // A quarter of the memory limit each for data and names leaves half to changes, the store's client and
        // the kernel's socket buffers.
        let quarter = memory / 4;
        let settings = Settings {
            store,
            log_dir,
            key_file,
            log_size: size("log.size", &file.log.size)?.map(log_size_in_range).transpose()?,
            unsafe_log: flags.unsafe_log || file.log.unsafe_place.unwrap_or(false),
            nfs,
            portmap: flags.portmap || file.nfs.portmap.unwrap_or(false),
            cores: cores(file.nfs.cores)?,
            // Ten times the slowest write of a healthy disk under load: what takes longer is worth a line.
            slow_operation: span("nfs.slow_operation", &file.nfs.slow_operation)?.unwrap_or(Duration::from_secs(1)),
            admin: admin(flags, file)?,
            cache_data: at_least("cache.data", &file.cache.data, CACHE_MIN)?.unwrap_or(quarter / 2),
            cache_names: at_least("cache.names", &file.cache.names, CACHE_MIN)?.unwrap_or(quarter / 2),
            // Used only where a volume has dedupe on: some 200,000 records for each GiB of memory.
            cache_dedupe: size("cache.dedupe", &file.cache.dedupe)?.unwrap_or(memory / 32),
            // Changes beyond it are read back from the log.
            checkpoint_memory: at_least("checkpoint.memory", &file.checkpoint.memory, OVERLAY_LEAST)?
                .unwrap_or((memory / 8).clamp(64 << 20, 4 << 30)),
            log_fill_percent: percent("checkpoint.log_fill_percent", file.checkpoint.log_fill_percent)?,
            level: level(file.report.level.as_deref().unwrap_or("info"))?,
            store_shape: file.measure.store_shape.as_deref().map(store_shape).transpose()?,
            take: flags.take,
            accept_loss: flags.accept_loss,
            data,
        };
        settings.fits(file, memory)?;
        Ok(settings)
    }

    /// Whether `memory` holds the caches and the changes, where the configuration gives a size of them.
    fn fits(&self, file: &File, memory: u64) -> Outcome<()> {
        let parts = [
            ("cache.data", &file.cache.data, self.cache_data),
            ("cache.names", &file.cache.names, self.cache_names),
            ("cache.dedupe", &file.cache.dedupe, self.cache_dedupe),
            ("checkpoint.memory", &file.checkpoint.memory, self.checkpoint_memory),
        ];
        let all = parts.iter().fold(0u64, |sum, (.., bytes)| sum.saturating_add(*bytes));
        let given = parts.iter().filter(|(_, given, _)| given.is_some());
        match given.max_by_key(|(.., bytes)| *bytes) {
            Some((what, _, bytes)) if all > memory => Err(Stop::ValueInvalid {
                what,
                value: sizes::show_size(*bytes),
                reason: format!(
                    "cache.data, cache.names, cache.dedupe and checkpoint.memory would take {} together, and this machine or \
                     its control group has {}; make it smaller",
                    sizes::show_size(all),
                    sizes::show_size(memory)
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Where the master key lies if it is in a file.
    pub fn key_path(&self) -> PathBuf {
        self.key_file.clone().unwrap_or_else(|| self.data.join("key"))
    }
}

/// The data directory that every command uses unless told otherwise.
pub fn default_data() -> PathBuf {
    PathBuf::from("./tarn-data")
}

/// `path` seen from the root, without touching it.
pub fn absolute(path: PathBuf) -> Outcome<PathBuf> {
    std::path::absolute(&path)
        .map(|path| clean(&path))
        .map_err(|error| Stop::PathUnusable { path, reason: error.to_string() })
}

fn clean(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// "ADDR:PORT", "[V6]:PORT", "ADDR" or ":PORT".
fn parse_address(what: &'static str, text: &str, port: u16) -> Outcome<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok(loopback(port));
    }
    Err(Stop::ValueInvalid {
        what,
        value: format!("{text:?}"),
        reason: "write ADDRESS:PORT, such as 127.0.0.1:2049 or [::]:2049".to_owned(),
    })
}

fn admin(flags: &Flags, file: &File) -> Outcome<Option<SocketAddr>> {
    match flags.admin.as_deref().or(file.admin.listen.as_deref()) {
        // Without a word it is off: two servers on one machine must not quarrel over a port nobody asked for.
        None | Some("off") => Ok(None),
        Some(text) => parse_address("admin.listen", text, ADMIN_PORT).map(Some),
    }
}

fn size(what: &'static str, text: &Option<String>) -> Outcome<Option<u64>> {
    let Some(text) = text else { return Ok(None) };
    let bytes = sizes::parse_size(text).map_err(|reason| Stop::ValueInvalid { what, value: text.clone(), reason })?;
    Ok(Some(bytes))
}

/// Least size of a cache: one record of the largest size.
const CACHE_MIN: u64 = 1 << 20;

fn at_least(what: &'static str, text: &Option<String>, least: u64) -> Outcome<Option<u64>> {
    match size(what, text)? {
        Some(bytes) if bytes < least => Err(Stop::ValueInvalid {
            what,
            value: sizes::show_size(bytes),
            reason: format!("use at least {}", sizes::show_size(least)),
        }),
        bytes => Ok(bytes),
    }
}

/// Least size of a log: room for a few of the largest entries beside a checkpoint in progress.
pub const LOG_SIZE_MIN: u64 = 64 << 20;

fn log_size_in_range(bytes: u64) -> Outcome<u64> {
    if (LOG_SIZE_MIN..=(1 << 43)).contains(&bytes) {
        return Ok(bytes);
    }
    Err(Stop::ValueInvalid {
        what: "log.size",
        value: sizes::show_size(bytes),
        reason: "use 64 MiB to 8 TiB".to_owned(),
    })
}

fn span(what: &'static str, text: &Option<String>) -> Outcome<Option<Duration>> {
    let Some(text) = text else { return Ok(None) };
    let span = sizes::parse_span(text).map_err(|reason| Stop::ValueInvalid { what, value: text.clone(), reason })?;
    Ok(Some(span))
}

fn cores(given: Option<usize>) -> Outcome<usize> {
    match given {
        // One for each core that the process may use: a request is served on the core that received it.
        None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        Some(count @ 1..=1024) => Ok(count),
        Some(count) => {
            Err(Stop::ValueInvalid { what: "nfs.cores", value: count.to_string(), reason: "use 1 to 1024".to_owned() })
        }
    }
}

fn percent(what: &'static str, given: Option<u8>) -> Outcome<u8> {
    // More than half is left for what arrives while the checkpoint runs.
    match given.unwrap_or(40) {
        percent @ 5..=90 => Ok(percent),
        percent => Err(Stop::ValueInvalid { what, value: percent.to_string(), reason: "use 5 to 90".to_owned() }),
    }
}

fn level(text: &str) -> Outcome<String> {
    match text {
        "error" | "warn" | "info" | "debug" | "trace" => Ok(text.to_owned()),
        _ => Err(Stop::ValueInvalid {
            what: "report.level",
            value: format!("{text:?}"),
            reason: "use error, warn, info, debug or trace".to_owned(),
        }),
    }
}

fn store_shape(text: &str) -> Outcome<Profile> {
    text.parse().map_err(|()| Stop::ValueInvalid {
        what: "measure.store_shape",
        value: format!("{text:?}"),
        reason: format!("use {}; leave it out unless you measure", Profile::ALL.map(Profile::label).join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(text: &str) -> Outcome<Settings> {
        Settings::join(&Flags::default(), &File::parse(text).map_err(Stop::Internal)?, 8 << 30)
    }

    #[test]
    fn what_nests_deeper_than_any_stack_is_refused_with_its_line() {
        for open in ["portmap = = { x = [\n", "a = {", "["] {
            let refused = File::parse(&open.repeat(50_000)).unwrap_err();
            assert!(refused.contains("more than 64 brackets are open"), "{refused}");
        }
        assert!(File::parse(&"portmap = { x = [\n".repeat(64)).unwrap_err().starts_with("line 33: "));
    }

    #[test]
    fn without_a_word_everything_is_here_and_on_loopback() {
        let settings = join("").unwrap();
        assert!(settings.data.is_absolute() && settings.data.ends_with("tarn-data"));
        assert_eq!(settings.store.url, StoreUrl::Local(settings.data.join("objects")));
        assert!(settings.store.is_embedded);
        assert_eq!(settings.nfs, "127.0.0.1:2049".parse().unwrap());
        assert_eq!(settings.cache_data + settings.cache_names, 2 << 30);
        assert_eq!(settings.admin, None);
    }

    #[test]
    fn a_flag_beats_the_file() {
        let file = File::parse("store = 's3://b/p'\n[nfs]\nlisten = '0.0.0.0:1'").unwrap();
        let flags = Flags { nfs: Some("[::1]:2".into()), ..Flags::default() };
        let settings = Settings::join(&flags, &file, 8 << 30).unwrap();
        assert_eq!(settings.nfs, "[::1]:2".parse().unwrap());
        assert_eq!(settings.store.show(), "s3://b/p");
        assert!(!settings.store.is_embedded);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_key() {
        for (text, word) in [
            ("[log]\nsize = '8GB'", "log.size"),
            ("[log]\nsize = '1MiB'", "log.size"),
            ("[nfs]\nlisten = 'here'", "nfs.listen"),
            ("[nfs]\ncores = 0", "nfs.cores"),
            ("[nfs]\nslow_operation = '1'", "nfs.slow_operation"),
            ("[cache]\ndata = '0'", "cache.data"),
            ("[cache]\nnames = '1KiB'", "cache.names"),
            ("[cache]\nnames = '1TiB'", "cache.names"),
            ("[cache]\ndata = '5GiB'\ndedupe = '16383PiB'", "cache.dedupe"),
            ("[checkpoint]\nmemory = '31MiB'", "checkpoint.memory"),
            ("[checkpoint]\nlog_fill_percent = 99", "checkpoint.log_fill_percent"),
            ("[report]\nlevel = 'loud'", "report.level"),
            ("[measure]\nstore_shape = 'slow'", "measure.store_shape"),
        ] {
            let stop = join(text).unwrap_err();
            assert_eq!(stop.code(), 12, "{stop}");
            assert!(stop.to_string().starts_with(word), "{stop}");
        }
        for url in ["objects", "file://objects", "s3://", "ftp://x", "mem://"] {
            assert_eq!(join(&format!("store = '{url}'")).unwrap_err().code(), 50);
        }
    }
}
