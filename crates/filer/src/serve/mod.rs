//! A server from start to end.
//!
//! The order of a start: settings, places and addresses are judged; the key is found and held against the store;
//! only then is anything made; the engine recovers; connections are accepted.
//! The order of an end: no more connections, a checkpoint, a clean close, the log's thread, the lock.

mod banner;
mod cores;
mod sockets;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tarn_base::world::World;
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::service::{About, Service};
use crate::admin::{http, socket};
use crate::config::{Flags, Settings};
use crate::exit::{Outcome, Stop};
use crate::flush::{Flusher, Waker};
use crate::front::Front;
use crate::node::{self, Node, Opening};
use crate::{place, report, world};
use cores::Cores;
use sockets::Sockets;

/// The weight of a thread of this niceness is a tenth of an ordinary one's.
const BULK_NICE: i32 = 10;
/// Of one of this, a fifteenth: two merges beside each other have little more than a checkpoint.
const MERGING_NICE: i32 = 12;

/// Serves until a signal ends it.
pub fn run(flags: Flags) -> Outcome<()> {
    let started = Instant::now();
    let settings = Settings::gather(&flags)?;
    let judged = place::judge(&settings)?;
    let sockets = Sockets::bind(&settings)?;
    report::begin(&settings.level);
    report::end_with_panics();
    let (background, bulk, merging) = (background(settings.cores)?, bulk(settings.cores)?, merging()?);
    let world = world::real(background.handle().clone(), bulk.handle().clone());
    let served = background.block_on(async {
        let waker = Waker::default();
        let (node, opening) = node::open(&settings, judged, (&world, Some(merging.handle())), waker.hook()).await?;
        let flusher = Flusher::start(node.log(), &waker, node.were_held())?;
        let node = Arc::new(node);
        let served = serve(&settings, &flags, sockets, &node, &opening, (&world, bulk.handle()), started).await;
        report::tell_manager(&[NotifyState::Stopping, NotifyState::Status("bringing the log to the store")]);
        let closed = node.close(&settings).await;
        flusher.stop();
        served.and(closed)
    });
    // What hangs on a store that is away must not keep the process: everything acknowledged is in the log.
    merging.shutdown_timeout(Duration::from_secs(1));
    bulk.shutdown_timeout(Duration::from_secs(1));
    background.shutdown_timeout(Duration::from_secs(1));
    served
}

/// The runtime for what calls wait for: misses, the store, timers.
fn background(cores: usize) -> Outcome<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        // More than cores: a store in a directory holds a thread while the disk works, and neither timers nor the
        // fetches that foreground calls wait for may stand behind that.
        .worker_threads((cores * 2).clamp(4, 32))
        .thread_name("background")
        .enable_all()
        .build()
        .map_err(|error| Stop::Internal(format!("the background runtime cannot start: {error}")))
}

/// The runtime for work on much data that no call waits for: checkpoints, the metadata's tables, collection, commands. Its threads give way
/// to all others of the process; when nothing else wants the cores, they have them. A PUT into a directory holds a thread while
/// the disk works: beside who packs on one core there are as many for PUTs as a disk needs to be busy.
fn bulk(cores: usize) -> Outcome<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads((cores + 8).clamp(9, 24))
        .thread_name("bulk")
        .on_thread_start(|| give_way(BULK_NICE))
        .enable_all()
        .build()
        .map_err(|error| Stop::Internal(format!("the runtime for bulk work cannot start: {error}")))
}

/// The runtime that merges the metadata's tables, which takes minutes of a core where there are many: two merges have little
/// more of it than a checkpoint that runs beside them, which changes may wait for. The third thread is for the store's connections, which
/// live where they were opened.
fn merging() -> Outcome<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .thread_name("merging")
        .on_thread_start(|| give_way(MERGING_NICE))
        .enable_all()
        .build()
        .map_err(|error| Stop::Internal(format!("the runtime for merging cannot start: {error}")))
}

/// Lowers the calling thread's claim, which stays enough to go on beside any load.
fn give_way(nice: i32) {
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::debug!("bulk work keeps its priority: {error}");
    }
}

async fn serve(
    settings: &Settings,
    flags: &Flags,
    sockets: Sockets,
    node: &Arc<Node>,
    opening: &Opening,
    (world, bulk): (&World, &Handle),
    started: Instant,
) -> Outcome<()> {
    let failed = |error: std::io::Error| Stop::Internal(error.to_string());
    let mut signals = Signals::new().map_err(failed)?;
    let (nfs, admin) = (sockets.nfs_address()?, sockets.admin_address());
    let front = Arc::new(Front::new(node.files(), world, settings, nfs)?);
    let about = About {
        started,
        data: settings.data.display().to_string(),
        store: settings.store.show(),
        store_shape: settings.store_shape.map(|profile| profile.label().to_owned()),
        unsafe_log: settings.unsafe_log,
        cores: settings.cores,
        nfs,
        admin,
        portmap: settings.portmap,
    };
    let service = Arc::new(Service { node: node.clone(), front: front.clone(), about });
    // Commands walk, scrub and bring to the store.
    bulk.spawn(socket::serve(socket::bind(&settings.data)?, service.clone()));
    if let Some(listener) = sockets.admin {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        tokio::spawn(http::serve(listener, service.clone()));
    }
    let beside = match sockets.portmap {
        Some(portmap) => front.serve_portmap(portmap.nfs_udp, portmap.tcp, portmap.udp).map_err(failed)?,
        None => Vec::new(),
    };
    let listener = tokio::net::TcpListener::from_std(sockets.nfs).map_err(failed)?;
    let mut cores = Cores::start(settings.cores, &front.connection())?;
    let around = banner::Around::now();
    // Nobody needs to read it.
    let _ = std::io::stdout().write_all(banner::text(settings, nfs, admin, opening, &around).as_bytes());
    let _ = std::io::stdout().flush();
    report::tell_manager(&[NotifyState::Ready, NotifyState::Status(&opening.words)]);
    if settings.portmap {
        let front = front.clone();
        tokio::spawn(async move { front.notify_clients().await });
    }
    tokio::select! {
        () = wait_for_end(&mut signals, flags) => {}
        () = accept(&listener, &mut cores) => {}
    }
    beside.iter().for_each(tokio::task::AbortHandle::abort);
    front.stop();
    drop(listener);
    cores.stop();
    let _ = std::fs::remove_file(settings.data.join(crate::admin::client::SOCKET));
    Ok(())
}

/// Accepts connections and hands them to the serving threads in turn; for ever.
async fn accept(listener: &tokio::net::TcpListener, cores: &mut Cores) {
    loop {
        let accepted = listener.accept().await.and_then(|(stream, peer)| Ok((stream.into_std()?, peer)));
        match accepted {
            Ok((stream, peer)) => cores.hand_over(stream, peer),
            Err(error) => {
                tracing::warn!("a connection was not accepted: {error}");
                // Out of descriptors: those who are served go on, and some will end.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

/// Returns once a signal asks for the end; one that asks for the configuration again is obeyed meanwhile.
async fn wait_for_end(signals: &mut Signals, flags: &Flags) {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
            _ = signals.hang_up.recv() => reload(flags),
        }
    }
}

/// Takes over what may change while the server runs: the report's level. What is wrong is said and left as it was.
fn reload(flags: &Flags) {
    match Settings::gather(flags) {
        Ok(settings) => {
            report::change(&settings.level);
            tracing::info!("the configuration was read again; the level is {}", settings.level);
        }
        Err(stop) => tracing::error!("the configuration was not read again: {stop}"),
    }
}
