//! Every refusal of a start, as its user meets it.
//!
//! Held for each: the exit code, the whole text, that it is one line, and that nothing was created or changed.

mod common;

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::server::Server;
use common::{Place, output, stderr};

/// A code as the first start would print it, and another one.
const CODE: &str = "0000000-0000000-0000000-0000000-0000000-0000000-0000000-00A33NY";

/// Runs `tarn` and holds what it says against `code` and `text`, and the directory against itself.
fn refused(place: &Place, args: &[&str], code: i32, text: &str) {
    refused_with(place, args, "", code, text);
}

fn refused_with(place: &Place, args: &[&str], input: &str, code: i32, text: &str) {
    let before = place.contents();
    let output = place.run_with(args, input);
    assert_eq!(stderr(&output), format!("tarn: {text}\n"));
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(place.contents(), before, "something was touched: {text}");
}

#[test]
fn an_address_in_use() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(
        &place,
        &["serve", "--nfs", &address],
        20,
        &format!("the NFS address {address} is in use by another program; stop that one or choose another with --nfs"),
    );
    refused(
        &place,
        &["serve", "--nfs", "127.0.0.1:0", "--admin", &address],
        20,
        &format!(
            "the admin address {address} is in use by another program; stop that one or choose another with --admin"
        ),
    );
}

#[test]
fn an_address_that_is_not_ours() {
    refused(
        &Place::new(),
        &["serve", "--nfs", "192.0.2.1:2049"],
        22,
        "the NFS address 192.0.2.1:2049 cannot be used: Cannot assign requested address (os error 99); \
         choose another with --nfs",
    );
}

/// As a user without privileges, for what root is never refused.
#[test]
fn what_this_user_may_not() {
    let place = Place::new();
    let user = rustix::process::getuid();
    fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // A link where that is possible: a copy that another test's child still has open would be busy.
    if fs::hard_link(common::TARN, place.path("tarn")).is_err() {
        fs::copy(common::TARN, place.path("tarn")).unwrap();
    }
    let run = |args: &[&str]| {
        let mut command = place.tarn(args);
        if user.is_root() {
            command = std::process::Command::new(place.path("tarn"));
            command.args(args).current_dir(place.0.path()).uid(65_534).gid(65_534);
        } else {
            fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o555)).unwrap();
        }
        let output = output(command, "");
        fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        (output.status.code(), stderr(&output))
    };
    let data = place.0.path().display();
    let text = format!("tarn: no permission for {data}; give this user access to it or choose another with --data\n");
    assert_eq!(run(&["serve", "--nfs", "127.0.0.1:0"]), (Some(30), text));
    fs::create_dir(place.path("open")).unwrap();
    fs::set_permissions(place.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let least = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    if least.trim().parse::<u16>().unwrap_or(1024) > 1 {
        let text = "tarn: the NFS address 127.0.0.1:1 is not permitted to this user; use a port above 1023 with --nfs, or \
                    start as root\n";
        assert_eq!(run(&["serve", "--nfs", "127.0.0.1:1", "--data", "open/data"]), (Some(21), text.to_owned()));
    }
    if least.trim().parse::<u16>().unwrap_or(1024) > 111 {
        let text = "tarn: port 111 of 127.0.0.1 is not permitted to this user; start as root, or leave --portmap out\n";
        let args = ["serve", "--nfs", "127.0.0.1:0", "--portmap", "--data", "open/data"];
        assert_eq!(run(&args), (Some(21), text.to_owned()));
    }
    assert_eq!(fs::read_dir(place.path("open")).unwrap().count(), 0);
}

#[test]
fn a_configuration_that_is_not_understood() {
    let place = Place::new();
    let file = place.shown("tarn.toml");
    refused(
        &place,
        &["serve", "--config", &file],
        10,
        &format!(
            "cannot read the configuration {file}: No such file or directory (os error 2); correct the path given to \
             --config"
        ),
    );
    refused(
        &place,
        &["serve", "--config", "/dev/zero"],
        10,
        "cannot read the configuration /dev/zero: it is longer than 1 MiB, which no configuration is; correct the path \
         given to --config",
    );
    fs::write(&file, "[nfs]\nlisten = '127.0.0.1:0'\nprotmap = true\n").unwrap();
    refused(
        &place,
        &["serve", "--config", &file],
        11,
        &format!(
            "the configuration {file} has an unknown or malformed entry: line 3: unknown field `protmap`, expected one \
             of `listen`, `portmap`, `cores`, `slow_operation`; docs/config.md lists every key"
        ),
    );
    fs::write(&file, "[log]\nsize = '8GB'\n").unwrap();
    refused(
        &place,
        &["serve", "--config", &file],
        12,
        "log.size cannot be 8GB: \"8GB\" is not a size; write 4096, 64KiB, 512MiB, 8GiB or 2TiB",
    );
}

#[test]
fn a_second_server_on_the_same_data() {
    let place = Place::new();
    fs::create_dir(place.path("data")).unwrap();
    fs::write(place.path("data/lock"), "4711\n").unwrap();
    let lock = fs::File::open(place.path("data/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let data = place.shown("data");
    refused(
        &place,
        &["serve", "--nfs", "127.0.0.1:0", "--data", "data"],
        31,
        &format!("another tarn (process 4711) serves {data}; stop it first, or choose another directory with --data"),
    );
}

#[test]
fn data_of_a_newer_version() {
    let place = Place::new();
    fs::create_dir(place.path("data")).unwrap();
    fs::write(place.path("data/format"), "tarn data directory, format 9\n").unwrap();
    let data = place.shown("data");
    refused(
        &place,
        &["serve", "--nfs", "127.0.0.1:0", "--data", "data"],
        32,
        &format!("{data} was written by a newer tarn (format 9); use that version or a later one"),
    );
}

#[test]
fn a_log_that_would_not_survive() {
    let place = Place::new();
    if !fs::read_to_string("/proc/mounts").unwrap().lines().any(|line| line.contains(" /dev/shm tmpfs ")) {
        println!("SKIPPED a_log_that_would_not_survive: needs a tmpfs at /dev/shm");
        return;
    }
    refused(
        &place,
        &["serve", "--nfs", "127.0.0.1:0", "--log", "/dev/shm/tarn-refusals"],
        33,
        "the log may not be on tmpfs (/dev/shm/tarn-refusals): it would not survive a power loss; choose a local disk with \
         --log, or accept the loss with --unsafe-log",
    );
    assert!(!fs::exists("/dev/shm/tarn-refusals").unwrap());
}

#[test]
fn a_log_without_room() {
    let place = Place::new();
    fs::write(place.path("c"), "log.size = '8TiB'\nnfs.listen = '127.0.0.1:0'\n").unwrap();
    let output = place.run(&["serve", "--config", "c", "--unsafe-log"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(34), "{text}");
    assert!(text.starts_with("tarn: the log needs 8 TiB on "), "{text}");
    assert!(text.ends_with(" are free; make room or set log.size smaller\n"), "{text}");
    assert!(!place.path("tarn-data").exists());
}

#[test]
fn a_place_that_is_no_directory() {
    let place = Place::new();
    fs::write(place.path("data"), "a file").unwrap();
    let data = place.shown("data");
    refused(
        &place,
        &["serve", "--nfs", "127.0.0.1:0", "--data", "data"],
        35,
        &format!("cannot use {data}: it is not a directory; choose another with --data"),
    );
}

#[test]
fn keys_that_do_not_do() {
    let place = Place::new();
    let key = place.shown("key");
    let serve = ["serve", "--nfs", "127.0.0.1:0", "--unsafe-log", "--key-file", &key];
    fs::write(&key, "not a key\n").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    refused(
        &place,
        &serve,
        41,
        &format!("the key file {key} can be read by others (mode 0644); protect it with `chmod 600 {key}`"),
    );
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    refused(
        &place,
        &serve,
        40,
        &format!(
            "cannot read the key file {key}: it does not hold 64 hexadecimal digits; give this user access to it, or make \
             it with `tarn key import`"
        ),
    );
}

#[test]
fn a_new_store_elsewhere_without_a_key() {
    let place = Place::new();
    let store = format!("file://{}", place.shown("bucket"));
    refused(
        &place,
        &["serve", "--nfs", "127.0.0.1:0", "--unsafe-log", "--store", &store],
        43,
        &format!(
            "{store} is new and no key was given for it; give one with --key-file PATH (made there) or TARN_PASSPHRASE"
        ),
    );
}

/// An empty directory where a store was is a disk that is not mounted, not a place for a new store.
#[test]
fn a_log_whose_store_is_not_there() {
    let place = Place::new();
    Server::start(&place, &[]).stop();
    fs::rename(place.path("tarn-data/objects"), place.path("away")).unwrap();
    let log = place.shown("tarn-data/log/tarn.log");
    let args = ["serve", "--config", "small.toml"];
    let text = |store: &str| {
        format!(
            "the log {log} cannot be used: it is in use for a store, and file://{store} holds none; bring that store back \
             (is the disk mounted?), or choose another place for the log with --log"
        )
    };
    refused(&place, &args, 53, &text(&place.shown("tarn-data/objects")));
    fs::create_dir(place.path("tarn-data/objects")).unwrap();
    refused(&place, &args, 53, &text(&place.shown("tarn-data/objects")));
    let store = format!("file://{}", place.shown("elsewhere"));
    let other = [&args[..], &["--store", &store, "--key-file", "other"]].concat();
    refused(&place, &other, 53, &text(&place.shown("elsewhere")));
    fs::remove_dir(place.path("tarn-data/objects")).unwrap();
    fs::rename(place.path("away"), place.path("tarn-data/objects")).unwrap();
    Server::start(&place, &[]).stop();
}

/// Neither is it when the log went with it.
#[test]
fn a_store_that_was_served_from_here_is_not_there() {
    let place = Place::new();
    Server::start(&place, &[]).stop();
    fs::rename(place.path("tarn-data/objects"), place.path("away")).unwrap();
    fs::remove_dir_all(place.path("tarn-data/log")).unwrap();
    let args = ["serve", "--config", "small.toml"];
    let (store, note) = (place.shown("tarn-data/objects"), place.shown("tarn-data/store"));
    let text = format!(
        "the store file://{store} is not there, or not all of it: it holds nothing, and {note} says that it was served \
         from here; bring it back (is the disk mounted?), or begin a new one in another directory with --data"
    );
    refused(&place, &args, 55, &text);
    fs::create_dir(&store).unwrap();
    refused(&place, &args, 55, &text);
    fs::remove_dir(&store).unwrap();
    // By another name it is the same, and so it is in a data directory that was renamed.
    std::os::unix::fs::symlink(place.path("tarn-data"), place.path("link")).unwrap();
    let linked = place.shown("link/objects");
    let url = format!("file://{linked}");
    refused(&place, &[&args[..], &["--store", &url]].concat(), 55, &text.replace(&store, &linked));
    fs::rename(place.path("tarn-data"), place.path("renamed")).unwrap();
    let renamed = text.replace("tarn-data", "renamed");
    refused(&place, &[&args[..], &["--data", "renamed"]].concat(), 55, &renamed);
    fs::rename(place.path("renamed"), place.path("tarn-data")).unwrap();
    // A note that cannot be understood is no reason to begin.
    let noted = fs::read(&note).unwrap();
    for words in [&b""[..], b"tarn store, format 2\nfile:///elsewhere\n", b"\xff"] {
        fs::write(&note, words).unwrap();
        let text = format!(
            "cannot use {note}: it does not say which store was served from here; remove it if the store is to be a new one"
        );
        refused(&place, &args, 35, &text);
    }
    fs::write(&note, noted).unwrap();
    fs::rename(place.path("away"), &store).unwrap();
    fs::rename(place.path("tarn-data/objects/owner"), place.path("owner")).unwrap();
    let count =
        count_objects(&place.path("tarn-data/objects/meta")) + count_objects(&place.path("tarn-data/objects/segments"));
    let text = format!(
        "the store file://{store} is not there, or not all of it: {count} objects of a store are there, but not its owner \
         record; put the object owner back"
    );
    refused(&place, &args, 55, &text);
    fs::rename(place.path("owner"), place.path("tarn-data/objects/owner")).unwrap();
    Server::start(&place, &[]).stop();
}

/// Outside the data directory a store goes by its place, whether or not its directory is there.
#[test]
fn a_store_elsewhere_that_is_gone_is_known_by_another_name() {
    let place = Place::new();
    fs::create_dir(place.path("real")).unwrap();
    std::os::unix::fs::symlink(place.path("real"), place.path("link")).unwrap();
    let [real, link] = ["real/s", "link/s"].map(|name| format!("file://{}", place.shown(name)));
    for (served, named) in [(&real, &link), (&link, &real)] {
        Server::start(&place, &["--store", served, "--key-file", "key"]).stop();
        fs::remove_dir_all(place.path("real/s")).unwrap();
        fs::remove_dir_all(place.path("tarn-data/log")).unwrap();
        let note = place.shown("tarn-data/store");
        let args = ["serve", "--config", "small.toml", "--store", named, "--key-file", "key"];
        let text = format!(
            "the store {named} is not there, or not all of it: it holds nothing, and {note} says that it was served from \
             here; bring it back (is the disk mounted?), or begin a new one in another directory with --data"
        );
        refused(&place, &args, 55, &text);
        fs::remove_file(&note).unwrap();
    }
}

/// The log that is made for the refused start is in nobody's way afterwards.
#[test]
fn metadata_that_was_put_back_is_refused_until_the_newest_is_back() {
    let place = Place::new();
    Server::start(&place, &[]).stop();
    let meta = place.path("tarn-data/objects/meta");
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    };
    copy(&meta, &place.path("earlier"));
    Server::start(&place, &[]).stop();
    fs::rename(&meta, place.path("present")).unwrap();
    copy(&place.path("earlier"), &meta);
    fs::remove_file(place.path("tarn-data/log/tarn.log")).unwrap();
    let output = place.run(&["serve", "--config", "small.toml"]);
    assert_eq!(output.status.code(), Some(54), "{}", stderr(&output));
    assert!(stderr(&output).contains("nothing was changed here"), "{}", stderr(&output));
    fs::remove_dir_all(&meta).unwrap();
    fs::rename(place.path("present"), &meta).unwrap();
    Server::start(&place, &[]).stop();
}

/// Files below `dir`, which need not be there.
fn count_objects(dir: &std::path::Path) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.map(|path| if path.is_dir() { count_objects(&path) } else { 1 }).sum()
}

#[test]
fn a_store_that_cannot_be_named_so() {
    refused(
        &Place::new(),
        &["serve", "--nfs", "127.0.0.1:0", "--store", "gopher://bucket"],
        50,
        "the store gopher://bucket cannot be named so: \"gopher://bucket\" is not a store URL; use file:///DIR, \
         s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or mem://",
    );
}

#[test]
fn a_store_directory_with_something_else_in_it() {
    let place = Place::new();
    fs::create_dir(place.path("photos")).unwrap();
    fs::write(place.path("photos/summer"), "").unwrap();
    let store = format!("file://{}", place.shown("photos"));
    refused(
        &place,
        &["serve", "--nfs", "127.0.0.1:0", "--unsafe-log", "--store", &store, "--key-file", "key"],
        51,
        &format!(
            "the store {store} cannot be used: the directory holds something that is not Tarn's; choose an empty one with \
             --store"
        ),
    );
}

#[test]
fn recovery_codes_that_are_none() {
    let place = Place::new();
    let bad = CODE.replace("A33NY", "A33NZ");
    refused_with(
        &place,
        &["key", "import"],
        &bad,
        45,
        "this is not a recovery code: its check does not fit, so a character is mistyped; compare it with what the first \
         start or `tarn key export` printed",
    );
    refused_with(
        &place,
        &["key", "import"],
        "",
        45,
        "this is not a recovery code: a code has 56 letters and digits; compare it with what the first start or `tarn key \
         export` printed",
    );
}

#[test]
fn a_command_without_a_server() {
    let place = Place::new();
    let data = place.shown("tarn-data");
    for command in [&["status"][..], &["clients"], &["locks", "list"], &["volume", "list"], &["checkpoint"], &["scrub"]]
    {
        refused(&place, command, 60, &format!("no tarn serves {data}; start it with `tarn serve --data {data}`"));
    }
}

#[test]
fn a_deletion_that_is_not_confirmed() {
    refused_with(
        &Place::new(),
        &["volume", "delete", "vol"],
        "something else\n",
        62,
        "not confirmed, nothing was changed; type the name \"vol\" when asked, or give --yes",
    );
}

#[test]
fn portmap_where_another_one_is() {
    let place = Place::new();
    // Only root may take the port; whoever is not is told so.
    let taken = UdpSocket::bind("127.0.0.1:111");
    let output = place.run(&["serve", "--nfs", "127.0.0.1:0", "--portmap", "--unsafe-log"]);
    let expected = match taken {
        Ok(_) => 20,
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => 20,
        Err(_) => 21,
    };
    assert_eq!(output.status.code(), Some(expected), "{}", stderr(&output));
    assert!(!place.path("tarn-data").exists());
}
