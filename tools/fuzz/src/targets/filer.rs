//! What the program reads by itself: its configuration, sizes, times, keys and what tells of them, the admin socket.

use tarn_base::crypto::Key;
use tarn_filer::config::File;
use tarn_filer::decoders;
use tarn_filer::keys::code;
use tarn_filer::sizes::{parse_size, parse_span, show_size, show_span};

use super::Target;

pub fn targets() -> Vec<Target> {
    vec![
        Target::new("config", config, config_seeds).words(CONFIG_WORDS),
        Target::new("size-and-time", size_and_time, || {
            ["4096", "64KiB", "1.5GiB", "250ms", "12h"].map(|text| text.as_bytes().to_vec()).to_vec()
        })
        .words(&[
            "KiB",
            "PiB",
            "B",
            ".",
            "e",
            "-",
            "ms",
            "min",
            "h",
            "inf",
            "NaN",
            "99999999999999999999",
            " ",
        ]),
        Target::new("admin-request", decoders::admin_request, decoders::admin_request_samples).words(JSON_WORDS),
        Target::new("admin-line", decoders::admin_line, decoders::admin_line_samples).words(JSON_WORDS),
        Target::new("key-hint", decoders::key_hint, decoders::key_hint_samples).words(JSON_WORDS),
        Target::new("key-file", decoders::key_file, decoders::key_file_samples),
        Target::new("recovery-code", recovery_code, || vec![code::encode(&Key::new([7; 32])).into_bytes()])
            .words(&["-", " ", "U", "é", "I", "O", "l"]),
    ]
}

const JSON_WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "[[[[[[[[",
    "{\"a\":",
    "\"",
    ":",
    ",",
    "null",
    "true",
    "1e999",
    "-1",
    "18446744073709551616",
    "\\u00",
    "\\ud800",
    "\"do\":",
    "done",
    "progress",
    "name",
    "é",
    "\0",
    " ",
];

const CONFIG_WORDS: &[&str] = &[
    "[",
    "]",
    "[[",
    "{",
    "}",
    "=",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "\n",
    "#",
    ".",
    ",",
    "nfs",
    "log",
    "cache",
    "true",
    "1e999",
    "0x",
    "-9223372036854775809",
    "1979-05-27T07:32:00Z",
    "\\u00",
    "\\UFFFFFFFF",
    "é",
    "\0",
    "[a.",
    "a={",
];

fn config(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| File::parse(text).is_ok())
}

fn config_seeds() -> Vec<Vec<u8>> {
    let full = "\
        data = \"/var/lib/tarn\"\n\
        store = \"s3://bucket/prefix\"\n\
        [log]\nsize = \"8GiB\"\nunsafe = false\n\
        [nfs]\nlisten = \"0.0.0.0:2049\"\nportmap = true\ncores = 4 # all\n\
        [cache]\ndata = '4GiB'\n\
        [checkpoint]\nlog_fill_percent = 50\n";
    ["", full, "report = { level = \"info\" }\nadmin.listen = \"127.0.0.1:9120\"\n"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

fn size_and_time(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let (size, span) = (parse_size(text), parse_span(text));
    size.iter().for_each(|size| assert!(parse_size(&show_size(*size).replace(" bytes", "")).is_ok()));
    span.iter().for_each(|span| assert!(!show_span(*span).is_empty()));
    size.is_ok() || span.is_ok()
}

fn recovery_code(bytes: &[u8]) -> bool {
    let Some(key) = std::str::from_utf8(bytes).ok().and_then(|text| code::decode(text).ok()) else { return false };
    assert!(code::decode(&code::encode(&key)).is_ok());
    true
}
