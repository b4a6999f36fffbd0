//! The program for users has no planted bug in it, and nothing that could switch one on.

use tarn_base::mutant::ALL;

#[test]
fn no_planted_bug_is_in_the_program() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_tarn")).expect("the program was built for this test");
    let holds = |text: &str| program.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("TARN_PASSPHRASE"), "texts of the program are found as they are");
    let planted: Vec<_> = ALL.iter().filter(|mutant| holds(mutant.name)).collect();
    assert!(planted.is_empty() && !holds("TARN_MUTANT"), "built with the feature `mutants`: {planted:?}");
}
