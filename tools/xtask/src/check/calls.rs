//! Law 3: clocks, randomness, tasks, sockets and files are made in `filer` and `sim` and handed down.
//!
//! - A row names a call, what to use instead, and the files whose purpose is that call.
//! - Tests, tools and the two crates that wire may call anything but what is banned everywhere.

use super::{Finding, Tree};
use crate::source::{Source, is_word};

struct Banned {
    call: &'static str,
    instead: &'static str,
    /// Prefixes of paths that may: devices and local stores are what files are for.
    except: &'static [&'static str],
}

const DEVICES: &[&str] = &["crates/store/src/local", "crates/wal/src/file.rs", "crates/wal/src/device.rs"];

const BANNED: &[Banned] = &[
    Banned { call: "Instant::now", instead: "World::clock", except: &[] },
    Banned { call: "SystemTime::now", instead: "World::clock", except: &[] },
    Banned { call: "thread::spawn", instead: "World::spawn", except: &[] },
    Banned { call: "thread::Builder", instead: "World::spawn", except: &[] },
    Banned { call: "tokio::spawn", instead: "World::spawn", except: &[] },
    Banned { call: "tokio::task::spawn", instead: "World::spawn", except: &[] },
    Banned { call: "spawn_blocking", instead: "World::spawn", except: &["crates/store/src/local"] },
    Banned { call: "thread::sleep", instead: "World::clock", except: &[] },
    Banned { call: "tokio::time::sleep", instead: "World::clock", except: &[] },
    Banned { call: "getrandom", instead: "World::random", except: &[] },
    Banned { call: "thread_rng", instead: "World::random", except: &[] },
    Banned { call: "OsRng", instead: "World::random", except: &[] },
    Banned { call: "SystemRandom", instead: "World::random", except: &[] },
    Banned { call: "rand::fill", instead: "World::random", except: &[] },
    Banned { call: "RandomState::new", instead: "a seeded or ordered map", except: &[] },
    Banned { call: "std::fs", instead: "a device or store that filer hands down", except: DEVICES },
    Banned { call: "tokio::fs", instead: "a device or store that filer hands down", except: &[] },
    Banned { call: "fs::File", instead: "a device or store that filer hands down", except: DEVICES },
    Banned { call: "fs::OpenOptions", instead: "a device or store that filer hands down", except: DEVICES },
    Banned { call: "TcpListener::bind", instead: "a listener that filer hands down", except: &[] },
    Banned { call: "TcpStream::connect", instead: "a connection that filer hands down", except: &[] },
    Banned { call: "UdpSocket::bind", instead: "a socket that filer hands down", except: &[] },
    Banned { call: "env::var", instead: "a setting", except: &[] },
    Banned { call: "process::exit", instead: "an error that main turns into a status", except: &[] },
];

/// These crates choose implementations.
const WIRING: &[&str] = &["crates/filer", "tools/", "tests/"];

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    Ok(tree.sources.iter().flat_map(findings).collect())
}

fn findings(source: &Source) -> Vec<Finding> {
    let mut found = unwraps(source);
    if WIRING.iter().any(|prefix| source.path.starts_with(prefix)) {
        return found;
    }
    for (line, code) in source.program_lines() {
        for banned in BANNED.iter().filter(|banned| calls(code, banned.call)) {
            if banned.except.iter().any(|prefix| source.path.starts_with(prefix)) {
                continue;
            }
            let what = format!("{} is banned here; use {}", banned.call, banned.instead);
            found.push(Finding::new(&source.path, line + 1, what));
        }
    }
    found
}

/// In crates `.unwrap()` is banned outside tests, and `.expect` says why it cannot fail.
fn unwraps(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with("crates/") {
        return Vec::new();
    }
    let unwraps = source.program_lines().filter(|(_, code)| code.contains(".unwrap()"));
    let what = "unwrap() is banned outside tests; return an error, or expect(\"why it cannot fail\")";
    unwraps.map(|(line, _)| Finding::new(&source.path, line + 1, what)).collect()
}

/// Does the line hold the call as whole words?
fn calls(code: &str, call: &str) -> bool {
    code.match_indices(call).any(|(at, _)| {
        let before = at.checked_sub(1).map(|before| code.as_bytes()[before]);
        let after = code.as_bytes().get(at + call.len()).copied();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        findings(&Source::new(path, text)).len()
    }

    #[test]
    fn every_banned_call_is_found() {
        for banned in BANNED {
            let text = format!("fn f() {{ {}(); }}", banned.call);
            assert!(found("crates/engine/src/a.rs", &text) > 0, "{}", banned.call);
        }
        assert_eq!(found("crates/filer/src/a.rs", "fn f() { a.unwrap(); }"), 1);
    }

    #[test]
    fn tests_wiring_comments_and_devices_may() {
        assert_eq!(
            found("crates/engine/src/a.rs", "#[cfg(test)]\nmod tests { fn f() { Instant::now().unwrap(); } }"),
            0
        );
        assert_eq!(found("crates/engine/src/a.rs", "// Instant::now"), 0);
        assert_eq!(found("crates/engine/src/a.rs", "MyInstant::now()"), 0);
        assert_eq!(found("crates/filer/src/a.rs", "Instant::now()"), 0);
        assert_eq!(found("crates/store/src/local/a.rs", "std::fs::read(path)"), 0);
    }
}
