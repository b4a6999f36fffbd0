//! One execution: a decoder, an input, and what must not happen.
//!
//! - A panic, more than [`bound`] bytes held at once, or more than [`TIME_MAX`] is a fault. Slowness must repeat
//!   itself: the machine may have been busy elsewhere.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::memory::measured;
use crate::targets::Target;

/// Longest execution.
pub const TIME_MAX: Duration = Duration::from_millis(300);

/// Why an input is a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    Panic(String),
    Memory { held: usize, bound: usize },
    Time(Duration),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Panic(message) => write!(f, "panicked: {message}"),
            Fault::Memory { held, bound } => write!(f, "held {held} bytes at once, at most {bound} may be"),
            Fault::Time(took) => write!(f, "took {} ms, again and again", took.as_millis()),
        }
    }
}

/// Bytes that may be held at once for an input of `len`: a whole record (1 MiB) and its expansion, and so many times
/// the input that no list of small things is refused.
pub fn bound(len: usize) -> usize {
    (4 << 20) + 64 * len
}

thread_local! {
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps panics silent; their message goes into the fault.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|panic| MESSAGE.with_borrow_mut(|message| *message = panic.to_string())));
}

/// Whether the decoder takes `input` for valid.
pub fn judge(target: &Target, input: &[u8]) -> Result<bool, Fault> {
    let started = Instant::now();
    let (ended, held) = measured(|| catch_unwind(AssertUnwindSafe(|| (target.judge)(input))));
    let took = started.elapsed();
    let accepted = ended.map_err(|_| Fault::Panic(MESSAGE.take()))?;
    let bound = bound(input.len());
    if held > bound {
        return Err(Fault::Memory { held, bound });
    }
    if took > TIME_MAX {
        let again = |_| {
            let started = Instant::now();
            (target.judge)(input);
            started.elapsed()
        };
        let least = (0..4).map(again).min().unwrap_or(took).min(took);
        if least > TIME_MAX {
            return Err(Fault::Time(least));
        }
    }
    Ok(accepted)
}

/// The shortest input found that has a fault of the same kind.
pub fn shrink(target: &Target, input: &[u8], fault: &Fault) -> Vec<u8> {
    let same = |input: &[u8]| {
        judge(target, input).is_err_and(|other| std::mem::discriminant(&other) == std::mem::discriminant(fault))
    };
    let mut best = input.to_vec();
    let mut piece = best.len().div_ceil(2);
    let started = Instant::now();
    while piece > 0 && started.elapsed() < Duration::from_secs(3) {
        let mut at = 0;
        while at < best.len() {
            let mut shorter = best.clone();
            shorter.drain(at..(at + piece).min(best.len()));
            if same(&shorter) {
                best = shorter;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(judge: fn(&[u8]) -> bool) -> Target {
        Target { name: "test", judge, seeds: Vec::new, mend: None, words: &[] }
    }

    #[test]
    fn each_kind_of_fault_is_found() {
        catch_panics();
        let panics = target(|input| input[2] == 7);
        assert!(matches!(judge(&panics, b"ab"), Err(Fault::Panic(message)) if message.contains("out of bounds")));
        assert_eq!(judge(&panics, &[0, 0, 7]), Ok(true));
        let greedy = target(|_| vec![1u8; 5 << 20].len() == 1);
        assert!(matches!(judge(&greedy, b""), Err(Fault::Memory { .. })));
        let slow = target(|_| {
            std::thread::sleep(TIME_MAX * 2);
            true
        });
        assert!(matches!(judge(&slow, b""), Err(Fault::Time(_))));
    }

    #[test]
    fn what_matters_of_an_input_is_left() {
        catch_panics();
        let panics = target(|input| !input.contains(&9) || panic!("a nine"));
        let input: Vec<u8> = (0..100).collect();
        let fault = judge(&panics, &input).unwrap_err();
        assert_eq!(shrink(&panics, &input, &fault), [9]);
    }
}
