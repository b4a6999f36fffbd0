//! Canned answers (RFC 1813), as long as an honest server's.
//!
//! - A handle is 16 bytes: a word of ours and the file's number, which is made from its name; bit 63 is a directory.
//! - A call that is not understood gives no answer; the connection ends.

use crate::content;
use crate::load::wire::{NFS, Reply};
use crate::stream::{LAST, Output};

const MOUNT: u32 = 100_005;
const DIRECTORY: u64 = 1 << 63;
const ROOT: u64 = DIRECTORY | 1;
const MAGIC: &[u8; 8] = b"tarnnull";
const FILE_SYNC: u32 = 2;

/// What an answer says about durability.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    Nothing,
    /// The call must be on the log before the answer leaves.
    Durable,
}

/// Appends the answer to a call.
pub fn answer(record: &[u8], output: &mut Output) -> Option<Told> {
    let mut call = Reply(record, 0);
    let (xid, kind, version) = (call.u32().ok()?, call.u32().ok()?, call.u32().ok()?);
    let (program, _, procedure) = (call.u32().ok()?, call.u32().ok()?, call.u32().ok()?);
    for _credential_then_verifier in 0..2 {
        call.u32().ok()?;
        opaque(&mut call)?;
    }
    if (kind, version) != (0, 2) {
        return None;
    }
    let out = output.tail();
    let at = out.len();
    for word in [0, xid, 1, 0, 0, 0, 0] {
        push(out, word);
    }
    let body = match program {
        MOUNT => mount(procedure, out).map(|()| (Told::Nothing, None))?,
        NFS => nfs(procedure, &mut call, out)?,
        _ => return None,
    };
    let (told, data) = body;
    let size = out.len() - at - 4 + data.map_or(0, |(_, size)| size);
    out[at..at + 4].copy_from_slice(&(size as u32 | LAST).to_be_bytes());
    if let Some((offset, size)) = data {
        output.content(offset, size);
    }
    Some(told)
}

/// Offset and size of file content behind the answer.
type Data = Option<(u64, usize)>;

// long: dispatch table
fn nfs(procedure: u32, call: &mut Reply, out: &mut Vec<u8>) -> Option<(Told, Data)> {
    if procedure == 0 {
        return Some((Told::Nothing, None));
    }
    let file = handle(call)?;
    push(out, 0);
    match procedure {
        1 => attributes(out, file),
        2 | 12 | 13 => weak_cache_data(out, file),
        3 => {
            let found = number(opaque(call)?);
            push_handle(out, found);
            optional_attributes(out, found);
            optional_attributes(out, file);
        }
        4 => {
            optional_attributes(out, file);
            push(out, call.u32().ok()?);
        }
        6 => {
            let (offset, count) = (call.u64().ok()?, call.u32().ok()?);
            let count = count.min(content::PERIOD as u32) & !3;
            optional_attributes(out, file);
            for word in [count, 0, count] {
                push(out, word);
            }
            return Some((Told::Nothing, Some((offset, count as usize))));
        }
        7 => {
            let (_offset, count, stable) = (call.u64().ok()?, call.u32().ok()?, call.u32().ok()?);
            weak_cache_data(out, file);
            for word in [count, stable, 0x7461_726e, 1] {
                push(out, word);
            }
            return Some((if stable == FILE_SYNC { Told::Durable } else { Told::Nothing }, None));
        }
        8 | 9 => {
            let made = number(opaque(call)?) | if procedure == 9 { DIRECTORY } else { 0 };
            push(out, 1);
            push_handle(out, made);
            optional_attributes(out, made);
            weak_cache_data(out, file);
            return Some((Told::Durable, None));
        }
        21 => {
            weak_cache_data(out, file);
            push(out, 0x7461_726e);
            push(out, 1);
            return Some((Told::Durable, None));
        }
        _ => return None,
    }
    Some((Told::Nothing, None))
}

fn mount(procedure: u32, out: &mut Vec<u8>) -> Option<()> {
    match procedure {
        0 | 3 => {}
        1 => {
            push(out, 0);
            push_handle(out, ROOT);
            // One flavor: AUTH_SYS.
            push(out, 1);
            push(out, 1);
        }
        _ => return None,
    }
    Some(())
}

fn opaque<'a>(call: &mut Reply<'a>) -> Option<&'a [u8]> {
    let size = call.u32().ok()? as usize;
    let padded = call.bytes(size.checked_next_multiple_of(4)?).ok()?;
    Some(&padded[..size])
}

fn handle(call: &mut Reply) -> Option<u64> {
    let bytes = opaque(call)?;
    let number = bytes.strip_prefix(MAGIC)?.first_chunk::<8>()?;
    Some(u64::from_be_bytes(*number))
}

/// A file's number, from its name.
fn number(name: &[u8]) -> u64 {
    name.iter().fold(7, |number, byte| content::mix(number ^ u64::from(*byte))) & !DIRECTORY
}

fn push(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_be_bytes());
}

fn push_handle(out: &mut Vec<u8>, number: u64) {
    push(out, 16);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&number.to_be_bytes());
}

/// fattr3: only kind and number differ from file to file.
fn attributes(out: &mut Vec<u8>, number: u64) {
    let mut canned = [0; 84];
    canned[3] = if number & DIRECTORY == 0 { 1 } else { 2 };
    canned[6..8].copy_from_slice(&0o755u16.to_be_bytes());
    canned[11] = 1;
    canned[24..28].copy_from_slice(&(1u32 << 30).to_be_bytes());
    canned[52..60].copy_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&canned);
}

fn optional_attributes(out: &mut Vec<u8>, number: u64) {
    push(out, 1);
    attributes(out, number);
}

fn weak_cache_data(out: &mut Vec<u8>, number: u64) {
    push(out, 1);
    out.extend_from_slice(&[0; 24]);
    optional_attributes(out, number);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_not_answered() {
        let good = crate::load::wire::call(1, &[]);
        let mut output = Output::default();
        for size in 0..good.len() - 4 {
            assert_eq!(answer(&good[4..4 + size], &mut output), None);
        }
    }
}
