//! Decoders that are broken on purpose: what the harness must notice.

use std::hint::black_box;

use crate::targets::Target;

pub fn targets() -> Vec<Target> {
    vec![
        target("broken-panic", |bytes| bytes.len() == 64 || bytes[100_000] == 0),
        target("broken-greed", |bytes| bytes.len() == 64 || black_box(vec![1u8; 16 << 20]).len() == bytes.len()),
        target("broken-absurd", |bytes| bytes.len() == 64 || black_box(Vec::<u8>::with_capacity(1 << 40)).is_empty()),
        target("broken-hang", |bytes| {
            while black_box(bytes.len()) != 64 {}
            true
        }),
        target("broken-seed", |_| false),
    ]
}

fn target(name: &'static str, judge: fn(&[u8]) -> bool) -> Target {
    Target { name, judge, seeds: || vec![vec![1; 64]], mend: None, words: &[] }
}
