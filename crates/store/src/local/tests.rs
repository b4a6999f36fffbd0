use std::fs;

use bytes::Bytes;

use super::*;
use crate::suite;

fn put(store: &LocalStore, name: &str, text: &'static str, mode: PutMode) -> StoreResult<Version> {
    futures::executor::block_on(store.put(name, Bytes::from(text), mode))
}

fn get(store: &LocalStore, name: &str) -> StoreResult<Bytes> {
    futures::executor::block_on(store.get(name)).map(|(bytes, _)| bytes)
}

#[test]
fn it_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::open(&directory.path().join("made/on/the/way"), true).unwrap();
    futures::executor::block_on(suite::check(&store)).unwrap();
}

#[test]
fn an_object_is_a_file_of_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::open(directory.path(), true).unwrap();
    put(&store, "a/b", "text", PutMode::Create).unwrap();
    assert_eq!(fs::read(directory.path().join("a/b")).unwrap(), b"text");
    drop(store);
    let store = LocalStore::open(directory.path(), false).unwrap();
    assert_eq!(get(&store, "a/b").unwrap(), "text");
}

#[test]
fn nothing_is_opened_that_is_not_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let missing = LocalStore::open(&directory.path().join("missing"), false).unwrap_err();
    assert!(missing.to_string().contains("there is no store directory"), "{missing}");
    assert!(!directory.path().join("missing").exists());
    let plain = LocalStore::open(directory.path(), false).unwrap_err();
    assert!(plain.to_string().contains("is not a store directory"), "{plain}");
}

#[test]
fn staging_files_go_unless_their_writer_lives() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::open(directory.path(), true).unwrap();
    let staging = directory.path().join(".tarn/staging");
    fs::write(staging.join("1-0"), "half").unwrap();
    let files = store.files();
    let live = files.stage(b"whole").unwrap();
    assert_eq!(fs::read_dir(&staging).unwrap().count(), 2);
    LocalStore::open(directory.path(), false).unwrap();
    assert_eq!(fs::read_dir(&staging).unwrap().count(), 1);
    live.rename_to("object").unwrap();
    drop(live);
    assert_eq!(fs::read_dir(&staging).unwrap().count(), 0);
    assert_eq!(get(&store, "object").unwrap(), "whole");
    put(&store, "other", "text", PutMode::Create).unwrap();
    put(&store, "other", "text", PutMode::Create).unwrap_err();
    put(&store, "other", "text", PutMode::Overwrite).unwrap();
    assert_eq!(fs::read_dir(&staging).unwrap().count(), 0);
}

#[test]
fn a_removed_directory_is_told_and_not_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = LocalStore::open(&path, true).unwrap();
    put(&store, "a/b", "text", PutMode::Create).unwrap();
    fs::remove_dir_all(&path).unwrap();
    let told = |error: StoreError| assert!(error.to_string().contains("was removed"), "{error}");
    told(put(&store, "a/b", "text", PutMode::Overwrite).unwrap_err());
    told(put(&store, "c", "text", PutMode::Create).unwrap_err());
    told(get(&store, "a/b").unwrap_err());
    told(futures::executor::block_on(store.list("")).unwrap_err());
    told(futures::executor::block_on(store.head("a/b")).unwrap_err());
    told(futures::executor::block_on(store.delete("a/b")).unwrap_err());
    assert!(!path.exists());
}

#[test]
fn a_part_that_was_taken_away_is_not_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, away) = (directory.path().join("store"), directory.path().join("away"));
    put(&LocalStore::open(&path, true).unwrap(), "a/b/c", "text", PutMode::Create).unwrap();
    for made_by_us in [false, true] {
        let store = LocalStore::open(&path, false).unwrap();
        if made_by_us {
            put(&store, "a/b/d", "text", PutMode::Overwrite).unwrap();
        }
        fs::rename(path.join("a"), &away).unwrap();
        for name in ["a/b/d", "a/e"] {
            let told = put(&store, name, "text", PutMode::Overwrite).unwrap_err().to_string();
            assert!(made_by_us || told.contains("moved away; put it back"), "{told}");
        }
        assert!(!path.join("a").exists());
        put(&store, "other/b", "text", PutMode::Overwrite).unwrap();
        fs::rename(&away, path.join("a")).unwrap();
        put(&store, "a/b/d", "text", PutMode::Overwrite).unwrap();
        fs::rename(path.join("a/b"), &away).unwrap();
        for _ in 0..3 {
            put(&store, "a/b/d", "text", PutMode::Overwrite).unwrap_err();
        }
        assert!(!path.join("a/b").exists());
        fs::rename(&away, path.join("a/b")).unwrap();
        put(&store, "a/b/d", "text", PutMode::Overwrite).unwrap();
        put(&store, "a/e/f", "text", PutMode::Overwrite).unwrap();
    }
}

#[test]
fn a_part_that_could_not_be_made_is_made_later() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::open(directory.path(), true).unwrap();
    // A file is in the way of the directory.
    fs::write(directory.path().join("a"), "").unwrap();
    put(&store, "a/b", "text", PutMode::Create).unwrap_err();
    fs::remove_file(directory.path().join("a")).unwrap();
    put(&store, "a/b", "text", PutMode::Create).unwrap();
}

#[test]
fn a_directory_that_was_put_back_is_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, away) = (directory.path().join("store"), directory.path().join("away"));
    let store = LocalStore::open(&path, true).unwrap();
    put(&store, "a", "text", PutMode::Create).unwrap();
    fs::rename(&path, &away).unwrap();
    // Reading goes on; what would change something is not done where nobody looks for it.
    assert_eq!(get(&store, "a").unwrap(), "text");
    assert!(put(&store, "b", "x", PutMode::Create).unwrap_err().to_string().contains("moved away"));
    assert!(futures::executor::block_on(store.delete("a")).is_err());
    fs::create_dir(&path).unwrap();
    let told = put(&store, "b", "x", PutMode::Create).unwrap_err().to_string();
    assert!(told.contains("another directory has taken its place"), "{told}");
    assert!(fs::read_dir(&path).unwrap().next().is_none() && !away.join("b").exists());
    fs::remove_dir(&path).unwrap();
    fs::rename(&away, &path).unwrap();
    put(&store, "b", "x", PutMode::Create).unwrap();
    // A copy in its place, the first one deleted.
    LocalStore::open(&away, true).unwrap();
    fs::copy(path.join("a"), away.join("a")).unwrap();
    fs::remove_dir_all(&path).unwrap();
    assert!(get(&store, "a").is_err());
    fs::rename(&away, &path).unwrap();
    assert_eq!(get(&store, "a").unwrap(), "text");
    assert!(matches!(get(&store, "b"), Err(StoreError::NotFound(_))));
    put(&store, "c", "x", PutMode::Create).unwrap();
    assert!(path.join("c").exists());
}

#[test]
fn our_own_directory_holds_no_objects() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::open(directory.path(), true).unwrap();
    assert!(put(&store, ".tarn/lock", "x", PutMode::Overwrite).is_err());
    assert!(get(&store, ".tarn/lock").is_err());
    put(&store, "a/.tarn/x", "x", PutMode::Overwrite).unwrap();
    let listed = futures::executor::block_on(store.list("")).unwrap();
    assert_eq!(listed.iter().map(|info| &info.name[..]).collect::<Vec<_>>(), ["a/.tarn/x"]);
}

#[test]
fn an_object_is_not_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::open(directory.path(), true).unwrap();
    put(&store, "a/b", "x", PutMode::Create).unwrap();
    assert!(matches!(put(&store, "a", "x", PutMode::Overwrite), Err(StoreError::Denied(_))));
    assert!(put(&store, "a/b/c", "x", PutMode::Overwrite).is_err());
    assert!(matches!(get(&store, "a"), Err(StoreError::NotFound(_))));
    assert!(matches!(get(&store, "a/b/c"), Err(StoreError::NotFound(_))));
    assert!(futures::executor::block_on(store.delete("a")).is_ok());
    assert_eq!(get(&store, "a/b").unwrap(), "x");
}

/// Counts up by compare-and-swap from several threads and two handles; each step may succeed once only.
#[test]
fn competing_writers_lose_no_step() {
    let directory = tempfile::tempdir().unwrap();
    let stores = [LocalStore::open(directory.path(), true), LocalStore::open(directory.path(), false)];
    let stores = stores.map(Result::unwrap);
    futures::executor::block_on(stores[0].put("count", Bytes::from("0"), PutMode::Create)).unwrap();
    let step = |store: &LocalStore| loop {
        let (bytes, version) = futures::executor::block_on(store.get("count")).unwrap();
        let count: u32 = std::str::from_utf8(&bytes).unwrap().parse().unwrap();
        let next = Bytes::from((count + 1).to_string());
        match futures::executor::block_on(store.put("count", next, PutMode::Replace(version))) {
            Ok(_) => return,
            Err(StoreError::Changed(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &stores[thread % 2];
            scope.spawn(move || (0..25).for_each(|_| step(store)));
        }
    });
    assert_eq!(get(&stores[0], "count").unwrap(), "100");
}

#[test]
fn room_is_kept_back_while_there_is_plenty_and_given_up_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::open(directory.path(), true).unwrap();
    let file = directory.path().join(".tarn/reserve");
    assert!(!file.exists());
    put(&store, "object", "text", PutMode::Create).unwrap();
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&file).unwrap()) * 512;
    assert!(blocks() >= reserve::SIZE);
    let root = std::os::fd::OwnedFd::from(fs::File::open(directory.path()).unwrap());
    let reserve = reserve::Reserve::default();
    assert!(reserve.give_up(&root), "an earlier process may have taken it");
    assert_eq!(blocks(), 0);
    assert!(!reserve.give_up(&root));
    reserve.take(&root);
    assert!(blocks() >= reserve::SIZE);
    assert_eq!(store.files().list("").unwrap().len(), 1, "it is no object");
}
