//! What a Tarn says of itself at its admin port: its configuration for the report, and the requests it sends its store.
//!
//! - Read only, over HTTP, between cells and never while one is measured.
//! - Nobody has to answer: another server's report has no configuration and no bill, and says so.

use crate::Outcome;
use crate::target::Target;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Where a Tarn's admin port is unless it was told otherwise.
const PORT: u16 = 9120;
const WAIT: Duration = Duration::from_secs(2);
/// A status is some KiB; a megabyte of it is nobody's.
const ANSWER_MAX: u64 = 16 << 20;

/// An admin port that answered.
#[derive(Clone, Copy, Debug)]
pub struct Admin {
    address: SocketAddr,
}

/// Requests of one kind to the object store, and the bytes they moved.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Requests {
    pub kind: String,
    pub count: u64,
    pub bytes: u64,
}

impl Admin {
    /// That of `target`: `?admin=PORT` of its URL, which must answer, or else the usual port, if it is this server's.
    pub fn find(target: &Target) -> Outcome<Option<Admin>> {
        let address = SocketAddr::new(target.address.ip(), target.admin.unwrap_or(PORT));
        let admin = Admin { address };
        match (admin.status(), target.admin) {
            (Ok(status), _) if serves(&status, target.address.port()) => Ok(Some(admin)),
            (Ok(_), Some(_)) => Err(format!("the admin port {address} is not that of {}", target.name)),
            (Err(error), Some(_)) => Err(format!("the admin port {address}: {error}")),
            (_, None) => Ok(None),
        }
    }

    /// All that it says.
    pub fn status(&self) -> Outcome<Value> {
        let text = get(self.address, "/status").map_err(|error| error.to_string())?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or("not an answer of HTTP")?;
        if !head.starts_with("HTTP/1.") || head.split(' ').nth(1) != Some("200") {
            return Err(head.lines().next().unwrap_or_default().to_owned());
        }
        serde_json::from_str(body).map_err(|error| error.to_string())
    }

    /// Checkpoints since the server began.
    pub fn checkpoints(&self) -> Outcome<u64> {
        self.status()?["checkpoint"]["count"].as_u64().ok_or_else(|| "it says nothing of checkpoints".to_owned())
    }

    /// Requests since the server began.
    pub fn requests(&self) -> Outcome<Vec<Requests>> {
        Ok(requests(&self.status()?))
    }
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, WAIT)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
    // The old version of the protocol: the answer comes in one piece and ends with the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut text = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether the status is of a Tarn that serves NFS at this port.
fn serves(status: &Value, port: u16) -> bool {
    let nfs = status["nfs"].as_str().and_then(|text| text.parse::<SocketAddr>().ok());
    nfs.is_some_and(|nfs| nfs.port() == port)
}

fn requests(status: &Value) -> Vec<Requests> {
    let rows = status["store_requests"].as_array().map_or(&[][..], Vec::as_slice);
    let row = |row: &Value| Requests {
        kind: row["kind"].as_str().unwrap_or_default().to_owned(),
        count: row["count"].as_u64().unwrap_or(0),
        bytes: row["bytes"].as_u64().unwrap_or(0),
    };
    rows.iter().map(row).collect()
}

/// What came between two looks.
pub fn between(before: &[Requests], after: &[Requests]) -> Vec<Requests> {
    let old = |kind: &str| before.iter().find(|row| row.kind == kind).cloned().unwrap_or_default();
    let less = |row: &Requests| {
        let old = old(&row.kind);
        // A server that began anew counts from 0.
        let (count, bytes) = (row.count.checked_sub(old.count), row.bytes.checked_sub(old.bytes));
        Requests { kind: row.kind.clone(), count: count.unwrap_or(row.count), bytes: bytes.unwrap_or(row.bytes) }
    };
    after.iter().map(less).filter(|row| row.count > 0 || row.bytes > 0).collect()
}

/// What a report states of the server; `export` names the volume.
pub fn configuration(status: &Value, export: &str) -> Value {
    let bytes = |value: &Value| mib(value.as_u64().unwrap_or(0));
    let cache = |name: &str| {
        let caches = status["caches"].as_array().map_or(&[][..], Vec::as_slice);
        caches
            .iter()
            .find(|cache| cache["name"] == name)
            .map_or(Value::Null, |cache| bytes(&cache["capacity_bytes"]).into())
    };
    let mut said = json!({
        "Server": format!("Tarn {}", status["version"].as_str().unwrap_or("of unknown version")),
        "Object store": status["store"],
        "Store profile": status["store_shape"].as_str().map_or_else(
            || "as it is: not slowed down".to_owned(),
            |shape| format!("{shape}: slowed down for this measurement"),
        ),
        "Encryption": status["encryption"],
        "Write log": bytes(&status["log"]["capacity_bytes"]),
        "Cache of data": cache("data"),
        "Cache of names": cache("names"),
        "Memory that it may use": bytes(&status["memory_limit_bytes"]),
        "Serving threads": status["cores"],
    });
    if let (Some(volume), Some(said)) = (volume(status, export), said.as_object_mut()) {
        let limit = volume["size_limit"].as_u64().map_or_else(|| "none".to_owned(), mib);
        for (name, value) in [
            ("Volume", volume["name"].clone()),
            ("Record size", format!("{} KiB", volume["record_size"].as_u64().unwrap_or(0) >> 10).into()),
            ("Compression", volume["compression"].clone()),
            ("Write speed", volume["write_speed"].clone()),
            ("Write-back delay", format!("{} ms", volume["write_back_delay_ms"].as_u64().unwrap_or(0)).into()),
            ("Size limit", limit.into()),
        ] {
            said.insert(name.to_owned(), value);
        }
    }
    said
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// The volume that the export's path begins with.
fn volume<'a>(status: &'a Value, export: &str) -> Option<&'a Value> {
    let name = export.trim_start_matches('/').split('/').next()?;
    let volumes = status["volumes"].as_array()?;
    volumes.iter().find(|volume| volume["name"] == name && volume["deleted_ms"].is_null())
}

/// What is durable when a reply leaves.
pub fn stable_storage(status: &Value, export: &str) -> String {
    let log = status["log"]["path"].as_str().unwrap_or("its path is not told");
    let mut text = format!(
        "a reply to a FILE_SYNC write, a COMMIT or a change of names leaves when the change is in the write log ({log}) \
         and fdatasync has returned; the object store follows"
    );
    if status["unsafe_log"] == true {
        text.push_str("; the log was accepted although a power loss may lose it: NOT STABLE");
    }
    if volume(status, export).is_some_and(|volume| volume["write_speed"] == "high") {
        text.push_str(
            "; write speed high: replies do not wait for the log, a crash may lose the last seconds: NOT STABLE",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Value {
        json!({
            "version": "9.9", "nfs": "127.0.0.1:2049", "store": "file:///o", "store_shape": "blob",
            "encryption": "AES-256-GCM", "unsafe_log": false, "cores": 1, "memory_limit_bytes": 8_u64 << 30,
            "log": { "path": "/l/tarn.log", "capacity_bytes": 4_u64 << 30 },
            "caches": [{ "name": "data", "capacity_bytes": 512 << 20 }],
            "volumes": [{ "name": "vol", "record_size": 65536, "write_speed": "normal", "compression": "lz4" }],
            "store_requests": [{ "kind": "put", "count": 7, "bytes": 70 }, { "kind": "get", "count": 1, "bytes": 0 }],
        })
    }

    #[test]
    fn a_report_states_what_the_server_says() {
        let said = configuration(&status(), "/vol/inner");
        for (name, value) in [
            ("Server", "Tarn 9.9"),
            ("Write log", "4096 MiB"),
            ("Cache of data", "512 MiB"),
            ("Record size", "64 KiB"),
            ("Encryption", "AES-256-GCM"),
        ] {
            assert_eq!(said[name], value, "{name}");
        }
        assert!(said["Store profile"].as_str().unwrap().starts_with("blob"));
        assert!(!stable_storage(&status(), "/vol").contains("NOT STABLE"));
        let mut bad = status();
        bad["volumes"][0]["write_speed"] = json!("high");
        assert!(stable_storage(&bad, "/vol").contains("NOT STABLE"));
    }

    #[test]
    fn only_the_targets_own_port_is_believed() {
        assert!(serves(&status(), 2049));
        assert!(!serves(&status(), 2050));
        assert!(!serves(&json!({"other": 1}), 2049));
    }

    #[test]
    fn requests_are_those_between_two_looks() {
        let before = [Requests { kind: "put".into(), count: 5, bytes: 50 }];
        let found = between(&before, &requests(&status()));
        assert_eq!(found[0], Requests { kind: "put".into(), count: 2, bytes: 20 });
        assert_eq!(found[1].count, 1);
        let restarted = [Requests { kind: "put".into(), count: 9, bytes: 90 }];
        assert_eq!(between(&restarted, &requests(&status()))[0].count, 7);
    }
}
