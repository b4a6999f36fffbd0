//! No cycles among a crate's top-level modules.
//!
//! - An edge is a path `crate::module` (or `super::module` from a top-level file) outside tests; a name that the
//!   crate's root re-exports counts for the module it comes from.
//! - One finding a knot: the shortest way round, each step with a place to look.

use super::{Finding, Tree};
use crate::source::{Source, line_of};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// From module to module, with the place of the first path that says so.
type Graph = BTreeMap<String, BTreeMap<String, Place>>;
type Place = (String, usize);

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let folders = tree.packages().iter().map(|package| format!("{}/src/", package.folder));
    Ok(folders.flat_map(|folder| findings(&folder, &tree.sources)).collect())
}

fn findings(folder: &str, sources: &[Source]) -> Vec<Finding> {
    let own: Vec<&Source> = sources.iter().filter(|source| source.path.starts_with(folder)).collect();
    let modules: BTreeSet<&str> = own.iter().filter_map(|source| module(folder, &source.path)).collect();
    let exports = exports(folder, &own, &modules);
    let mut graph = Graph::new();
    for source in &own {
        let Some(from) = module(folder, &source.path) else { continue };
        for (name, line) in paths(source, top_level(folder, &source.path)) {
            let to = exports.get(name.as_str()).map_or(name.as_str(), String::as_str);
            if to != from && modules.contains(to) {
                let place = (source.path.clone(), line);
                graph.entry(from.to_owned()).or_default().entry(to.to_owned()).or_insert(place);
            }
        }
    }
    knots(&graph)
}

/// `src/ops/rename.rs` belongs to `ops`; the crate's roots belong to none.
fn module<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder)?;
    let first = rest.split('/').next()?.trim_end_matches(".rs");
    let root = !rest.contains('/') && matches!(first, "lib" | "main") || first == "bin";
    (!root).then_some(first)
}

/// `super::` in a top-level file is the crate.
fn top_level(folder: &str, path: &str) -> bool {
    let rest = path.strip_prefix(folder).unwrap_or(path);
    !rest.contains('/') || rest.matches('/').count() == 1 && rest.ends_with("/mod.rs")
}

/// The names after `crate::` (and `super::` where that is the crate), with their lines from 1.
fn paths(source: &Source, top_level: bool) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let prefixes: &[&str] = if top_level { &["crate::", "super::"] } else { &["crate::"] };
    for prefix in prefixes {
        for (at, _) in source.code.match_indices(prefix) {
            let line = line_of(&source.code, at);
            if source.is_test(line) {
                continue;
            }
            let rest = &source.code[at + prefix.len()..];
            found.extend(heads(rest).into_iter().map(|name| (name, line + 1)));
        }
    }
    found
}

/// The first name of a path, or of each branch of a group.
fn heads(rest: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
    };
    let Some(group) = rest.strip_prefix('{') else {
        return vec![name(rest)];
    };
    let mut depth = 1;
    let mut start = 0;
    let mut heads = Vec::new();
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && character == ',') {
            heads.push(name(&group[start..at]));
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

/// What the root re-exports: name to module.
fn exports(folder: &str, own: &[&Source], modules: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    let roots = own.iter().filter(|source| source.path.starts_with(folder) && module(folder, &source.path).is_none());
    for root in roots {
        for (at, _) in root.code.match_indices("pub use ") {
            let item = root.code[at + 8..].split(';').next().unwrap_or_default();
            let item = item.trim_start_matches("crate::").trim_start_matches("self::");
            let Some((from, names)) = item.split_once("::") else { continue };
            if !modules.contains(from) {
                continue;
            }
            let words = names.split(|character: char| !(character.is_alphanumeric() || character == '_'));
            exports.extend(words.filter(|word| !word.is_empty()).map(|word| (word.to_owned(), from.to_owned())));
        }
    }
    exports
}

fn knots(graph: &Graph) -> Vec<Finding> {
    let mut tied = BTreeSet::new();
    let mut found = Vec::new();
    for start in graph.keys() {
        if tied.contains(start) {
            continue;
        }
        let Some(round) = shortest_round(graph, start) else { continue };
        tied.extend(round.iter().cloned());
        let steps: Vec<String> = round
            .iter()
            .zip(round.iter().cycle().skip(1))
            .map(|(from, to)| {
                let (path, line) = &graph[from][to];
                format!("{from} -> {to} ({path}:{line})")
            })
            .collect();
        let (path, line) = &graph[&round[0]][&round[1 % round.len()]];
        found.push(Finding::new(path, *line, format!("modules form a cycle: {}", steps.join(", "))));
    }
    found
}

/// The modules on the shortest way from `start` back to itself.
fn shortest_round(graph: &Graph, start: &str) -> Option<Vec<String>> {
    let mut came: BTreeMap<String, String> = BTreeMap::new();
    let mut queue = VecDeque::from([start.to_owned()]);
    while let Some(at) = queue.pop_front() {
        for to in graph.get(&at).into_iter().flat_map(BTreeMap::keys) {
            if to == start {
                let mut round = vec![at.clone()];
                while round.last().is_some_and(|last| last != start) {
                    let before = came.get(round.last()?)?.clone();
                    round.push(before);
                }
                round.reverse();
                return Some(round);
            }
            if !came.contains_key(to) {
                came.insert(to.clone(), at.clone());
                queue.push_back(to.clone());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Finding> {
        let sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        findings("crates/x/src/", &sources)
    }

    #[test]
    fn a_cycle_is_found_with_its_places() {
        let cycle = [
            ("crates/x/src/a.rs", "use crate::{b::B, std_like};"),
            ("crates/x/src/b/mod.rs", ""),
            ("crates/x/src/b/c.rs", "fn f() {\n crate::d::g() }"),
            ("crates/x/src/d.rs", "use super::a::A;"),
        ];
        let what = &found(&cycle)[0].what;
        assert!(what.contains("a -> b (crates/x/src/a.rs:1), b -> d (crates/x/src/b/c.rs:2)"), "{what}");
        assert_eq!(found(&cycle).len(), 1);
        assert!(found(&cycle[..3]).is_empty());
    }

    #[test]
    fn a_cycle_through_a_name_of_the_root_is_found() {
        let files = [
            ("crates/x/src/lib.rs", "mod a; mod b; pub use b::{B, C};"),
            ("crates/x/src/a.rs", "use crate::B;"),
            ("crates/x/src/b.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn tests_may_look_back() {
        let files = [
            ("crates/x/src/a.rs", "use crate::b::B;"),
            ("crates/x/src/b.rs", "#[cfg(test)]\nmod tests {\n use crate::a::A;\n}"),
        ];
        assert!(found(&files).is_empty());
    }
}
