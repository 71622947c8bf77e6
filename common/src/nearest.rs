//! "Did you mean": the known word that is nearest to one that nobody knows.

use alloc::vec::Vec;

/// The word among `known` that takes fewest edits to reach from `word`, if it is near enough to be worth suggesting
/// (at most a third of the letters differ, or one is the beginning of the other).
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let distance = edits(word, candidate);
        // `gpus` means what begins with `gpu`.
        let stem = word.strip_suffix('s').unwrap_or(word);
        let prefix =
            stem.len() >= 3 && (candidate.starts_with(stem) || word.starts_with(candidate));
        let near = distance * 3 <= candidate.chars().count().max(3) || prefix;
        if near && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The field that a deserializer did not know and the nearest one that it does, read off serde's own sentence
/// (``unknown field `x`, expected one of `a`, `b` ``). `None` where the sentence is another.
pub fn unknown_field(message: &str) -> Option<(&str, Option<&str>)> {
    let (_, rest) = message.split_once("unknown field `")?;
    let (field, rest) = rest.split_once('`')?;
    // What stands between backticks after the comma are the known fields.
    let known = rest.split('`').skip(1).step_by(2);
    Some((field, nearest(field, known)))
}

/// Levenshtein's distance, one row at a time.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replace = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_nonsense_finds_none() {
        let known = ["gpu_count", "cpu_count", "memory", "preemptible"];
        assert_eq!(nearest("gpu_cuont", known), Some("gpu_count"));
        assert_eq!(nearest("mem", known), Some("memory"));
        assert_eq!(nearest("gpus", known), Some("gpu_count"));
        assert_eq!(nearest("preemptable", known), Some("preemptible"));
        assert_eq!(nearest("colour", known), None);
    }

    #[test]
    fn serde_s_sentence_names_the_field_and_its_nearest() {
        let message = "unknown field `nod`, expected one of `node`, `pool` at line 1";
        assert_eq!(unknown_field(message), Some(("nod", Some("node"))));
        let message = "unknown field `x`, expected `pool`";
        assert_eq!(unknown_field(message), Some(("x", None)));
        assert_eq!(unknown_field("invalid type: string"), None);
    }
}
