//! What every [`MetaOpener`] must do, as a check that can be run against any of them.
//!
//! - [`check`] begins with an empty store and leaves one with its own keys.

use std::sync::Arc;

use bytes::Bytes;

use crate::contract::{Batch, MetaError, MetaOpener, MetaResult, MetaStore, MetaView, Page};

/// The first thing that was not as it must be.
#[derive(Clone, Debug, thiserror::Error)]
#[error("this metadata store does not keep the contract: {0}")]
pub struct Broken(pub String);

type Checked = Result<(), Broken>;

macro_rules! hold {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(Broken(format!($($why)+)));
        }
    };
}

/// Runs every check on the empty store that `opener` opens.
pub async fn check(opener: &dyn MetaOpener) -> Checked {
    let store = done(opener.open().await, "open")?;
    batches_are_seen(&*store).await?;
    views_never_change(&*store).await?;
    scans_are_ordered_and_paged(&*store).await?;
    sorted_gets_agree(&*store).await?;
    done(store.close().await, "close")?;
    hold!(store.commit(set(b"closed", b"x")).await.is_err(), "a closed store commits");
    drop(store);
    commits_survive_reopening(opener).await?;
    commits_survive_a_crash(opener).await?;
    an_older_store_is_fenced(opener).await
}

fn done<T>(result: MetaResult<T>, what: &str) -> Result<T, Broken> {
    result.map_err(|error| Broken(format!("{what}: {error}")))
}

fn set(key: &[u8], value: &[u8]) -> Batch {
    Batch { changes: vec![(Bytes::copy_from_slice(key), Some(Bytes::copy_from_slice(value)))] }
}

fn remove(key: &[u8]) -> Batch {
    Batch { changes: vec![(Bytes::copy_from_slice(key), None)] }
}

async fn get(view: &Arc<dyn MetaView>, key: &[u8]) -> Result<Option<Bytes>, Broken> {
    done(view.get(key).await, "get")
}

async fn batches_are_seen(store: &dyn MetaStore) -> Checked {
    let before = store.view();
    hold!(get(&before, b"a").await?.is_none(), "an empty store has a key");
    let changes = [("a", "1"), ("b", ""), ("c", "3")];
    let changes = changes.iter().map(|(key, value)| (Bytes::from(*key), Some(Bytes::from(*value)))).collect();
    done(store.commit(Batch { changes }).await, "commit")?;
    let view = store.view();
    for (key, value) in [("a", "1"), ("b", ""), ("c", "3")] {
        let found = get(&view, key.as_bytes()).await?;
        hold!(found.as_deref() == Some(value.as_bytes()), "{key} is {found:?}, not {value:?}");
    }
    hold!(get(&before, b"a").await?.is_none(), "a view shows a later batch");
    done(store.commit(Batch::default()).await, "an empty commit")?;
    let changes = vec![(Bytes::from("a"), Some(Bytes::from("new"))), (Bytes::from("c"), None)];
    done(store.commit(Batch { changes }).await, "commit")?;
    let after = store.view();
    hold!(get(&after, b"a").await?.as_deref() == Some(b"new"), "an overwritten key shows its old value");
    hold!(get(&after, b"c").await?.is_none(), "a removed key is there");
    done(store.commit(remove(b"never there")).await, "removing what is not there")
}

async fn views_never_change(store: &dyn MetaStore) -> Checked {
    let mut views = Vec::new();
    for round in 0..8_u8 {
        let batch = if round % 3 == 2 { remove(b"round") } else { set(b"round", &[round]) };
        done(store.commit(batch).await, "commit")?;
        views.push((round, store.view()));
    }
    for (round, view) in &views {
        let expected = (round % 3 != 2).then(|| Bytes::copy_from_slice(&[*round]));
        let found = get(view, b"round").await?;
        hold!(found == expected, "the view of round {round} shows {found:?}");
        let page = done(view.scan(b"round", b"round\0", 10).await, "scan")?;
        let scanned = page.entries.first().map(|(_, value)| value.clone());
        hold!(scanned == expected, "a scan of the view of round {round} shows {scanned:?}");
    }
    Ok(())
}

fn key(number: u32) -> Bytes {
    let mut key = b"scan".to_vec();
    key.extend_from_slice(&number.to_be_bytes());
    Bytes::from(key)
}

fn value(number: u32) -> Bytes {
    Bytes::from(format!("value of {number}"))
}

const SCANNED: u32 = 1000;

async fn scans_are_ordered_and_paged(store: &dyn MetaStore) -> Checked {
    let evens = (0..SCANNED).step_by(2).map(|number| (key(number), Some(value(number))));
    done(store.commit(Batch { changes: evens.collect() }).await, "commit")?;
    let odds = (1..SCANNED).step_by(2).map(|number| (key(number), Some(value(number))));
    done(store.commit(Batch { changes: odds.collect() }).await, "commit")?;
    let tens = (0..SCANNED).step_by(10).map(|number| (key(number), None));
    done(store.commit(Batch { changes: tens.collect() }).await, "commit")?;
    let view = store.view();
    let expected: Vec<(Bytes, Bytes)> =
        (0..SCANNED).filter(|number| number % 10 != 0).map(|number| (key(number), value(number))).collect();
    for limit in [1, 7, 450, 899, 900, 901, 5000] {
        let mut found = Vec::new();
        let mut from = key(0);
        loop {
            let page: Page = done(view.scan(&from, &key(SCANNED), limit).await, "scan")?;
            hold!(page.entries.len() <= limit, "a page of {limit} has {} entries", page.entries.len());
            hold!(page.complete || page.entries.len() == limit, "a page is short but not the last");
            found.extend(page.entries);
            if page.complete {
                break;
            }
            let last = found.last().map(|(key, _)| key.clone()).unwrap_or_default();
            from = Bytes::from([&last[..], &[0]].concat());
            if limit == 1 && found.len() > 20 {
                break;
            }
        }
        let agrees = found[..] == expected[..found.len().min(expected.len())];
        hold!(agrees && (limit == 1 || found.len() == expected.len()), "scans in pages of {limit} disagree");
    }
    let empty = done(view.scan(&key(5), &key(5), 10).await, "scan")?;
    hold!(empty.entries.is_empty() && empty.complete, "an empty range is not empty");
    let backwards = done(view.scan(&key(9), &key(5), 10).await, "scan")?;
    hold!(backwards.entries.is_empty() && backwards.complete, "a range that ends before it begins is not empty");
    let part = done(view.scan(&key(5), &key(8), 10).await, "scan")?;
    hold!(part.entries == expected[4..7], "a range is {part:?}");
    Ok(())
}

async fn sorted_gets_agree(store: &dyn MetaStore) -> Checked {
    let view = store.view();
    // Close together, apart, and both in turns; the last ones are behind everything.
    let both = (0..SCANNED).filter(|number| number % 300 < 60 || number % 20 == 0);
    let choices: [Vec<u32>; 4] = [
        (0..SCANNED + 5).collect(),
        (0..SCANNED + 5).step_by(3).collect(),
        (0..SCANNED * 4).step_by(20).collect(),
        both.collect(),
    ];
    for keys in choices {
        let keys: Vec<Bytes> = keys.into_iter().map(key).collect();
        let found = done(view.get_sorted(&keys).await, "get_sorted")?;
        hold!(found.len() == keys.len(), "{} values for {} keys", found.len(), keys.len());
        for (key, value) in keys.iter().zip(&found) {
            hold!(get(&view, key).await? == *value, "get and get_sorted disagree about {key:?}");
        }
    }
    hold!(done(view.get_sorted(&[]).await, "get_sorted")?.is_empty(), "no keys have values");
    Ok(())
}

async fn commits_survive_reopening(opener: &dyn MetaOpener) -> Checked {
    let store = done(opener.open().await, "open again")?;
    let view = store.view();
    hold!(get(&view, b"a").await?.as_deref() == Some(b"new"), "a commit is gone after reopening");
    hold!(get(&view, b"c").await?.is_none(), "a removal is gone after reopening");
    let page = done(view.scan(&key(0), &key(SCANNED), 5000).await, "scan")?;
    hold!(page.entries.len() == 900 && page.complete, "{} of 900 keys are left", page.entries.len());
    done(store.commit(set(b"second life", b"1")).await, "commit")?;
    done(store.close().await, "close")
}

async fn commits_survive_a_crash(opener: &dyn MetaOpener) -> Checked {
    let store = done(opener.open().await, "open")?;
    done(store.commit(set(b"crash", b"1")).await, "commit")?;
    drop(store);
    let store = done(opener.open().await, "open after a crash")?;
    let view = store.view();
    hold!(get(&view, b"crash").await?.as_deref() == Some(b"1"), "a commit is gone after a crash");
    hold!(get(&view, b"second life").await?.as_deref() == Some(b"1"), "an older commit is gone after a crash");
    done(store.close().await, "close")
}

async fn an_older_store_is_fenced(opener: &dyn MetaOpener) -> Checked {
    let old = done(opener.open().await, "open")?;
    done(old.commit(set(b"fence", b"old")).await, "commit")?;
    let new = done(opener.open().await, "open beside another")?;
    let refused = old.commit(set(b"fence", b"too late")).await;
    hold!(refused.is_err(), "a store that was followed by another commits");
    done(new.commit(set(b"fence", b"new")).await, "commit of the newer store")?;
    let again = old.commit(set(b"fence", b"too late")).await;
    hold!(again.is_err(), "a store that was followed by another commits");
    let view = new.view();
    hold!(get(&view, b"fence").await?.as_deref() == Some(b"new"), "the older store's commit shows");
    done(new.close().await, "close")
}

/// Two openers of one store, as on two machines: the one who opened before learns that it is fenced.
pub async fn check_fencing(one: &dyn MetaOpener, other: &dyn MetaOpener) -> Checked {
    let old = done(one.open().await, "open")?;
    done(old.commit(set(b"owner", b"one")).await, "commit")?;
    let new = done(other.open().await, "open by another")?;
    let refused = old.commit(set(b"owner", b"one, too late")).await;
    hold!(matches!(refused, Err(MetaError::Fenced(_))), "a fenced commit gave {refused:?}");
    done(new.commit(set(b"second", b"other")).await, "commit by another")?;
    let view = new.view();
    hold!(get(&view, b"owner").await?.as_deref() == Some(b"one"), "a fenced commit shows");
    drop(old);
    done(new.close().await, "close")
}
