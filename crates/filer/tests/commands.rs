//! Commands to a running server.

mod common;

use common::server::Server;
use common::{Place, stderr, stdout};

fn run(place: &Place, args: &[&str]) -> String {
    let output = place.run(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

fn refused(place: &Place, args: &[&str]) -> String {
    let output = place.run(args);
    assert_eq!(output.status.code(), Some(61), "{args:?}: {}", stdout(&output));
    stderr(&output)
}

#[test]
fn volumes_live_and_die_while_the_server_runs() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    run(
        &place,
        &["volume", "create", "second", "--record-size", "4KiB", "--compression", "zstd", "--size-limit", "1GiB"],
    );
    let mut client = common::nfs::Client::mount(server.nfs, "/second");
    let root = client.root.clone();
    client.put(&root, "file", b"content");
    let shown = run(&place, &["volume", "show", "second"]);
    for line in ["record size       4 KiB", "compression       zstd-3", "size limit        1 GiB"] {
        assert!(shown.contains(line), "{shown}");
    }
    let shown =
        run(&place, &["volume", "set", "second", "--write-speed", "high", "--exports", "127.0.0.1 ro,insecure"]);
    assert!(shown.contains("write speed       high") && shown.contains("127.0.0.1 ro,insecure"), "{shown}");
    assert_eq!(client.write(&root, 0, b"x"), Err(30), "the export is read-only now");
    assert!(run(&place, &["volume", "list"]).contains("HIGH"));
    assert!(refused(&place, &["volume", "set", "second", "--exports", "127.0.0.1 maybe"]).contains("line 1"));
    assert!(refused(&place, &["volume", "set", "second", "--record-size", "5000"]).contains("power of two"));
    assert!(refused(&place, &["volume", "set", "third", "--record-size", "4096"]).contains("third"));
    assert!(refused(&place, &["volume", "create", "second"]).contains("exists"));
    assert!(refused(&place, &["volume", "create", "a/b"]).contains("name"));

    let kept = place.run_with(&["volume", "delete", "second"], "secnod\n");
    assert_eq!(kept.status.code(), Some(62));
    let deleted = place.run_with(&["volume", "delete", "second"], "second\n");
    assert!(deleted.status.success(), "{}", stderr(&deleted));
    assert!(run(&place, &["volume", "list"]).contains("deleted"));
    assert_eq!(client.read(&root, 0, 1), Err(70), "handles of a deleted volume are stale");
    run(&place, &["volume", "create", "second", "--record-size", "8KiB"]);
    assert!(run(&place, &["volume", "show", "second"]).contains("record size       8 KiB"), "the one that lives");
    let taken = refused(&place, &["volume", "undelete", "second"]);
    assert!(taken.contains("a volume named second is there") && taken.contains("--as NAME"), "{taken}");
    assert!(refused(&place, &["volume", "undelete", "second", "--as", "a/b"]).contains("no name for a volume"));
    assert!(refused(&place, &["volume", "undelete", "vol", "--as", "new"]).contains("no deleted volume"));
    run(&place, &["volume", "undelete", "second", "--as", "third"]);
    assert_eq!(client.get(&root, "file"), b"content");
    assert!(run(&place, &["volume", "show", "third"]).contains("record size       4 KiB"));
    server.stop();
    let server = Server::start(&place, &[]);
    assert!(run(&place, &["volume", "list"]).contains("third"));
    assert_eq!(client_of(&server, "/third").get(&root, "file"), b"content");
    server.stop();
}

fn client_of(server: &Server, export: &str) -> common::nfs::Client {
    common::nfs::Client::mount(server.nfs, export)
}

#[test]
fn a_server_says_how_it_is() {
    let place = Place::new();
    let server = Server::start(&place, &["--admin", "127.0.0.1:0"]);
    let mut client = server.mount();
    let root = client.root.clone();
    client.put(&root, "file", b"content");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let unread = place.tarn(&["status"]).stdout(writer).output().unwrap();
    assert!(unread.status.success() && unread.stderr.is_empty(), "nobody reads: {}", stderr(&unread));
    let text = run(&place, &["status"]);
    for word in ["log ", "stored ", "volume       vol"] {
        assert!(text.contains(word), "{text}");
    }
    let status: serde_json::Value = serde_json::from_str(&run(&place, &["status", "--json"])).unwrap();
    assert_eq!(status["log"]["capacity_bytes"].as_u64().unwrap() >> 20, 63, "{status}");
    assert!(status["log"]["used_bytes"].as_u64().unwrap() > 0, "{status}");
    let calls = status["operations"].as_array().unwrap().iter().find(|row| row["procedure"] == "WRITE").unwrap();
    assert_eq!(calls["count"], 1);
    assert!(run(&place, &["clients"]).contains("127.0.0.1"));
    assert!(run(&place, &["locks", "list"]).starts_with("CLIENT"));
    assert!(run(&place, &["fsck", "--deep"]).contains("clean"));
    assert!(run(&place, &["scrub"]).contains("clean"));

    let admin = status["admin"].as_str().unwrap();
    let get = |path: &str| {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(admin).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
    run(&place, &["checkpoint"]);
    run(&place, &["volume", "create", "twice"]);
    run(&place, &["volume", "delete", "twice", "--yes"]);
    run(&place, &["volume", "create", "twice"]);
    let metrics = get("/metrics");
    let mut rows: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("tarn_")).filter_map(|line| line.split(' ').next()).collect();
    rows.sort_unstable();
    let repeated: Vec<_> = rows.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(repeated.is_empty(), "Prometheus refuses a scrape with a row twice: {repeated:?}");
    for name in ["tarn_checkpoints_total ", "tarn_checkpoint_seconds_total ", "tarn_store_seconds_total{kind=\"put\"} "]
    {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        assert!(value.parse::<f64>().unwrap() > 0.0, "{name}{value}");
    }
    assert!(metrics.contains("tarn_operation_seconds_count{program=\"nfs\",procedure=\"WRITE\"} 1"), "{metrics}");
    assert!(metrics.contains("tarn_store_requests_total{kind=\"put\"}"), "{metrics}");
    assert!(get("/status").contains("\"checkpoint\""));
    server.stop();
}

#[test]
fn a_configuration_is_read_again() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    std::fs::write(place.path("small.toml"), "report.level = 'loud'\n").unwrap();
    server.hang_up();
    std::thread::sleep(std::time::Duration::from_millis(300));
    std::fs::write(place.path("small.toml"), "report.level = 'debug'\n").unwrap();
    server.hang_up();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let errors = server.stop();
    assert!(errors.contains("report.level cannot be \"loud\""), "{errors}");
    assert!(errors.contains("the level is debug"), "{errors}");
}

#[test]
fn the_service_manager_is_told() {
    let place = Place::new();
    let manager = std::os::unix::net::UnixDatagram::bind(place.path("notify")).unwrap();
    manager.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let hear = || {
        let mut buffer = [0; 1024];
        let len = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    };
    let server = Server::start_with(&place, &[], &[("NOTIFY_SOCKET", &place.shown("notify"))]);
    let ready = hear();
    assert!(ready.contains("READY=1") && ready.contains("STATUS=created a new store"), "{ready}");
    server.stop();
    assert!(hear().contains("STOPPING=1"));
}

#[test]
fn bench_hands_over_to_the_generator_or_says_where_it_should_be() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let tarn = std::path::Path::new(env!("CARGO_BIN_EXE_tarn"));
    let alone = place.path("tarn");
    std::fs::copy(tarn, &alone).unwrap();
    let command = |words: &[&str]| std::process::Command::new(&alone).args(words).env("PATH", "/").output().unwrap();
    let run = || command(&["bench", "meta", "--json"]);
    let output = run();
    assert_eq!(output.status.code(), Some(65));
    assert!(stderr(&output).contains("put tarn-bench beside tarn"), "{}", stderr(&output));
    let beside = place.path("tarn-bench");
    std::fs::write(&beside, "#!/bin/sh\necho told \"$@\"\n").unwrap();
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(stdout(&run()), "told meta --json\n");
    let size = command(&["size", "--workload", "ai-image", "--jobs", "700"]);
    assert_eq!(stdout(&size), "told size --workload ai-image --jobs 700\n");
}
