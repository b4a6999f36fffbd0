//! What every [`Store`] must do, as a check that can be run against any of them.
//!
//! - [`check`] uses names below `suite/` only and leaves none behind when it succeeds.
//! - It holds for the decorators too, as long as they inject no faults.

use bytes::Bytes;
use futures::future::join_all;

use crate::contract::{PutMode, Store, StoreError, StoreResult, Version};

/// The first thing that was not as it must be.
#[derive(Clone, Debug, thiserror::Error)]
#[error("this object store does not keep the contract: {0}")]
pub struct Broken(pub String);

type Checked = Result<(), Broken>;

macro_rules! hold {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(Broken(format!($($why)+)));
        }
    };
}

/// Runs every check.
pub async fn check(store: &dyn Store) -> Checked {
    clear(store).await?;
    bytes_come_back(store).await?;
    absence_is_told(store).await?;
    create_is_exclusive(store).await?;
    replace_compares(store).await?;
    one_of_many_wins(store).await?;
    ranges_are_exact(store).await?;
    listing_is_complete_and_in_order(store).await?;
    deletion_is_idempotent(store).await?;
    bad_names_are_refused(store).await?;
    clear(store).await
}

fn done<T>(result: StoreResult<T>, what: &str) -> Result<T, Broken> {
    result.map_err(|error| Broken(format!("{what}: {error}")))
}

async fn clear(store: &dyn Store) -> Checked {
    for info in done(store.list("suite/").await, "list")? {
        done(store.delete(&info.name).await, "delete")?;
    }
    let left = done(store.list("suite/").await, "list")?;
    hold!(left.is_empty(), "after deleting everything {} objects are listed", left.len());
    Ok(())
}

async fn put(store: &dyn Store, name: &str, bytes: &[u8], mode: PutMode) -> Result<Version, Broken> {
    done(store.put(name, Bytes::copy_from_slice(bytes), mode).await, name)
}

/// Bytes without a pattern that a chunk size could hide behind.
fn noise(size: usize) -> Vec<u8> {
    let mut state = size as u32 | 1;
    let step = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*state >> 24) as u8
    };
    (0..size).map(|_| step(&mut state)).collect()
}

async fn bytes_come_back(store: &dyn Store) -> Checked {
    for size in [0, 1, 15, 16, 4095, 65_535, 65_536, 65_537, 131_072, 1_000_003] {
        let name = format!("suite/size/{size}");
        let bytes = noise(size);
        let version = put(store, &name, &bytes, PutMode::Overwrite).await?;
        let (back, present) = done(store.get(&name).await, &name)?;
        hold!(back == bytes, "{size} bytes did not come back as they were");
        hold!(present == version, "get says version {present:?}, put said {version:?}");
        let info = done(store.head(&name).await, &name)?;
        hold!(info.size == size as u64 && info.name == name, "head of {name} says {info:?}");
    }
    let name = "suite/size/65536";
    put(store, name, b"second", PutMode::Overwrite).await?;
    let (back, _) = done(store.get(name).await, name)?;
    hold!(back == "second", "an overwritten object shows its old bytes");
    hold!(done(store.head(name).await, name)?.size == 6, "an overwritten object shows its old size");
    let tail = done(store.get_range(name, 1..6).await, name)?;
    hold!(tail == "econd", "a range of an overwritten object shows its old bytes");
    Ok(())
}

async fn absence_is_told(store: &dyn Store) -> Checked {
    let name = "suite/absent";
    hold!(matches!(store.get(name).await, Err(StoreError::NotFound(n)) if n == name), "get of an absent object");
    hold!(matches!(store.head(name).await, Err(StoreError::NotFound(n)) if n == name), "head of an absent object");
    let range = store.get_range(name, 0..1).await;
    hold!(matches!(range, Err(StoreError::NotFound(n)) if n == name), "range of an absent object");
    Ok(())
}

async fn create_is_exclusive(store: &dyn Store) -> Checked {
    let name = "suite/create";
    put(store, name, b"first", PutMode::Create).await?;
    let again = store.put(name, Bytes::from_static(b"later"), PutMode::Create).await;
    hold!(matches!(&again, Err(StoreError::Exists(n)) if n == name), "a second create gave {again:?}");
    let same = store.put(name, Bytes::from_static(b"first"), PutMode::Create).await;
    hold!(matches!(same, Err(StoreError::Exists(_))), "a second create of the same bytes gave {same:?}");
    hold!(done(store.get(name).await, name)?.0 == "first", "a refused create changed the object");
    done(store.delete(name).await, name)?;
    put(store, name, b"again", PutMode::Create).await?;
    let other = store.create(name, Bytes::from_static(b"other")).await;
    hold!(matches!(&other, Err(StoreError::Exists(n)) if n == name), "a create without version gave {other:?}");
    done(store.delete(name).await, name)?;
    done(store.create(name, Bytes::from_static(b"other")).await, name)?;
    hold!(done(store.get(name).await, name)?.0 == "other", "an object created without version is another");
    let same = store.put(name, Bytes::from_static(b"other"), PutMode::Create).await;
    hold!(matches!(same, Err(StoreError::Exists(_))), "a create of what is there gave {same:?}");
    Ok(())
}

async fn replace_compares(store: &dyn Store) -> Checked {
    let name = "suite/replace";
    let absent = store.put(name, Bytes::new(), PutMode::Replace(Version("none".to_owned()))).await;
    hold!(matches!(absent, Err(StoreError::Changed(_))), "replacing an absent object gave {absent:?}");
    let one = put(store, name, b"one", PutMode::Create).await?;
    let two = put(store, name, b"two", PutMode::Replace(one.clone())).await?;
    hold!(one != two, "two contents have one version");
    let stale = store.put(name, Bytes::from_static(b"three"), PutMode::Replace(one.clone())).await;
    hold!(matches!(&stale, Err(StoreError::Changed(n)) if n == name), "a stale replace gave {stale:?}");
    hold!(
        done(store.get(name).await, name)? == (Bytes::from_static(b"two"), two.clone()),
        "a stale replace changed it"
    );
    put(store, name, b"overwritten", PutMode::Overwrite).await?;
    let overwritten = store.put(name, Bytes::from_static(b"four"), PutMode::Replace(two)).await;
    hold!(matches!(overwritten, Err(StoreError::Changed(_))), "replace missed an overwrite: {overwritten:?}");
    let (_, present) = done(store.get(name).await, name)?;
    done(store.delete(name).await, name)?;
    let deleted = store.put(name, Bytes::from_static(b"five"), PutMode::Replace(present)).await;
    hold!(matches!(deleted, Err(StoreError::Changed(_))), "replace missed a deletion: {deleted:?}");
    Ok(())
}

async fn one_of_many_wins(store: &dyn Store) -> Checked {
    let name = "suite/race";
    let creates = (0..8).map(|i| store.put(name, Bytes::from(format!("create {i}")), PutMode::Create));
    let created = join_all(creates).await;
    let wins = created.iter().filter(|result| result.is_ok()).count();
    hold!(wins == 1, "{wins} of 8 creates of one name succeeded: {created:?}");
    let (_, version) = done(store.get(name).await, name)?;
    let replaces =
        (0..8).map(|i| store.put(name, Bytes::from(format!("replace {i}")), PutMode::Replace(version.clone())));
    let replaced = join_all(replaces).await;
    let wins = replaced.iter().filter(|result| result.is_ok()).count();
    hold!(wins == 1, "{wins} of 8 replaces of one version succeeded: {replaced:?}");
    let winner = replaced.iter().position(|result| result.is_ok()).unwrap_or_default();
    let (bytes, _) = done(store.get(name).await, name)?;
    hold!(bytes == format!("replace {winner}"), "replace {winner} won but {bytes:?} is there");
    Ok(())
}

async fn ranges_are_exact(store: &dyn Store) -> Checked {
    let name = "suite/range";
    let bytes = noise(200_000);
    put(store, name, &bytes, PutMode::Overwrite).await?;
    let ends = [0, 1, 65_535, 65_536, 65_537, 131_071, 131_072, 131_073, 199_999, 200_000];
    for (at, from) in ends.into_iter().enumerate() {
        for to in ends[at..].iter().copied() {
            let part = done(store.get_range(name, from..to).await, "range")?;
            hold!(part == bytes[from as usize..to as usize], "the bytes of {from}..{to} are others");
        }
    }
    for (from, to) in [(0, 200_001), (199_999, 200_001), (200_000, 200_001), (200_001, 200_002), (300_000, 300_010)] {
        let beyond = store.get_range(name, from..to).await;
        hold!(matches!(beyond, Err(StoreError::Range(..))), "range {from}..{to} of 200000 bytes gave {beyond:?}");
    }
    Ok(())
}

async fn listing_is_complete_and_in_order(store: &dyn Store) -> Checked {
    let mut names: Vec<String> = ["a", "a-b", "b/1", "b/2", "b/10", "b=c/d/e", "c.d", "ba/1"]
        .iter()
        .map(|name| format!("suite/list/{name}"))
        .collect();
    for name in &names {
        put(store, name, name.as_bytes(), PutMode::Overwrite).await?;
    }
    names.sort();
    for prefix in
        ["suite/list/", "suite/list/b", "suite/list/b/", "suite/list/b/1", "suite/list/zz", "suite/list/b=c/d"]
    {
        let expected: Vec<&String> = names.iter().filter(|name| name.starts_with(prefix)).collect();
        let listed = done(store.list(prefix).await, "list")?;
        let found: Vec<&String> = listed.iter().map(|info| &info.name).collect();
        hold!(found == expected, "the list of {prefix} is {found:?}, not {expected:?}");
        let sizes = listed.iter().all(|info| info.size == info.name.len() as u64);
        hold!(sizes, "the list of {prefix} has wrong sizes: {listed:?}");
        hold!(listed.iter().all(|info| info.modified_ms >= 0), "the list of {prefix} has times before 1970");
    }
    Ok(())
}

async fn deletion_is_idempotent(store: &dyn Store) -> Checked {
    let name = "suite/delete";
    put(store, name, b"x", PutMode::Overwrite).await?;
    done(store.delete(name).await, name)?;
    hold!(matches!(store.get(name).await, Err(StoreError::NotFound(_))), "a deleted object is there");
    done(store.delete(name).await, "deleting what is not there")?;
    done(store.delete("suite/no/such/place").await, "deleting what was never there")
}

async fn bad_names_are_refused(store: &dyn Store) -> Checked {
    for name in ["", "/suite", "suite/../escape", "suite//x", "suite/a b"] {
        let put = store.put(name, Bytes::from_static(b"x"), PutMode::Overwrite).await;
        hold!(put.is_err(), "an object could be named {name:?}");
    }
    Ok(())
}
