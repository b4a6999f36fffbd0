//! Host names in export rules.
//!
//! - Judging never waits: a name is known, or being looked up for the first time.
//! - What is known is used while it is looked up again; a name that stops resolving has no addresses.
//! - A name is looked up by one task at a time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tarn_base::world::{BoxFuture, World};

/// How long an answer is used before it is asked for again. Short enough that a moved client is let in again
/// before anybody writes a ticket; names in export lists change rarely.
const REFRESH: Duration = Duration::from_secs(300);
/// As [`REFRESH`], after a name had no addresses.
const REFRESH_FAILED: Duration = Duration::from_secs(30);

/// Finds the addresses of a host; none if it has none or they cannot be found.
pub trait Resolver: Send + Sync {
    fn resolve(&self, host: &str) -> BoxFuture<Vec<IpAddr>>;
}

/// The addresses of names, as far as they are known.
pub struct Names {
    resolver: Arc<dyn Resolver>,
    world: World,
    known: RwLock<BTreeMap<String, Entry>>,
}

struct Entry {
    /// `None` until the first answer.
    addresses: Option<Vec<IpAddr>>,
    /// On the steady clock.
    expires: Duration,
    asking: bool,
}

impl Names {
    pub fn new(resolver: Arc<dyn Resolver>, world: World) -> Arc<Names> {
        Arc::new(Names { resolver, world, known: RwLock::default() })
    }

    /// Whether `host` has `address`; `None` while nobody knows yet.
    pub fn has(self: &Arc<Self>, host: &str, address: IpAddr) -> Option<bool> {
        let now = self.world.clock.steady();
        let (answer, stale) = match self.known.read().get(host) {
            Some(entry) => (
                entry.addresses.as_ref().map(|addresses| addresses.contains(&address)),
                !entry.asking && now >= entry.expires,
            ),
            None => (None, true),
        };
        if stale {
            self.ask(host);
        }
        answer
    }

    /// Looks `host` up, unless that is going on already.
    pub fn ask(self: &Arc<Self>, host: &str) {
        {
            let mut known = self.known.write();
            let entry =
                known.entry(host.into()).or_insert(Entry { addresses: None, expires: Duration::ZERO, asking: false });
            if std::mem::replace(&mut entry.asking, true) {
                return;
            }
        }
        let (names, host) = (self.clone(), host.to_owned());
        let task = async move {
            let mut found = names.resolver.resolve(&host).await;
            found.iter_mut().for_each(|address| *address = address.to_canonical());
            let keep = if found.is_empty() { REFRESH_FAILED } else { REFRESH };
            let expires = names.world.clock.steady() + keep;
            names.known.write().insert(host, Entry { addresses: Some(found), expires, asking: false });
        };
        self.world.spawn.spawn("resolve export host", Box::pin(task));
    }
}
