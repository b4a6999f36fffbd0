//! What is called, and how each reply is judged.
//!
//! - A job knows nothing of sockets: it appends calls and judges results.
//! - READ is held against the content byte by byte, of 1 MiB one in [`WHOLE_ONE_IN`] and of the others the head, GETATTR and LOOKUP against the file's number, WRITE against size,
//!   stability and an unchanging verifier. The first wrong reply ends the run.

use crate::content;
use crate::load::wire::{Reply, append, call, handle_arguments, set_mark};
use tarn_nfsclient::xdr::Writer;
use tarn_nfsclient::{Handle, Stable};

/// A generator that copies and compares every byte is slower than a server on one core that sends what it has in memory. Odd,
/// so that in the end every piece of a file has its turn.
pub const WHOLE_ONE_IN: u32 = 7;
/// The status of a call that is to be tried later.
const JUKEBOX: u32 = 10_008;

/// What a measurement repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Operation {
    Getattr,
    Lookup,
    Access,
    Read4k,
    #[value(name = "write4k-filesync")]
    Write4kFilesync,
    #[value(name = "write4k-unstable")]
    Write4kUnstable,
    Create,
    Read1m,
    #[value(name = "read1m-written")]
    Read1mWritten,
    Write1m,
}

impl Operation {
    /// As RFC 1813 names it, with its size.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Getattr => "GETATTR",
            Operation::Lookup => "LOOKUP",
            Operation::Access => "ACCESS",
            Operation::Read4k => "READ 4 KiB, cached",
            Operation::Write4kFilesync => "WRITE 4 KiB FILE_SYNC",
            Operation::Write4kUnstable => "WRITE 4 KiB UNSTABLE",
            Operation::Create => "CREATE",
            Operation::Read1m => "READ 1 MiB, cached",
            Operation::Read1mWritten => "READ 1 MiB, just written",
            Operation::Write1m => "WRITE 1 MiB UNSTABLE, then COMMIT",
        }
    }

    /// Bytes that one call moves; 0 where calls are counted.
    pub fn bytes(self) -> u64 {
        match self {
            Operation::Read1m | Operation::Read1mWritten | Operation::Write1m => 1 << 20,
            _ => 0,
        }
    }

    /// Whether a server is asked to make something durable before it answers.
    pub fn is_durable(self) -> bool {
        matches!(self, Operation::Write4kFilesync | Operation::Create)
    }

    /// Whether nothing is changed and little is moved: what a server's memory answers.
    pub fn is_looking(self) -> bool {
        matches!(self, Operation::Getattr | Operation::Lookup | Operation::Access | Operation::Read4k)
    }

    /// Whether a round is a number of calls, not a time: what follows the last reply belongs to it.
    pub fn is_counted(self) -> bool {
        self == Operation::Write1m
    }
}

/// One kind of call, repeated.
pub trait Job {
    /// Appends the next call of a connection. What is returned comes back with the reply.
    fn call(&mut self, connection: usize, xid: u32, out: &mut Vec<u8>) -> u64;
    /// Judges the results of a call.
    fn judge(&mut self, token: u64, results: Reply) -> Result<(), String>;
    /// Of so many long replies on a connection one is taken whole; of the others the head, and their size.
    fn whole_one_in(&self) -> u32 {
        1
    }
}

/// GETATTR, LOOKUP or ACCESS over some files in turn; each must answer with the file's number.
pub struct Look {
    calls: Vec<Vec<u8>>,
    numbers: Vec<u64>,
    operation: Operation,
    next: usize,
}

/// A file of the set: its name, handle and number.
pub struct File {
    pub name: String,
    pub handle: Handle,
    pub number: u64,
}

impl Look {
    pub fn new(operation: Operation, directory: &Handle, files: &[File]) -> Look {
        let one = |file: &File| match operation {
            Operation::Lookup => call(3, &handle_arguments(directory).bytes(file.name.as_bytes()).0),
            Operation::Access => call(4, &handle_arguments(&file.handle).u32(0x3f).0),
            _ => call(1, &handle_arguments(&file.handle).0),
        };
        let numbers = files.iter().map(|file| file.number).collect();
        Look { calls: files.iter().map(one).collect(), numbers, operation, next: 0 }
    }
}

impl Job for Look {
    fn call(&mut self, _connection: usize, xid: u32, out: &mut Vec<u8>) -> u64 {
        let index = self.next;
        self.next = if index + 1 == self.calls.len() { 0 } else { index + 1 };
        append(out, &self.calls[index], xid);
        index as u64
    }

    fn judge(&mut self, token: u64, mut results: Reply) -> Result<(), String> {
        results.status()?;
        let number = match self.operation {
            Operation::Getattr => Some(results.attributes()?),
            Operation::Lookup => {
                let size = results.u32()? as usize;
                results.bytes(size.next_multiple_of(4))?;
                results.optional_attributes()?
            }
            _ => {
                let number = results.optional_attributes()?;
                if results.u32()? & 1 == 0 {
                    return Err("root may not read".to_owned());
                }
                number
            }
        };
        match number {
            Some(number) if number != self.numbers[token as usize] => {
                Err("the attributes are another file's".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// READ of aligned pieces of one file, in an order that no read-ahead guesses if they are small.
pub struct Read {
    calls: Vec<Vec<u8>>,
    size: usize,
    step: usize,
    next: usize,
}

impl Read {
    pub fn new(file: &Handle, file_bytes: u64, size: usize) -> Read {
        let count = file_bytes / size as u64;
        let one = |index| call(6, &handle_arguments(file).u64(index * size as u64).u32(size as u32).0);
        let step = if size >= content::PERIOD { 1 } else { 4099 };
        Read { calls: (0..count).map(one).collect(), size, step, next: 0 }
    }
}

impl Job for Read {
    fn call(&mut self, _connection: usize, xid: u32, out: &mut Vec<u8>) -> u64 {
        let index = self.next;
        self.next = (index + self.step) % self.calls.len();
        append(out, &self.calls[index], xid);
        (index * self.size) as u64
    }

    fn judge(&mut self, token: u64, mut results: Reply) -> Result<(), String> {
        results.status()?;
        results.optional_attributes()?;
        let (count, _end, size) = (results.u32()?, results.u32()?, results.u32()?);
        if count as usize != self.size || size != count {
            return Err(format!("READ gave {count} bytes of {}", self.size));
        }
        let data = results.last(self.size)?;
        if data != content::at(token, data.len()) {
            return Err(format!("READ at {token} gave other bytes than were written"));
        }
        Ok(())
    }

    fn whole_one_in(&self) -> u32 {
        if self.size >= content::PERIOD { WHOLE_ONE_IN } else { 1 }
    }
}

/// WRITE to one file for each connection.
pub struct Write {
    /// Up to the offset, which is patched.
    heads: Vec<Vec<u8>>,
    sent: Vec<u64>,
    size: usize,
    file_bytes: u64,
    stable: Stable,
    step: u64,
    verifier: Option<u64>,
    /// Being told to try later is no error, and is counted.
    pub patient: bool,
    pub told_later: u64,
    /// Makes every block that is ever written another one.
    stamp: u64,
}

impl Write {
    /// Overwrites the first `file_bytes` of each file over and over.
    pub fn new(files: &[Handle], file_bytes: u64, size: usize, stable: Stable, stamp: u64) -> Write {
        let head = |file: &Handle| {
            let tail = Writer::new().u64(0).u32(size as u32).u32(stable as u32).u32(size as u32).0;
            let mut arguments = handle_arguments(file).0;
            arguments.extend_from_slice(&tail);
            call(7, &arguments)
        };
        let step = if size >= content::PERIOD { 1 } else { 389 };
        let heads: Vec<Vec<u8>> = files.iter().map(head).collect();
        Write {
            sent: vec![0; heads.len()],
            heads,
            size,
            file_bytes,
            stable,
            step,
            verifier: None,
            patient: false,
            told_later: 0,
            stamp,
        }
    }
}

impl Job for Write {
    fn call(&mut self, connection: usize, xid: u32, out: &mut Vec<u8>) -> u64 {
        let count = self.file_bytes / self.size as u64;
        let offset = (self.sent[connection] * self.step % count) * self.size as u64;
        self.sent[connection] += 1;
        let head = &self.heads[connection];
        let at = append(out, head, xid);
        let offset_at = at + head.len() - 20;
        out[offset_at..offset_at + 8].copy_from_slice(&offset.to_be_bytes());
        let data_at = out.len();
        out.extend_from_slice(content::at(offset, self.size));
        for block in (data_at..out.len()).step_by(4096) {
            self.stamp += 1;
            out[block..block + 8].copy_from_slice(&content::mix(self.stamp).to_le_bytes());
        }
        set_mark(out, at);
        0
    }

    fn judge(&mut self, _token: u64, mut results: Reply) -> Result<(), String> {
        if self.patient && results.0.starts_with(&JUKEBOX.to_be_bytes()) {
            self.told_later += 1;
            return Ok(());
        }
        results.status()?;
        results.weak_cache_data()?;
        let (count, stable, verifier) = (results.u32()?, results.u32()?, results.u64()?);
        if count as usize != self.size {
            return Err(format!("WRITE took {count} bytes of {}", self.size));
        }
        if stable < self.stable as u32 {
            return Err("WRITE is less stable than was asked for".to_owned());
        }
        if *self.verifier.get_or_insert(verifier) != verifier {
            return Err("the write verifier changed".to_owned());
        }
        Ok(())
    }
}

/// CREATE (guarded) of names never used before, or REMOVE of the same.
pub struct Names {
    head: Vec<u8>,
    tail: Vec<u8>,
    pub next: u64,
}

/// Bytes of a made name.
const NAME_BYTES: usize = 12;

impl Names {
    /// CREATE from the name numbered `next` on.
    pub fn create(directory: &Handle, next: u64) -> Names {
        // GUARDED; mode 0644, everything else left to the server.
        let tail = Writer::new().u32(1).bool(true).u32(0o644).u32(0).u32(0).u32(0).u32(0).u32(0).0;
        Names { head: call(8, &handle_arguments(directory).u32(NAME_BYTES as u32).0), tail, next }
    }

    /// REMOVE from the name numbered `next` on.
    pub fn remove(directory: &Handle, next: u64) -> Names {
        Names { head: call(12, &handle_arguments(directory).u32(NAME_BYTES as u32).0), tail: Vec::new(), next }
    }
}

impl Job for Names {
    fn call(&mut self, _connection: usize, xid: u32, out: &mut Vec<u8>) -> u64 {
        let number = self.next;
        self.next += 1;
        let at = append(out, &self.head, xid);
        let mut name = *b"file-0000000";
        let mut rest = number;
        for digit in name[5..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        out.extend_from_slice(&name);
        out.extend_from_slice(&self.tail);
        set_mark(out, at);
        number
    }

    fn judge(&mut self, token: u64, mut results: Reply) -> Result<(), String> {
        results.status().map_err(|error| format!("file {token}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_other_bytes_is_wrong() {
        let mut job = Read::new(&Handle(vec![1; 8]), 1 << 20, 4096);
        let mut out = Vec::new();
        let token = job.call(0, 1, &mut out) + job.call(0, 2, &mut out);
        let reply = |data: &[u8]| Writer::new().u32(0).u32(0).u32(data.len() as u32).u32(0).bytes(data).0;
        let good = reply(content::at(token, 4096));
        assert_eq!(job.judge(token, Reply(&good, 0)), Ok(()));
        assert!(job.judge(token + 4096, Reply(&good, 0)).is_err());
        assert!(job.judge(token, Reply(&reply(content::at(token, 4092)), 0)).is_err());
    }

    #[test]
    fn what_nobody_saw_of_a_read_counts_and_its_head_is_judged() {
        let mut job = Read::new(&Handle(vec![1; 8]), 4 << 20, content::PERIOD);
        let token = job.call(0, 1, &mut Vec::new());
        let size = content::PERIOD as u32;
        let mut head = Writer::new().u32(0).u32(0).u32(size).u32(0).u32(size).0;
        head.extend_from_slice(&content::at(token, content::PERIOD)[..1000]);
        let unseen = content::PERIOD - 1000;
        assert_eq!(job.judge(token, Reply(&head, unseen)), Ok(()));
        assert!(job.judge(token, Reply(&head, unseen - 1)).is_err(), "a byte is missing");
        assert!(job.judge(token, Reply(&head, 2 * content::PERIOD)).is_err(), "more than it says");
        assert!(job.judge(token, Reply(&[&head[..], &[0]].concat(), unseen)).is_err(), "a byte behind the data");
        *head.last_mut().unwrap() ^= 1;
        assert!(job.judge(token, Reply(&head, unseen)).is_err(), "other bytes");
    }

    #[test]
    fn a_write_that_promises_less_or_changes_its_verifier_is_wrong() {
        let mut job = Write::new(&[Handle(vec![1; 8])], 1 << 20, 4096, Stable::FileSync, 0);
        let reply = |stable, verifier| Writer::new().u32(0).u32(0).u32(0).u32(4096).u32(stable).u64(verifier).0;
        assert_eq!(job.judge(0, Reply(&reply(2, 7), 0)), Ok(()));
        assert!(job.judge(0, Reply(&reply(1, 7), 0)).is_err());
        assert!(job.judge(0, Reply(&reply(2, 8), 0)).is_err());
    }

    #[test]
    fn blocks_that_are_written_all_differ() {
        let mut job = Write::new(&[Handle(vec![1; 8])], 1 << 13, 8192, Stable::Unstable, 0);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        job.call(0, 1, &mut first);
        job.call(0, 1, &mut second);
        assert_eq!(first.len(), second.len());
        assert_ne!(first, second);
    }
}
