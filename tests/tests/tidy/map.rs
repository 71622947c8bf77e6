//! Checks that ARCHITECTURE.md describes the tree as it is.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::root;
use super::tree::crates;

/// Lists every file and folder of the project, from the workspace's root.
fn places() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(&root(), &mut found);
    found
}

fn collect(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let inside = path.strip_prefix(root()).unwrap().to_str().unwrap();
        if ["target", ".git"].contains(&inside) {
            continue;
        }
        found.insert(inside.to_owned());
        if path.is_dir() {
            collect(&path, found);
        }
    }
}

/// Returns the texts in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a text in backquotes is a place of the tree: Rust files, and folders with a slash at their end.
fn is_place(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./{},".contains(c);
    word.chars().all(is_plain) && (word.ends_with(".rs") || word.ends_with('/'))
}

/// Expands `a/{b,c}.rs` to `a/b.rs` and `a/c.rs`.
fn expand(word: &str) -> Vec<String> {
    let (Some(open), Some(close)) = (word.find('{'), word.find('}')) else {
        return vec![word.to_owned()];
    };
    let (before, after) = (&word[..open], &word[close + 1..]);
    let between = word[open + 1..close].split(',');
    between.map(|it| format!("{before}{it}{after}")).collect()
}

#[test]
fn architecture_names_places_that_exist_and_every_crate() {
    let read = |page: &str| fs::read_to_string(root().join(page)).unwrap();
    let text = read("ARCHITECTURE.md");
    let pages = text.clone() + &read("docs/dev/adding.md");
    let places = places();
    let is_there = |word: &str| {
        let word = word.trim_end_matches('/');
        let end = format!("/{word}");
        places.iter().any(|it| it == word || it.ends_with(&end))
    };
    let named: Vec<String> = quoted(&pages)
        .filter(|it| is_place(it))
        .flat_map(expand)
        .collect();
    assert!(named.len() > 100, "the search is broken: {}", named.len());
    let missing: Vec<&String> = named.iter().filter(|it| !is_there(it)).collect();
    assert!(
        missing.is_empty(),
        "ARCHITECTURE.md or docs/dev/adding.md names what is not there: {missing:#?}"
    );
    for krate in crates() {
        let source = Path::new(&krate.files[0].path);
        let folder = source.ancestors().nth(2).unwrap().display();
        let name = krate.name.trim_end_matches(" (program)");
        let row = format!("| `{folder}/` | `{name}` |");
        assert!(
            text.contains(&row),
            "the map of ARCHITECTURE.md has no row `{row}`"
        );
    }
}
