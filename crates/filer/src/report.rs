//! What the server says while it runs: lines on standard error, at a level that can be changed.

use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::Handle;

/// Changes the level of a running report.
type Change = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

static CHANGE: OnceLock<Change> = OnceLock::new();

/// Begins to report at `level`; TARN_LOG, in the syntax of tracing's EnvFilter, goes before it.
pub fn begin(level: &str) {
    // The metadata engine tells about its own housekeeping at levels that are no news to an operator.
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        // A line that cannot be written is lost. To say so there too would end the task that wrote it, a panic for want of
        // a reader: the heartbeat's, say, without which a node does not hear that another has taken its store.
        .log_internal_errors(false)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_env_filter(filter(level))
        .with_filter_reloading();
    let handle = builder.reload_handle();
    if builder.try_init().is_ok() {
        let _ = CHANGE.set(changer(handle));
    }
}

/// Ends the process with any thread but a serving one that panics: what runs there - heartbeat, checkpoints, the log - would be
/// missing from then on without a word. A serving thread loses one connection.
pub fn end_with_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        let serving = std::thread::current().name().is_some_and(|name| name.starts_with("serve-"));
        if !serving {
            std::process::abort();
        }
    }));
}

/// Goes on at `level`.
pub fn change(level: &str) -> bool {
    CHANGE.get().is_some_and(|change| change(filter(level)))
}

fn changer<S: 'static>(handle: Handle<EnvFilter, S>) -> Change {
    Box::new(move |filter| handle.reload(filter).is_ok())
}

fn filter(level: &str) -> EnvFilter {
    let words = std::env::var("TARN_LOG").unwrap_or_else(|_| format!("{level},slatedb=error,object_store=warn"));
    EnvFilter::try_new(words).unwrap_or_else(|_| EnvFilter::new(level))
}

/// Tells the service manager, if there is one.
pub fn tell_manager(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("the service manager does not listen: {error}");
    }
}
