//! Damage: what is done to valid bytes before a decoder gets them.
//!
//! - One to eight changes are stacked; every 32nd input is noise that was never valid.
//! - Lengths are lied about on purpose: numbers that matter to a format are written over any four or eight bytes, in
//!   both byte orders.

use crate::chance::Chance;

/// No input is longer, bytes: longer than the longest message, so that limits are met too.
pub const INPUT_SIZE_MAX: usize = 2 << 20;

/// Numbers that lengths, counts and versions fail at.
const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    3,
    4,
    0x7f,
    0x80,
    0xff,
    0x100,
    400,
    1024,
    4096,
    0x7fff,
    0xffff,
    0x1_0000,
    1 << 20,
    (1 << 20) + 1,
    16 << 20,
    999_999_999,
    1_000_000_000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
    1 << 40,
    (1 << 51) - 1,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_fffe,
    u64::MAX,
];

/// Makes an input of one of `seeds`, which are not empty, into `out`.
pub fn input(chance: &mut Chance, seeds: &[Vec<u8>], words: &[&str], out: &mut Vec<u8>) {
    out.clear();
    let first = chance.draw();
    if first.is_multiple_of(32) {
        let len = chance.below(if first.is_multiple_of(512) { 4096 } else { 96 });
        return out.extend((0..len).map(|_| chance.byte()));
    }
    out.extend_from_slice(&seeds[chance.below(seeds.len())]);
    for _ in 0..=chance.below(if first & 0x100 == 0 { 2 } else { 8 }) {
        change(chance, seeds, words, out);
    }
    out.truncate(INPUT_SIZE_MAX);
}

// long: dispatch table
fn change(chance: &mut Chance, seeds: &[Vec<u8>], words: &[&str], out: &mut Vec<u8>) {
    let len = out.len();
    let at = chance.below(len);
    match chance.below(if words.is_empty() { 14 } else { 18 }) {
        0 | 1 => with(out, at, |byte| *byte ^= 1 << chance.below(8)),
        2 => with(out, at, |byte| *byte = chance.byte()),
        3 => with(out, at, |byte| *byte = byte.wrapping_add((chance.below(33) as u8).wrapping_sub(16))),
        4..=6 => lie(chance, out),
        7 => out.truncate(at),
        8 => out.extend((0..chance.below(32)).map(|_| chance.byte())),
        9 => splice(chance, &seeds[chance_index(at, seeds.len())], out),
        10 => repeat(chance, out),
        11 => {
            let end = at + chance.below((len - at).min(64) + 1);
            out.drain(at..end);
        }
        12 => {
            let more: Vec<u8> = (0..chance.below(16)).map(|_| chance.byte()).collect();
            out.splice(at..at, more);
        }
        13 => {
            let end = at + chance.below((len - at).min(16) + 1);
            out[at..end].fill(if chance.below(2) == 0 { 0 } else { 0xff });
        }
        _ => {
            let word = words[chance.below(words.len())];
            let end = at + chance.below((len - at).min(8) + 1);
            out.splice(at..end, word.bytes());
        }
    }
}

/// Some index below `end` that costs no draw.
fn chance_index(number: usize, end: usize) -> usize {
    number.wrapping_mul(31) % end
}

fn with(out: &mut [u8], at: usize, change: impl FnOnce(&mut u8)) {
    if let Some(byte) = out.get_mut(at) {
        change(byte);
    }
}

/// Writes a number that lies over four or eight bytes; mostly where fields of four bytes would stand.
fn lie(chance: &mut Chance, out: &mut [u8]) {
    let size = if chance.below(4) == 0 { 8 } else { 4 };
    let Some(room) = out.len().checked_sub(size) else { return };
    let mut at = chance.below(room + 1);
    if chance.below(4) != 0 {
        at &= !3;
    }
    let value = match chance.below(4) {
        // What is left, or a little more or less: the lie that is hardest to see.
        0 => (out.len() - at) as u64 + 4 - chance.below(9) as u64,
        _ => NUMBERS[chance.below(NUMBERS.len())],
    };
    let little = value.to_le_bytes();
    let big = if size == 4 { (value as u32).to_be_bytes().to_vec() } else { value.to_be_bytes().to_vec() };
    let bytes = if chance.below(2) == 0 { &little[..size] } else { &big[..] };
    out[at..at + size].copy_from_slice(bytes);
}

/// The front of `out` and the end of another.
fn splice(chance: &mut Chance, other: &[u8], out: &mut Vec<u8>) {
    out.truncate(chance.below(out.len() + 1));
    out.extend_from_slice(&other[chance.below(other.len() + 1)..]);
}

/// A piece, again and again: now and then often enough to nest or to fill a limit.
fn repeat(chance: &mut Chance, out: &mut Vec<u8>) {
    let at = chance.below(out.len());
    let end = at + chance.below((out.len() - at).min(64) + 1);
    let times = if chance.below(64) == 0 { chance.below(2000) } else { chance.below(6) };
    let piece = out[at..end].repeat(times);
    out.splice(end..end, piece);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_gives_one_input_and_two_give_two() {
        let seeds = [b"a valid message of some length".to_vec(), vec![7; 100], Vec::new()];
        let make = |number| {
            let mut out = Vec::new();
            input(&mut Chance::new(5, number), &seeds, &["word"], &mut out);
            out
        };
        let inputs: std::collections::BTreeSet<Vec<u8>> = (0..10_000).map(make).collect();
        assert!((0..100).all(|number| make(number) == make(number)));
        assert!(inputs.len() > 5_000, "{} of 10000 differ", inputs.len());
        assert!(inputs.iter().any(|input| input.len() > 1000) && inputs.iter().any(|input| input.is_empty()));
    }
}
