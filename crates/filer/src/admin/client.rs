//! The command's side of the admin socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::exit::{Outcome, Stop};
use crate::place;
use crate::protocol::{Line, Progress, Request};

/// Name of the socket in the data directory.
pub const SOCKET: &str = "admin.sock";

/// Asks the server of `data` and waits for its answer.
pub fn ask<T: DeserializeOwned>(data: &Path, request: &Request) -> Outcome<T> {
    ask_with(data, request, |_| ())
}

/// As [`ask`]; `progress` hears how far the server has come.
pub fn ask_with<T: DeserializeOwned>(data: &Path, request: &Request, mut progress: impl FnMut(Progress)) -> Outcome<T> {
    let gone = |reason: String| Stop::ServerGone { path: data.to_path_buf(), reason };
    let mut stream = connect(data)?;
    let mut line = serde_json::to_string(request).map_err(|error| Stop::Internal(error.to_string()))?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(|error| gone(error.to_string()))?;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(|error| gone(error.to_string()))?;
        match serde_json::from_str(&line).map_err(|error| gone(format!("it does not speak as expected: {error}")))? {
            Line::Progress(step) => progress(step),
            Line::Refused(reason) => return Err(Stop::Refused(reason)),
            Line::Done(value) => {
                return serde_json::from_value(value)
                    .map_err(|error| gone(format!("it is of another version: {error}")));
            }
        }
    }
    Err(gone("it ended before it had answered".to_owned()))
}

fn connect(data: &Path) -> Outcome<UnixStream> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Stop::PathNotPermitted { path: data.to_path_buf(), flag: "--data" },
        _ => Stop::NotRunning { path: data.to_path_buf() },
    };
    let (_dir, path) = place::short_path(data, SOCKET).map_err(failed)?;
    UnixStream::connect(path).map_err(failed)
}
