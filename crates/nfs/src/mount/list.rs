//! Who has mounted what. Only clients' word: for listings, never for a decision.
//!
//! - Bounded: once it is full, further mounts are served and not listed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use tarn_base::time::Time;

/// Most entries. A client that mounts and never unmounts must not fill our memory.
const ENTRIES_MAX: usize = 8192;

/// A mount as listings show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    pub client: IpAddr,
    pub path: String,
    pub since: Time,
}

/// The mounts that clients have told of.
#[derive(Debug, Default)]
pub struct Mounts {
    entries: Mutex<BTreeMap<(IpAddr, String), Time>>,
}

impl Mounts {
    pub fn add(&self, client: IpAddr, path: &str, now: Time) {
        let mut entries = self.entries.lock();
        let key = (client, path.to_owned());
        if entries.len() < ENTRIES_MAX || entries.contains_key(&key) {
            entries.insert(key, now);
        }
    }

    pub fn remove(&self, client: IpAddr, path: &str) {
        self.entries.lock().remove(&(client, path.to_owned()));
    }

    pub fn remove_all(&self, client: IpAddr) {
        self.entries.lock().retain(|(of, _), _| *of != client);
    }

    /// By client and path.
    pub fn list(&self) -> Vec<Mounted> {
        let entries = self.entries.lock();
        let mounted = |((client, path), since): (&(IpAddr, String), &Time)| Mounted {
            client: *client,
            path: path.clone(),
            since: *since,
        };
        entries.iter().map(mounted).collect()
    }
}
