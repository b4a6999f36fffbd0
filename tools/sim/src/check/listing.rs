//! A cookie names one entry for ever: a listing that is continued after changes and restarts shows what is there, once.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::Ino;
use tarn_vfs::{Caller, Errno, FileSystem, ListRequest, Node};

use crate::chance::Chance;
use crate::failure::{Checked, Failure};

const NAME: &str = "listing";
/// How often a page is asked for that is not there yet, a second apart.
const TRIES: u32 = 10;
/// Entries of a page.
const PAGE: u32 = 3;

/// A listing that stopped somewhere.
#[derive(Clone, Debug)]
struct Stopped {
    dir: Node,
    /// The last cookie; listing goes on after it.
    after: u64,
    /// What has been shown so far, by cookie.
    shown: BTreeMap<u64, (Bytes, Ino)>,
}

/// Listings that go on when the store is opened again.
#[derive(Clone, Debug, Default)]
pub struct Listings(Vec<Stopped>);

impl Listings {
    /// The log was lost, and with it entries that were shown.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// Goes on with each listing, holds it against the whole directory, and begins others in `dirs`.
    pub async fn go_on(&mut self, fs: &dyn FileSystem, dirs: &[Node], chance: &mut Chance) -> Checked {
        for stopped in std::mem::take(&mut self.0) {
            compare(fs, &stopped).await?;
        }
        for dir in dirs {
            let mut shown = BTreeMap::new();
            let mut after = 0;
            for _ in 0..chance.range(1, 3) {
                let Some(page) = page(fs, *dir, after).await? else { break };
                after = page.keys().next_back().copied().unwrap_or(after);
                shown.extend(page);
            }
            self.0.push(Stopped { dir: *dir, after, shown });
        }
        Ok(())
    }
}

async fn compare(fs: &dyn FileSystem, stopped: &Stopped) -> Checked {
    let (Some(whole), Some(rest)) = (all(fs, stopped.dir, 0).await?, all(fs, stopped.dir, stopped.after).await?) else {
        return Ok(());
    };
    for (cookie, entry) in whole.range(..=stopped.after) {
        // "." and ".." are names of others.
        if *cookie > 2 && stopped.shown.get(cookie) != Some(entry) {
            let expected =
                format!("cookie {cookie} of {:?} names {:?} for ever", stopped.dir, stopped.shown.get(cookie));
            return Err(Failure::new(NAME, expected, format!("{entry:?}")));
        }
    }
    let due: BTreeMap<_, _> =
        whole.range(stopped.after + 1..).map(|(cookie, entry)| (*cookie, entry.clone())).collect();
    if due == rest {
        return Ok(());
    }
    let expected = format!("{:?} after cookie {}: {due:?}", stopped.dir, stopped.after);
    Err(Failure::new(NAME, expected, format!("{rest:?}")))
}

/// Everything after a cookie; `None` if the directory is gone.
async fn all(fs: &dyn FileSystem, dir: Node, mut after: u64) -> Result<Option<BTreeMap<u64, (Bytes, Ino)>>, Failure> {
    let mut out = BTreeMap::new();
    loop {
        let Some(page) = page(fs, dir, after).await? else { return Ok(None) };
        let Some(last) = page.keys().next_back() else { return Ok(Some(out)) };
        after = *last;
        for (cookie, entry) in page {
            if out.insert(cookie, entry).is_some() {
                return Err(Failure::new(NAME, format!("cookie {cookie} of {dir:?} once"), "twice"));
            }
        }
    }
}

/// The page after a cookie: empty at the end; `None` if the directory is gone.
async fn page(fs: &dyn FileSystem, dir: Node, after: u64) -> Result<Option<BTreeMap<u64, (Bytes, Ino)>>, Failure> {
    let request = ListRequest { after, entries_max: PAGE, bytes_max: u32::MAX, entry_overhead: 0, attrs: false };
    let mut tries = 1;
    let reply = loop {
        match fs.list(&Caller::root(), dir, request).await {
            Ok(done) => break done,
            Err(done) if done.value.errno == Errno::Stale => return Ok(None),
            // The metadata store may be about to be opened again: a client comes again as well.
            Err(done) if done.value.errno == Errno::TryLater && tries < TRIES => {}
            Err(done) => return Err(Failure::new(NAME, "a page", format!("{:?}", done.value.errno))),
        }
        tries += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    // What is shown is not taken back by a crash.
    let durable = fs.durable(reply.position).await;
    durable.map_err(|done| Failure::new(NAME, "a log that works", format!("{:?}", done.value.errno)))?;
    let entries = reply.value.entries.into_iter();
    let mut out = BTreeMap::new();
    let mut last = after;
    for entry in entries {
        if entry.cookie <= last {
            let expected = format!("cookies of {dir:?} that grow");
            return Err(Failure::new(NAME, expected, format!("{} after {last}", entry.cookie)));
        }
        last = entry.cookie;
        out.insert(entry.cookie, (entry.name, entry.ino));
    }
    Ok(Some(out))
}
