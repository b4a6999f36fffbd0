//! What commands print.
//!
//! - A reader that went away, as behind `grep -q`, ends the printing and not the command: its outcome is its own.
//! - Nothing else that keeps output from being written is passed over: it may be the only copy of a recovery code.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// As `println!`.
macro_rules! say {
    ($($what:tt)*) => { $crate::cli::say::line(format_args!($($what)*)) };
}

/// As `print!`.
macro_rules! say_part {
    ($($what:tt)*) => { $crate::cli::say::part(format_args!($($what)*)) };
}

pub fn line(what: Arguments<'_>) {
    part(format_args!("{what}\n"));
}

pub fn part(what: Arguments<'_>) {
    match std::io::stdout().lock().write_fmt(what) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("tarn: the output cannot be written: {error}");
            std::process::exit(1);
        }
        _ => {}
    }
}
