//! The harness notices what it is there for: the program ends with status 1 and says what is wrong.

use std::process::Command;

fn finding(target: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tarn-fuzz"))
        .args(["--broken", "--target", target, "--executions", "2000", "--hang-seconds", "2"])
        .output()
        .expect("the fuzzer runs");
    assert_eq!(output.status.code(), Some(1), "{target} must be a finding");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_panic_too_much_memory_and_a_hang_are_findings() {
    for (target, word) in [
        ("broken-panic", "out of bounds"),
        ("broken-greed", "bytes at once, at most"),
        ("broken-absurd", "asks for 1099511627776 bytes"),
        ("broken-hang", "has not ended after 2 s"),
        ("broken-seed", "refuses its own seed"),
    ] {
        let said = finding(target);
        assert!(said.contains("FAILED") && said.contains(word), "{target}: {said}");
    }
}
