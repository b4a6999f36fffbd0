//! The configuration file: TOML, every key optional, none unknown.
//!
//! - Each key stands in `docs/config.md` with its default and the reason for it; a test compares the two.
//! - Secrets are never here: they come by environment or in files of their own.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exit::{Outcome, Stop};
use crate::sizes::show_size;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    pub data: Option<PathBuf>,
    pub store: Option<String>,
    pub key_file: Option<PathBuf>,
    pub log: Log,
    pub nfs: Nfs,
    pub admin: Admin,
    pub cache: Cache,
    pub checkpoint: Checkpoint,
    pub report: Report,
    pub measure: Measure,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    pub dir: Option<PathBuf>,
    pub size: Option<String>,
    #[serde(rename = "unsafe")]
    pub unsafe_place: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nfs {
    pub listen: Option<String>,
    pub portmap: Option<bool>,
    pub cores: Option<usize>,
    pub slow_operation: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    pub listen: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    pub data: Option<String>,
    pub names: Option<String>,
    pub dedupe: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoint {
    pub memory: Option<String>,
    pub log_fill_percent: Option<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Report {
    pub level: Option<String>,
}

/// For measurements only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    pub store_shape: Option<String>,
}

/// Longest file, bytes: a hundred times one with every key. What is longer, such as a device, is no configuration.
const LONGEST: u64 = 1 << 20;

/// Brackets that may be open at once. The parser follows each with a call of its own, and thousands are more than a stack
/// holds.
const DEEPEST: usize = 64;

/// The line, from 1, on which more brackets are open than may be. Those in strings count too, which do no harm in pairs.
fn too_deep(text: &str) -> Option<usize> {
    let (mut open, mut line) = (0usize, 1);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            b'\n' => line += 1,
            _ => {}
        }
        if open > DEEPEST {
            return Some(line);
        }
    }
    None
}

impl File {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Outcome<File> {
        let unreadable = |reason| Stop::ConfigUnreadable { path: path.to_path_buf(), reason };
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text))
            .map_err(|error| unreadable(error.to_string()))?;
        if text.len() as u64 > LONGEST {
            return Err(unreadable(format!("it is longer than {}, which no configuration is", show_size(LONGEST))));
        }
        File::parse(&text).map_err(|reason| Stop::ConfigInvalid { path: path.to_path_buf(), reason })
    }

    /// Understands `text`, or says in one line which entry is wrong and where.
    pub fn parse(text: &str) -> Result<File, String> {
        if let Some(line) = too_deep(text) {
            return Err(format!("line {line}: more than {DEEPEST} brackets are open: no key takes values that nest"));
        }
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
            match line {
                Some(line) => format!("line {line}: {message}"),
                None => message,
            }
        })
    }

    /// A file with every key set, to compare the documents with.
    pub fn full() -> File {
        File {
            data: Some("/var/lib/tarn".into()),
            store: Some("s3://bucket/prefix".into()),
            key_file: Some("/etc/tarn/key".into()),
            log: Log { dir: Some("/var/lib/tarn/log".into()), size: Some("8GiB".into()), unsafe_place: Some(false) },
            nfs: Nfs {
                listen: Some("0.0.0.0:2049".into()),
                portmap: Some(true),
                cores: Some(4),
                slow_operation: Some("1s".into()),
            },
            admin: Admin { listen: Some("127.0.0.1:9120".into()) },
            cache: Cache { data: Some("4GiB".into()), names: Some("2GiB".into()), dedupe: Some("256MiB".into()) },
            checkpoint: Checkpoint { memory: Some("1GiB".into()), log_fill_percent: Some(50) },
            report: Report { level: Some("info".into()) },
            measure: Measure { store_shape: Some("blob".into()) },
        }
    }
}
