//! Writing a large new file past the page cache.
//!
//! - What is written will hardly be read soon, and the caches above know better which part of it; so it neither takes
//!   pages that others need nor costs a copy into pages that must be found, cleared and written back.
//! - It goes in small pieces, one after another: a disk does not let the log's writes overtake what it has been given, and
//!   whoever waits for the log waits for that too.
//! - Blocks that are whole go directly; the end, and everything where the file system cannot do so, goes as usual.
//! - A file system in memory (tmpfs) has no disk to spare: there all goes in one piece. It says that it writes directly, but
//!   copies into pages of up to 2 MiB, and clears what a smaller piece leaves of one.
//! - Nothing is durable before the caller's fsync, either way.

use std::fs::File;
use std::io::{self, Write};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Files from this size on are written directly, bytes.
const LARGE: usize = 1 << 20;
/// What the block size of any disk divides.
const ALIGN: usize = 4096;
/// Bytes of one write. With whole objects or 1 MiB, 4 KiB FILE_SYNC writes beside a stream waited twice as long at the 99th
/// percentile; with half of this no less.
const PIECE: usize = 256 << 10;
/// The type of tmpfs, as statfs(2) has it.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Appends all of `bytes` to an empty file.
pub(super) fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() < LARGE || is_in_memory(file) || set(file, OFlags::DIRECT).is_err() {
        return file.write_all(bytes);
    }
    let whole = bytes.len() - bytes.len() % ALIGN;
    let written = match bytes.as_ptr().align_offset(ALIGN) {
        0 => pass(file, &bytes[..whole]),
        _ => bounce(file, &bytes[..whole]),
    };
    // Also where the disk wants larger blocks than ours: that shows at the first write.
    set(file, OFlags::empty())?;
    file.write_all(&bytes[written?..])
}

fn is_in_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type == TMPFS)
}

fn set(file: &File, direct: OFlags) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, (flags - OFlags::DIRECT) | direct)
}

/// Writes as much of the aligned `bytes` as goes directly; gives how much.
fn pass(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + PIECE);
        match file.write(&bytes[at..end]) {
            Ok(count) => at += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => return Ok(at),
            Err(error) => return Err(error),
        }
        if at % ALIGN != 0 {
            // A write that ended amid a block: the rest cannot begin there.
            return Ok(at);
        }
    }
    Ok(at)
}

/// As [`pass`], for bytes that lie anywhere.
fn bounce(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    let mut memory = vec![0; PIECE + ALIGN];
    let begin = memory.as_ptr().align_offset(ALIGN);
    let mut at = 0;
    for part in bytes.chunks(PIECE) {
        let buffer = &mut memory[begin..begin + part.len()];
        buffer.copy_from_slice(part);
        let written = pass(file, buffer)?;
        at += written;
        if written < part.len() {
            break;
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_what_was_written_however_long_it_is_and_wherever_it_lay() {
        read_as_written(tempfile::tempdir().unwrap().path());
        // Where there is a file system in memory, on that too.
        if let Ok(directory) = tempfile::tempdir_in("/dev/shm") {
            read_as_written(directory.path());
        }
    }

    fn read_as_written(directory: &std::path::Path) {
        let memory: Vec<u8> = (0..(3 << 20) + 9000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for len in [0, 1, 4095, LARGE - 1, LARGE, LARGE + 1, 2 * LARGE + 4095, 3 * LARGE + 4096] {
            // Aligned in the last case, so that both ways are gone.
            for from in [0, 1, 512, memory.as_ptr().align_offset(ALIGN)] {
                let path = directory.join(format!("{len} from {from}"));
                let bytes = &memory[from..from + len];
                let mut file = File::create_new(&path).unwrap();
                write(&mut file, bytes).unwrap();
                assert!(std::fs::read(&path).unwrap() == bytes, "{len} bytes from {from}");
                assert!(!rustix::fs::fcntl_getfl(&file).unwrap().contains(OFlags::DIRECT));
            }
        }
    }
}
