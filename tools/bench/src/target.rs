//! What is measured: an address, an export, and how its processor time is found.

use crate::Outcome;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct Target {
    /// The name in tables.
    pub name: String,
    pub address: SocketAddr,
    /// Where MOUNT answers.
    pub mount: SocketAddr,
    /// What MOUNT is asked for.
    pub export: String,
    /// Where a Tarn tells of itself over HTTP, if the URL says so.
    pub admin: Option<u16>,
    /// The server's process, if it is on this machine.
    pub pid: Option<u32>,
    /// The core that the server is pinned to.
    pub core: Option<usize>,
    /// What is durable when a reply leaves, in words.
    pub durability: String,
    /// The program and the data directory of a Tarn that was started here.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl Target {
    /// From `nfs://host:port/path`, or `name=nfs://host:port/path`; the port is 2049 if it is left out, and MOUNT
    /// answers there too unless `?mountport=N` says otherwise; `admin=N` is a Tarn's admin port.
    pub fn parse(text: &str) -> Outcome<Target> {
        let wrong = || format!("not nfs://HOST:PORT/PATH: {text}");
        let (name, url) = match text.split_once("=nfs://") {
            Some((name, _)) => (name.to_owned(), &text[name.len() + 1..]),
            None => (text.to_owned(), text),
        };
        let rest = url.strip_prefix("nfs://").ok_or_else(wrong)?;
        let (host, path) = rest.split_at(rest.find('/').ok_or_else(wrong)?);
        let port = if host.rsplit(']').next().is_some_and(|end| end.contains(':')) { "" } else { ":2049" };
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let (mut mount_port, mut admin) = (None, None);
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, port) = part.split_once('=').ok_or_else(wrong)?;
            let port = Some(port.parse::<u16>().map_err(|_| wrong())?);
            match key {
                "mountport" => mount_port = port,
                "admin" => admin = port,
                _ => return Err(wrong()),
            }
        }
        let found = format!("{host}{port}").to_socket_addrs().map_err(|error| format!("{host}: {error}"))?.next();
        let address = found.ok_or_else(wrong)?;
        Ok(Target {
            name,
            address,
            mount: SocketAddr::new(address.ip(), mount_port.unwrap_or(address.port())),
            export: path.to_owned(),
            admin,
            pid: None,
            core: None,
            durability: "not said".to_owned(),
            own: None,
        })
    }

    /// As [`Target::parse`] takes it, without the name.
    pub fn url(&self) -> String {
        let admin = self.admin.map_or_else(String::new, |port| format!("&admin={port}"));
        format!("nfs://{}{}?mountport={}{admin}", self.address, self.export, self.mount.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_an_address_and_an_export() {
        let target = Target::parse("mine=nfs://127.0.0.1:3049/a/b").unwrap();
        assert_eq!((target.name.as_str(), target.export.as_str()), ("mine", "/a/b"));
        assert_eq!(target.address, "127.0.0.1:3049".parse().unwrap());
        assert_eq!(Target::parse("nfs://127.0.0.1/vol").unwrap().address.port(), 2049);
        let apart = Target::parse("nfs://127.0.0.1:3049/a?mountport=3048").unwrap();
        assert_eq!((apart.export.as_str(), apart.address.port(), apart.mount.port()), ("/a", 3049, 3048));
        let both = Target::parse("nfs://127.0.0.1/a?admin=9120&mountport=3048").unwrap();
        assert_eq!((both.admin, both.mount.port()), (Some(9120), 3048));
        assert_eq!(Target::parse(&both.url()).unwrap().url(), both.url());
        assert!(Target::parse("nfs://127.0.0.1/a?port=1").is_err());
        assert!(Target::parse("http://127.0.0.1/vol").is_err());
        assert!(Target::parse("nfs://127.0.0.1:2049").is_err());
    }
}
