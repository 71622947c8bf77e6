//! Rules of words: a doc comment has more than two words and begins with its subject, a name is one type within a crate,
//! and type names consist of words of the glossary or of a list that does not grow.

use std::collections::{BTreeMap, BTreeSet};

use super::{is_product, root, sources};

/// Fewest words of a doc comment.
const LEAST_WORDS: usize = 3;

/// Words that no doc comment begins with, because they leave out its subject.
const BAD_OPENINGS: [&str; 11] = [
    "It", "Its", "Whose", "Which", "Where", "What", "That", "Who", "How", "As", "So",
];

/// Words of type names beyond those of the glossary: sorted, one a line.
const TYPE_WORDS: &str = include_str!("type_words.txt");

/// Number of these words. It only falls: a new word belongs into the glossary.
const MOST_TYPE_WORDS: usize = 613;

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

/// Whether a line begins an item that other crates may use. Macros add the docs of the items that they name.
fn is_public_item(line: &str) -> bool {
    let kinds = [
        "fn", "struct", "enum", "trait", "type", "const", "static", "union", "async", "unsafe",
    ];
    let mut words = line.split(' ');
    words.next() == Some("pub")
        && words.next().is_some_and(|kind| kinds.contains(&kind))
        && words.next().is_some_and(|name| !name.starts_with('$'))
}

/// Returns the words of a type name: `PoolView` has `Pool` and `View`.
fn words_of(name: &str) -> Vec<&str> {
    let starts = name.char_indices().filter(|(_, c)| c.is_uppercase());
    let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([name.len()]);
    let words = starts.iter().zip(ends).map(|(from, to)| &name[*from..to]);
    words
        .map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_'))
        .collect()
}

/// Returns the words of the terms that the glossary defines, in lower case.
fn glossary_words() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let sections = text.split("| term | meaning |").skip(1);
    let rows = sections.flat_map(|section| {
        let table = section.trim_start().lines();
        table.take_while(|line| line.starts_with('|'))
    });
    let terms = rows.filter_map(|row| row.split('|').nth(1));
    let words = terms.flat_map(|term| term.split(|c: char| !c.is_alphabetic()));
    words
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Whether a word or its singular is one of these.
fn is_among(words: &BTreeSet<String>, word: &str) -> bool {
    let word = word.to_lowercase();
    let singular = word.strip_suffix('s');
    words.contains(&word) || singular.is_some_and(|one| words.contains(one))
}

#[test]
fn doc_comments_say_more_than_two_words() {
    let mut short = Vec::new();
    for (path, text) in sources() {
        let docs = docs(&text).into_iter();
        let found = docs.filter(|(_, doc)| doc.split_whitespace().count() < LEAST_WORDS);
        short.extend(found.map(|(line, doc)| format!("{path}:{line}:{doc}")));
    }
    assert!(
        short.is_empty(),
        "doc comments of one or two words: delete each, or say more\n{}",
        short.join("\n")
    );
}

#[test]
fn public_items_have_doc_comments() {
    let mut bare = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| is_product(path)) {
        let (mut has_doc, mut in_attribute) = (false, false);
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if in_attribute || line.starts_with("#[") {
                in_attribute = !line.ends_with(']');
            } else if line.starts_with("///") {
                has_doc = true;
            } else {
                if is_public_item(line) && !has_doc {
                    bare.push(format!("{path}:{number}: {line}"));
                }
                has_doc = false;
            }
        }
    }
    assert!(
        bare.is_empty(),
        "public items without a doc comment, which only fields and variants may lack\n{}",
        bare.join("\n")
    );
}

#[test]
fn doc_comments_begin_with_their_subject() {
    let mut bad = Vec::new();
    for (path, text) in sources() {
        let docs = docs(&text).into_iter();
        let found = docs.filter(|(_, doc)| {
            let first = doc.trim_start().split(|c: char| !c.is_alphabetic()).next();
            first.is_some_and(|first| BAD_OPENINGS.contains(&first))
        });
        bad.extend(found.map(|(line, doc)| format!("{path}:{line}:{doc}")));
    }
    assert!(
        bad.is_empty(),
        "doc comments that begin without their subject: name it first\n{}",
        bad.join("\n")
    );
}

#[test]
fn type_names_consist_of_known_words() {
    let list: Vec<&str> = TYPE_WORDS.lines().collect();
    assert!(
        list.is_sorted() && list.len() == MOST_TYPE_WORDS,
        "`type_words.txt` is sorted and does not grow: {} words, not {MOST_TYPE_WORDS}; add a new term to \
         `docs/glossary.md`, with its meaning",
        list.len()
    );
    let glossary = glossary_words();
    let listed: BTreeSet<String> = list.iter().map(|word| word.to_lowercase()).collect();
    let mut used = BTreeSet::new();
    for (path, text) in sources().iter().filter(|(path, _)| is_product(path)) {
        for name in text.lines().filter_map(defined) {
            for word in words_of(name) {
                assert!(
                    is_among(&glossary, word) || is_among(&listed, word),
                    "{path}: `{word}` of the type `{name}` is neither a term of `docs/glossary.md` nor a word of \
                     `tests/tests/tidy/type_words.txt`: use one of these, or add the term to the glossary"
                );
                used.insert(word.to_lowercase());
            }
        }
    }
    for word in list {
        let plural = format!("{}s", word.to_lowercase());
        assert!(
            used.contains(&word.to_lowercase()) || used.contains(&plural),
            "no type name has the word `{word}` any more: remove it from `type_words.txt`"
        );
        assert!(
            !is_among(&glossary, word),
            "the glossary has `{word}`: remove it from `type_words.txt`"
        );
    }
}

#[test]
fn a_word_outside_the_list_and_the_glossary_is_unknown() {
    let glossary = glossary_words();
    let is_known =
        |word: &&str| is_among(&glossary, word) || TYPE_WORDS.lines().any(|it| it == *word);
    let unknown = |name| {
        words_of(name)
            .into_iter()
            .filter(|word| !is_known(word))
            .collect::<Vec<_>>()
    };
    assert_eq!(unknown("StepMouth2"), ["Mouth"]);
    assert_eq!(unknown("PoolView"), [""; 0]);
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
    for ((of, name), places) in &files {
        assert!(
            places.len() == 1,
            "{of} has a type `{name}` in several files: {places:?}; name each by what it holds"
        );
    }
}
