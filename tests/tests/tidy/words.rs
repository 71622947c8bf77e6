//! Rules of words: a doc comment says more than two words, and a name is one type within a crate.

use std::collections::{BTreeMap, BTreeSet};

use super::{is_product, sources};

/// Crates with doc comments of one or two words, and how many. A number only falls.
const SHORT_DOCS: &[(&str, usize)] = &[
    ("agent/cgroups", 2),
    ("coordinator/core", 3),
    ("coordinator/scheduler", 10),
];

/// Type names that several files of a crate define. The list only shrinks.
const SHARED_NAMES: &[(&str, &[&str])] = &[("coordinator/scheduler", &["Search"])];

/// Fewest words of a doc comment.
const LEAST_WORDS: usize = 3;

/// Returns the folder of a file's crate.
fn crate_of(path: &str) -> &str {
    let ends = ["/src/", "/tests/", "/benches/", "/build.rs"];
    let end = ends.iter().filter_map(|end| path.find(end)).min();
    end.map_or(path, |end| &path[..end])
}

/// Returns the doc comments of a file, each with the number of its first line.
fn docs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let doc = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        match (doc, found.last_mut()) {
            (Some(words), Some((_, doc))) if goes_on => doc.push_str(words),
            (Some(words), _) => found.push((number, words.to_owned())),
            (None, _) => {}
        }
        goes_on = doc.is_some();
    }
    found
}

/// Returns the name of the type that a line defines. An indented `type` belongs to a trait.
fn defined(line: &str) -> Option<&str> {
    let item = line.trim_start();
    let item = match item.strip_prefix("pub").map(str::trim_start) {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest,
        None => item,
    };
    let (kind, rest) = item.split_once(' ')?;
    let is_type = match kind {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    let name = end.map_or(rest, |end| &rest[..end]);
    (is_type && name.starts_with(char::is_uppercase)).then_some(name)
}

#[test]
fn doc_comments_say_more_than_two_words() {
    let mut short: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources().iter().filter(|(path, _)| is_product(path)) {
        for (line, doc) in docs(text) {
            if doc.split_whitespace().count() < LEAST_WORDS {
                let of_crate = short.entry(crate_of(path).to_owned()).or_default();
                of_crate.push(format!("{path}:{line}:{doc}"));
            }
        }
    }
    for (name, found) in &short {
        println!("{name}: {} short doc comments", found.len());
        let known = SHORT_DOCS.iter().find(|(known, _)| known == name);
        assert!(
            known.is_some_and(|(_, most)| found.len() <= *most),
            "{name} has doc comments of one or two words: delete each, or say more\n{}",
            found.join("\n")
        );
    }
}

#[test]
fn a_name_is_one_type_within_a_crate() {
    let sources = sources();
    let mut files: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for (path, text) in &sources {
        for name in text.lines().filter_map(defined) {
            files
                .entry((crate_of(path), name))
                .or_default()
                .insert(path);
        }
    }
    let is_known = |(of, name): (&str, &str)| {
        let known = SHARED_NAMES.iter().find(|(known, _)| *known == of);
        known.is_some_and(|(_, names)| names.contains(&name))
    };
    for (at, places) in &files {
        let (of, name) = at;
        if is_known(*at) {
            println!("{of}: `{name}` is {} types", places.len());
        }
        assert!(
            places.len() == 1 || is_known(*at),
            "{of} has a type `{name}` in several files: {places:?}; name each by what it holds"
        );
    }
}
