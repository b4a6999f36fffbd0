//! The generator against the null server: every operation runs, is judged, and leaves nothing.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tarn_bench::load::{Length, Operation, Plan, Site};
use tarn_bench::null;
use tarn_bench::target::Target;

fn start(log: Option<std::path::PathBuf>) -> SocketAddr {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    std::thread::spawn(move || null::serve(address, log.as_deref()).unwrap());
    while std::net::TcpStream::connect(address).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    address
}

fn measure_all(address: SocketAddr) {
    let mut target = Target::parse(&format!("nfs://{address}/null")).unwrap();
    target.pid = Some(std::process::id());
    target.core = Some(0);
    let mut site = Site::prepare(target).unwrap();
    let length = Length::Time(Duration::from_millis(50));
    let plan = Plan { connections: 3, depth: 5, warm_up: Duration::from_millis(10), length, pace: None };
    for operation in <Operation as clap::ValueEnum>::value_variants() {
        let run = site.measure(*operation, plan, 9 << 20).unwrap();
        assert!(run.calls > 0 && run.latency.len() == run.calls, "{operation:?}");
        assert!(run.spent.process.is_some() && run.spent.core.is_some());
        if operation.is_counted() {
            assert_eq!(run.calls, 9);
        }
    }
    site.remove().unwrap();
}

#[test]
fn every_operation_runs() {
    measure_all(start(None));
}

#[test]
fn every_operation_runs_with_a_log() {
    let path = std::env::temp_dir().join(format!("tarn-bench-test-{}", std::process::id()));
    measure_all(start(Some(path.clone())));
    std::fs::remove_file(path).unwrap();
}
