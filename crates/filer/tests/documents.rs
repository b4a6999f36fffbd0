//! The documents say what the program does: every key, every exit code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tarn_filer::config::File;

fn document() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md")).unwrap()
}

/// First cells of the rows of the table under `heading`.
fn first_cells(text: &str, heading: &str) -> BTreeSet<String> {
    let (_, rest) = text.split_once(heading).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.split('|').nth(1).unwrap().trim().trim_matches('`').to_owned()).collect()
}

#[test]
fn every_key_is_documented_and_no_other() {
    let text = toml::to_string(&File::full()).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let mut keys = BTreeSet::new();
    for (name, value) in &table {
        match value.as_table() {
            Some(section) => keys.extend(section.keys().map(|key| format!("{name}.{key}"))),
            None => {
                keys.insert(name.clone());
            }
        }
    }
    assert!(keys.len() > 15);
    assert_eq!(first_cells(&document(), "\n## Keys"), keys);
}

#[test]
fn every_key_is_read_back_and_no_other_is_understood() {
    let text = toml::to_string(&File::full()).unwrap();
    assert_eq!(File::parse(&text).unwrap(), File::full());
    for line in ["surprise = 1", "[surprise]", "[log]\nsurprise = 1", "[nfs]\nlisten = 1", "log = 1", "[log", "data"] {
        let reason = File::parse(line).unwrap_err();
        assert!(reason.starts_with("line ") && !reason.contains('\n'), "{reason:?}");
    }
}

#[test]
fn every_exit_code_is_documented_and_given_once() {
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/exit.rs")).unwrap();
    let arms = source.lines().filter_map(|line| line.trim().strip_prefix("Stop::")?.split_once(" => "));
    let codes: Vec<String> =
        arms.map(|(_, code)| code.trim_end_matches(',').to_owned()).filter(|code| code.parse::<u8>().is_ok()).collect();
    let unique: BTreeSet<String> = codes.iter().cloned().collect();
    assert_eq!(codes.len(), unique.len(), "a code is given twice");
    assert!(codes.len() > 30);
    assert_eq!(first_cells(&document(), "\n## Exit codes"), unique);
}
