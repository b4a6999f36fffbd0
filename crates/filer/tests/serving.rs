//! A server's life as its user sees it: first start, later starts, kills, moves; nothing acknowledged is lost.

mod common;

use common::nfs::Client;
use common::server::Server;
use common::{Place, output, stderr, stdout};

/// Bytes that do not repeat and do not compress away.
fn content(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn a_first_start_creates_and_a_later_one_recovers() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let code = server.recovery_code().expect("the recovery code is printed once");
    let port = server.nfs.port();
    assert!(server.banner.contains(&format!(
        "mount -t nfs -o vers=3,proto=tcp,port={port},mountproto=tcp,mountport={port},nolock 127.0.0.1:/vol /mnt\n"
    )));
    let mut client = server.mount();
    let root = client.root.clone();
    let file = client.put(&root, "hello", b"from the first start");
    server.stop();

    let server = Server::start(&place, &[]);
    assert_eq!(server.recovery_code(), None, "{}", server.banner);
    assert!(!server.banner.contains("created"), "{}", server.banner);
    let mut client = server.mount();
    assert_eq!(client.root, root, "handles stay");
    assert_eq!(client.get(&root, "hello"), b"from the first start");
    assert_eq!(client.read(&file, 0, 100).unwrap(), b"from the first start");
    let exported = place.run(&["key", "export"]);
    assert_eq!(stdout(&exported).trim(), code);
    server.stop();
}

#[test]
fn what_was_acknowledged_before_a_kill_is_there() {
    let place = Place::new();
    let data = content(3 << 20);
    let server = Server::start(&place, &[]);
    let mut client = server.mount();
    let root = client.root.clone();
    for round in 0..3 {
        let dir = client.mkdir(&root, &format!("dir{round}")).unwrap();
        client.put(&dir, "large", &data);
        for index in 0..50 {
            client.put(&dir, &format!("small{index}"), format!("{round} {index}").as_bytes());
        }
        if round == 1 {
            assert!(place.run(&["checkpoint"]).status.success());
        }
    }
    server.kill();
    let server = Server::start(&place, &[]);
    let mut client = server.mount();
    for round in 0..3 {
        let dir = client.lookup(&root, &format!("dir{round}")).unwrap();
        assert!(client.get(&dir, "large") == data, "round {round}");
        for index in 0..50 {
            assert_eq!(client.get(&dir, &format!("small{index}")), format!("{round} {index}").as_bytes());
        }
    }
    server.stop();
    let checked = place.run(&["fsck"]);
    assert!(checked.status.success(), "{}{}", stdout(&checked), stderr(&checked));
}

#[test]
fn bucket_and_recovery_code_alone_give_everything_back() {
    let place = Place::new();
    let data = content(1 << 20);
    let server = Server::start(&place, &[]);
    let code = server.recovery_code().unwrap();
    let mut client = server.mount();
    let root = client.root.clone();
    let file = client.put(&root, "large", &data);
    server.stop();
    std::fs::rename(place.path("tarn-data/objects"), place.path("bucket")).unwrap();
    std::fs::remove_dir_all(place.path("tarn-data")).unwrap();

    let store = format!("file://{}", place.shown("bucket"));
    let args = ["--store", &store, "--data", "elsewhere"];
    let imported = place.run_with(&["key", "import", "--data", "elsewhere"], &code);
    assert!(imported.status.success(), "{}", stderr(&imported));
    let server = Server::start(&place, &args);
    let mut client = Client::mount(server.nfs, "/vol");
    assert_eq!(client.root, root);
    assert!(client.read(&file, 0, 4096).unwrap() == data[..4096]);
    assert!(client.get(&root, "large") == data);
    server.stop();

    let server = Server::start_with(&place, &["--store", &store, "--data", "third"], &[("TARN_RECOVERY_CODE", &code)]);
    assert!(server.mount().get(&root, "large") == data);
    server.stop();
}

#[test]
fn a_killed_nodes_log_and_the_bucket_recover_on_another_data_directory() {
    let place = Place::new();
    let store = format!("file://{}", place.shown("bucket"));
    let server = Server::start(&place, &["--store", &store, "--key-file", "key"]);
    let mut client = server.mount();
    let root = client.root.clone();
    client.put(&root, "stored", b"one");
    assert!(place.run(&["checkpoint"]).status.success());
    client.put(&root, "logged", b"two");
    server.kill();
    std::fs::create_dir(place.path("second")).unwrap();
    std::fs::rename(place.path("tarn-data/log"), place.path("second/log")).unwrap();

    let args = ["--store", &store, "--key-file", "key", "--data", "third"];
    let refused = place.run(&[&["serve", "--unsafe-log", "--nfs", "127.0.0.1:0"][..], &args].concat());
    assert_eq!(refused.status.code(), Some(52), "{}", stderr(&refused));
    assert_eq!(stderr(&refused).lines().count(), 1);

    let server = Server::start(&place, &["--store", &store, "--key-file", "key", "--data", "second"]);
    let mut client = server.mount();
    assert_eq!(client.get(&root, "stored"), b"one");
    assert_eq!(client.get(&root, "logged"), b"two");
    server.stop();
}

#[test]
fn keys_and_passphrases_that_are_not_the_stores() {
    let place = Place::new();
    let store = format!("file://{}", place.shown("bucket"));
    let args = ["--store", &store, "--data", "data"];
    let passphrase = [("TARN_PASSPHRASE", "clear water")];
    let server = Server::start_with(&place, &args, &passphrase);
    let code = server.recovery_code().unwrap();
    let root = server.mount().root;
    server.mount().put(&root, "file", b"content");
    server.stop();
    assert!(!place.path("data/key").exists());
    let serve = [&["serve", "--unsafe-log", "--nfs", "127.0.0.1:0"][..], &args].concat();
    let refuse = |environment: &[(&str, &str)], code: i32| {
        let mut command = place.tarn(&serve);
        command.envs(environment.iter().copied());
        let before = place.contents();
        let refused = output(command, "");
        assert_eq!(refused.status.code(), Some(code), "{}", stderr(&refused));
        assert_eq!(stderr(&refused).lines().count(), 1, "{}", stderr(&refused));
        assert!(place.contents() == before, "something was touched");
    };
    refuse(&[("TARN_PASSPHRASE", "clear winter")], 42);
    refuse(&[("TARN_RECOVERY_CODE", "0000000-0000000-0000000-0000000-0000000-0000000-0000000-0000000")], 45);
    refuse(&[], 44);
    let server = Server::start_with(&place, &args, &passphrase);
    assert_eq!(server.mount().get(&root, "file"), b"content");
    server.stop();
    let server = Server::start_with(&place, &args, &[("TARN_RECOVERY_CODE", &code)]);
    assert_eq!(server.mount().get(&root, "file"), b"content");
    server.stop();
    assert!(place.path("data/key").exists());
}

#[test]
fn nothing_readable_reaches_disk_or_bucket() {
    const NAME: &str = "planted-name-of-a-file";
    const CONTENT: &[u8] = b"planted content that nobody shall read ";
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let mut client = server.mount();
    let root = client.root.clone();
    let dir = client.mkdir(&root, &format!("{NAME}-directory")).unwrap();
    client.put(&dir, NAME, &CONTENT.repeat(4000));
    client.put(&root, "small", CONTENT);
    assert!(place.run(&["checkpoint"]).status.success());
    client.put(&dir, &format!("{NAME}-2"), CONTENT);
    let look = |moment: &str| {
        let (mut seen, mut control) = (0, 0);
        for (path, bytes) in place.contents() {
            seen += bytes.len();
            // What is known to be readable is found, so the search can find.
            control += usize::from(bytes.windows(9).any(|window| window == b"directory"));
            for needle in [NAME.as_bytes(), &CONTENT[..20]] {
                let found = bytes.windows(needle.len()).any(|window| window == needle);
                assert!(!found, "{moment}: {} shows {}", path.display(), String::from_utf8_lossy(needle));
            }
        }
        assert!(seen > 64 << 20 && control > 0, "the log and the objects were looked at");
    };
    look("while serving");
    server.stop();
    look("after a stop");
}

#[test]
fn a_first_start_that_is_killed_is_taken_up_by_the_next() {
    for delay_ms in [5, 20, 35, 50, 65, 80, 100, 130] {
        let place = Place::new();
        std::fs::write(place.path("small.toml"), common::server::SMALL).unwrap();
        let mut first = place.tarn(&["serve", "--config", "small.toml"]);
        let mut first = first.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        first.kill().unwrap();
        first.wait().unwrap();
        let server = Server::start(&place, &[]);
        let mut client = server.mount();
        let root = client.root.clone();
        client.put(&root, "file", b"content");
        server.stop();
        assert!(place.run(&["key", "export"]).status.success(), "after {delay_ms} ms");
    }
}

#[test]
fn a_store_directory_whose_making_was_interrupted_is_made() {
    for left in ["", ".tarn", ".tarn/staging"] {
        let place = Place::new();
        std::fs::create_dir_all(place.path("tarn-data/objects").join(left)).unwrap();
        Server::start(&place, &[]).stop();
        std::fs::remove_file(place.path("tarn-data/objects/.tarn/lock")).unwrap();
        let refused = place.run(&["serve", "--config", "small.toml"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("it has no .tarn/lock"), "{said}");
    }
}

#[test]
fn a_stop_amid_writes_keeps_what_was_acknowledged() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let root = server.mount().root;
    let (told, acknowledged) = std::sync::mpsc::channel();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (mut client, root, told) = (server.mount(), root.clone(), told.clone());
            std::thread::spawn(move || {
                for index in 0.. {
                    let name = format!("{writer}-{index}");
                    // The server going away ends the thread by a panic of the client.
                    client.put(&root, &name, name.as_bytes());
                    told.send(name).unwrap();
                }
            })
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(500));
    server.stop();
    writers.into_iter().for_each(|writer| assert!(writer.join().is_err()));
    drop(told);
    let server = Server::start(&place, &[]);
    assert!(server.banner.contains("recovered after a clean stop"), "{}", server.banner);
    let mut client = server.mount();
    let names: Vec<String> = acknowledged.iter().collect();
    assert!(names.len() > 20, "{} files were acknowledged", names.len());
    for name in names {
        assert_eq!(client.get(&root, &name), name.as_bytes());
    }
    server.stop();
}

#[test]
fn a_store_is_taken_over_without_its_log_only_when_told_so() {
    let place = Place::new();
    let store = format!("file://{}", place.shown("bucket"));
    let args = ["--store", &store, "--key-file", "key"];
    let server = Server::start(&place, &args);
    let mut client = server.mount();
    let root = client.root.clone();
    client.put(&root, "stored", b"one");
    assert!(place.run(&["checkpoint"]).status.success());
    client.put(&root, "logged", b"two");
    server.kill();

    let elsewhere = [&args[..], &["--data", "elsewhere"]].concat();
    let refused = place.run(&[&["serve", "--unsafe-log", "--nfs", "127.0.0.1:0"][..], &elsewhere].concat());
    assert_eq!(refused.status.code(), Some(52), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("--take"), "{}", stderr(&refused));
    assert!(!place.path("elsewhere").exists());

    let server = Server::start(&place, &[&elsewhere[..], &["--take"]].concat());
    assert!(server.banner.contains("took the store over"), "{}", server.banner);
    let mut client = server.mount();
    assert_eq!(client.get(&root, "stored"), b"one", "handles stay");
    assert_eq!(client.lookup(&root, "logged"), Err(2), "only the lost log had it");
    client.put(&root, "new", b"three");
    server.stop();

    let refused = place.run(&[&["serve", "--unsafe-log", "--nfs", "127.0.0.1:0"][..], &args].concat());
    assert_eq!(refused.status.code(), Some(53), "{}", stderr(&refused));
    assert_eq!(stderr(&refused).lines().count(), 1);
    let server = Server::start(&place, &elsewhere);
    assert_eq!(server.mount().get(&root, "new"), b"three");
    server.stop();
}

/// Its heartbeat cannot tell anybody that another has taken the store, and must go on all the same.
#[test]
fn a_node_that_nobody_hears_does_not_serve_on_after_a_takeover() {
    let place = Place::new();
    let store = format!("file://{}", place.shown("bucket"));
    let args = ["--store", &store, "--key-file", "key"];
    let old = Server::start_unheard(&place, &args);
    let mut client = old.mount();
    let root = client.root.clone();
    client.put(&root, "before", b"one");
    assert!(place.run(&["checkpoint"]).status.success());
    let new = Server::start(&place, &[&args[..], &["--data", "elsewhere", "--take"]].concat());
    new.mount().put(&root, "new", b"two");
    assert!(client.is_cut_off(), "another owns the store");
    new.stop();
}

#[test]
fn a_store_of_a_newer_version_is_left_alone() {
    let place = Place::new();
    Server::start(&place, &[]).stop();
    let path = place.path("tarn-data/objects/owner");
    let mut owner = std::fs::read(&path).unwrap();
    owner[8] = 9;
    let body = owner.len() - 4;
    let crc = tarn_base::crc32c(&owner[..body]);
    owner[body..].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, owner).unwrap();
    let before = place.contents();
    let refused = place.run(&["serve", "--unsafe-log", "--nfs", "127.0.0.1:0"]);
    assert_eq!(refused.status.code(), Some(32), "{}", stderr(&refused));
    let store = place.shown("tarn-data/objects");
    assert_eq!(
        stderr(&refused),
        format!("tarn: file://{store} was written by a newer tarn (format 9); use that version or a later one\n")
    );
    assert!(place.contents() == before, "something was touched");
}
