//! The journal of a program on a kernel client (`tests/rig/guest/journal.py`), held against the server.
//!
//! - A line is written after its call returned, so what it says must be there. The program goes on meanwhile, so the
//!   server may be further than the journal, never behind.
//! - Lines: `S n` file n.tmp is written and fsynced; `R n` renamed to n; `U n` removed; `D n` directory n.d is made;
//!   `L n` n lines of `log` are fsynced. Every third file is removed in the end.

use crate::{Outcome, Server};
use std::collections::BTreeMap;
use std::path::Path;
use tarn_nfsclient::{Client, Error, Handle, Status};

/// What the journal has acknowledged so far.
#[derive(Default)]
pub struct Journal {
    /// Number to 1 (synced), 2 (renamed), 3 (removed).
    files: BTreeMap<u64, u8>,
    directories: Vec<u64>,
    log_lines: u64,
    pub lines: u64,
}

/// The content that file `number` was given.
fn content(number: u64) -> Vec<u8> {
    format!("{number:08} ").repeat(400).into_bytes()
}

impl Journal {
    pub fn read(path: &Path) -> Outcome<Journal> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // A last line without its end is being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut journal = Journal::default();
        for line in whole.lines() {
            let (word, number) = line.split_once(' ').ok_or(format!("a line of the journal is odd: {line}"))?;
            let number: u64 = number.parse().map_err(|_| format!("a line of the journal is odd: {line}"))?;
            match word {
                "S" => drop(journal.files.insert(number, 1)),
                "R" => drop(journal.files.insert(number, 2)),
                "U" => drop(journal.files.insert(number, 3)),
                "D" => journal.directories.push(number),
                "L" => journal.log_lines = number,
                _ => return Err(format!("a line of the journal is odd: {line}")),
            }
            journal.lines += 1;
        }
        Ok(journal)
    }

    /// Everything in the journal is on the server.
    pub fn verify(&self, server: &Server) -> Outcome<()> {
        let (mut client, root) = server.connect(9)?;
        let (directory, _) = client.lookup(&root, b"kernel").map_err(|error| format!("kernel: {error}"))?;
        for (number, rank) in &self.files {
            file(&mut client, &directory, *number, *rank)?;
        }
        for number in &self.directories {
            found(&mut client, &directory, &format!("{number}.d"))?.ok_or(format!("directory {number}.d is lost"))?;
        }
        if self.log_lines > 0 {
            let log = found(&mut client, &directory, "log")?.ok_or("the log is lost")?;
            let text = client.read_all(&log).map_err(|error| format!("log: {error}"))?;
            let text = String::from_utf8_lossy(&text);
            let good =
                (1..).zip(text.lines()).take_while(|(number, line)| *line == format!("line {number:08}")).count();
            if (good as u64) < self.log_lines {
                return Err(format!("the log has {good} good lines, {} are acknowledged", self.log_lines));
            }
        }
        Ok(())
    }
}

fn file(client: &mut Client, directory: &Handle, number: u64, rank: u8) -> Outcome<()> {
    let removable = number.is_multiple_of(3);
    let renamed = found(client, directory, &number.to_string())?;
    let there = match (renamed, rank) {
        (Some(_), 3) => return Err(format!("{number} is back after its removal")),
        (Some(there), _) => there,
        (None, 3) => return Ok(()),
        (None, 2) if removable => return Ok(()),
        (None, 2) => return Err(format!("the rename of {number} is lost")),
        (None, _) => match found(client, directory, &format!("{number}.tmp"))? {
            Some(there) => there,
            // The program went on between the two calls.
            None => match found(client, directory, &number.to_string())? {
                Some(there) => there,
                None if removable => return Ok(()),
                None => return Err(format!("{number}.tmp is lost")),
            },
        },
    };
    match client.read_all(&there) {
        Ok(bytes) if bytes == content(number) => Ok(()),
        Ok(bytes) => Err(format!("{number} has other content ({} bytes)", bytes.len())),
        Err(Error::Status(Status::STALE)) if removable => Ok(()),
        Err(error) => Err(format!("{number}: {error}")),
    }
}

fn found(client: &mut Client, directory: &Handle, name: &str) -> Outcome<Option<Handle>> {
    match client.lookup(directory, name.as_bytes()) {
        Ok((handle, _)) => Ok(Some(handle)),
        Err(Error::Status(Status::NOENT)) => Ok(None),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
