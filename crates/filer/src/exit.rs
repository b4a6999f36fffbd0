//! Every reason for which `tarn` stops, its text and its exit code.
//!
//! - One line, which says what is wrong and what to do; no line break, no debug output.
//! - A code means one thing for ever: scripts and units rely on it. `docs/config.md` lists them.
//! - Whatever stops a start is found before anything is created or changed.

use std::path::PathBuf;

/// Why the program ends, other than because it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    #[error("something failed that should not: {0}; please report it")]
    Internal(String),

    #[error("cannot run the load generator {0}; put tarn-bench beside tarn or into PATH")]
    NoBench(String),

    // --- configuration: 10 to 19 ---
    #[error("cannot read the configuration {path}: {reason}; correct the path given to --config")]
    ConfigUnreadable { path: PathBuf, reason: String },
    #[error("the configuration {path} has an unknown or malformed entry: {reason}; docs/config.md lists every key")]
    ConfigInvalid { path: PathBuf, reason: String },
    #[error("{what} cannot be {value}: {reason}")]
    ValueInvalid { what: &'static str, value: String, reason: String },

    // --- addresses: 20 to 29 ---
    #[error("{what} address {address} is in use by another program; stop that one or choose another with {flag}")]
    AddressInUse { what: &'static str, address: String, flag: &'static str },
    #[error(
        "{what} address {address} is not permitted to this user; use a port above 1023 with {flag}, or start as root"
    )]
    AddressNotPermitted { what: &'static str, address: String, flag: &'static str },
    #[error("port 111 of {address} is not permitted to this user; start as root, or leave --portmap out")]
    PortmapNotPermitted { address: String },
    #[error("{what} address {address} cannot be used: {reason}; choose another with {flag}")]
    AddressUnusable { what: &'static str, address: String, flag: &'static str, reason: String },

    // --- data directory and log: 30 to 39 ---
    #[error("no permission for {path}; give this user access to it or choose another with {flag}")]
    PathNotPermitted { path: PathBuf, flag: &'static str },
    #[error("another tarn (process {pid}) serves {path}; stop it first, or choose another directory with --data")]
    SecondServer { path: PathBuf, pid: String },
    #[error("{path} was written by a newer tarn (format {found}); use that version or a later one")]
    NewerFormat { path: PathBuf, found: String },
    #[error(
        "the log may not be on {kind} ({path}): it would not survive a power loss; choose a local disk with --log, or accept the loss with --unsafe-log"
    )]
    LogUnsafe { path: PathBuf, kind: &'static str },
    #[error("the log needs {needed} on {path}, where {free} are free; make room or set log.size smaller")]
    LogSpace { path: PathBuf, needed: String, free: String },
    #[error("cannot use {path}: {reason}")]
    PathUnusable { path: PathBuf, reason: String },
    #[error("the log {path} is damaged: {reason}; see `tarn log verify`")]
    LogDamaged { path: PathBuf, reason: String },

    // --- keys: 40 to 49 ---
    #[error(
        "cannot read the key file {path}: {reason}; give this user access to it, or make it with `tarn key import`"
    )]
    KeyUnreadable { path: PathBuf, reason: String },
    #[error("the key file {path} can be read by others (mode {mode:04o}); protect it with `chmod 600 {path}`")]
    KeyExposed { path: PathBuf, mode: u32 },
    #[error("the key from {source_of_key} does not open this store; give the key that it was created with")]
    KeyWrong { source_of_key: String },
    #[error(
        "{store} is new and no key was given for it; give one with --key-file PATH (made there) or TARN_PASSPHRASE"
    )]
    KeyNeeded { store: String },
    #[error(
        "{store} holds data but its key is not at {path}; bring it back with `tarn key import` and the recovery code, or give TARN_PASSPHRASE if it was created with one"
    )]
    KeyMissing { store: String, path: PathBuf },
    #[error("this is not a recovery code: {0}; compare it with what the first start or `tarn key export` printed")]
    RecoveryCodeInvalid(&'static str),
    #[error("{path} holds another key already; nothing was changed; move it away first if that is what you want")]
    KeyPresent { path: PathBuf },
    #[error("the store was created without a passphrase; use its key file or TARN_RECOVERY_CODE")]
    PassphraseUnknown,

    // --- store: 50 to 59 ---
    #[error("the store {url} cannot be named so: {reason}")]
    StoreUrl { url: String, reason: String },
    #[error("the store {url} cannot be used: {reason}")]
    StoreFailed { url: String, reason: String },
    #[error("{reason}")]
    OwnedElsewhere { reason: String },
    #[error("the log {path} cannot be used: {reason}")]
    LogForeign { path: PathBuf, reason: String },
    #[error("the data cannot be opened: {0}")]
    OpenFailed(String),
    #[error("the store {url} is not there, or not all of it: {reason}")]
    StoreGone { url: String, reason: String },

    // --- commands to a running server: 60 to 69 ---
    #[error("no tarn serves {path}; start it with `tarn serve --data {path}`")]
    NotRunning { path: PathBuf },
    #[error("the server refused: {0}")]
    Refused(String),
    #[error("not confirmed, nothing was changed; type the name {0:?} when asked, or give --yes")]
    NotConfirmed(String),
    #[error("{count} faults were found; the lines above name them")]
    Faults { count: u64 },
    #[error("the server at {path} went away: {reason}")]
    ServerGone { path: PathBuf, reason: String },
}

impl Stop {
    /// The exit code, 1 to 69; 0 is success and 2 is a command line that clap does not understand.
    // long: exhaustive map
    pub fn code(&self) -> u8 {
        match self {
            Stop::Internal(_) => 1,
            Stop::NoBench(_) => 65,
            Stop::ConfigUnreadable { .. } => 10,
            Stop::ConfigInvalid { .. } => 11,
            Stop::ValueInvalid { .. } => 12,
            Stop::AddressInUse { .. } => 20,
            Stop::AddressNotPermitted { .. } | Stop::PortmapNotPermitted { .. } => 21,
            Stop::AddressUnusable { .. } => 22,
            Stop::PathNotPermitted { .. } => 30,
            Stop::SecondServer { .. } => 31,
            Stop::NewerFormat { .. } => 32,
            Stop::LogUnsafe { .. } => 33,
            Stop::LogSpace { .. } => 34,
            Stop::PathUnusable { .. } => 35,
            Stop::LogDamaged { .. } => 36,
            Stop::KeyUnreadable { .. } => 40,
            Stop::KeyExposed { .. } => 41,
            Stop::KeyWrong { .. } => 42,
            Stop::KeyNeeded { .. } => 43,
            Stop::KeyMissing { .. } => 44,
            Stop::RecoveryCodeInvalid(_) => 45,
            Stop::KeyPresent { .. } => 46,
            Stop::PassphraseUnknown => 47,
            Stop::StoreUrl { .. } => 50,
            Stop::StoreFailed { .. } => 51,
            Stop::OwnedElsewhere { .. } => 52,
            Stop::LogForeign { .. } => 53,
            Stop::OpenFailed(_) => 54,
            Stop::StoreGone { .. } => 55,
            Stop::NotRunning { .. } => 60,
            Stop::Refused(_) => 61,
            Stop::NotConfirmed(_) => 62,
            Stop::Faults { .. } => 63,
            Stop::ServerGone { .. } => 64,
        }
    }
}

pub type Outcome<T> = Result<T, Stop>;

/// What an IO error on `path`, which `flag` chooses, means to the operator.
pub fn path_stop(path: &std::path::Path, flag: &'static str, error: &std::io::Error) -> Stop {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            Stop::PathNotPermitted { path: path.to_path_buf(), flag }
        }
        _ => Stop::PathUnusable { path: path.to_path_buf(), reason: error.to_string() },
    }
}
