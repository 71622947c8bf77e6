//! Suggestions for misspelled words ("did you mean").

use alloc::vec::Vec;

/// Returns the candidate with the smallest edit distance to `word`, if it is close enough to suggest: at most a third
/// of the letters differ, or one is a prefix of the other.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let distance = edits(word, candidate);
        // Suggest `gpu_count` for `gpus`: the first that begins alike, because what is used most stands first.
        let stem = word.strip_suffix('s').unwrap_or(word);
        let prefix =
            stem.len() >= 3 && (candidate.starts_with(stem) || word.starts_with(candidate));
        let is_near = distance * 3 <= candidate.chars().count().max(3);
        let rank = if is_near { distance } else { usize::MAX };
        if (is_near || prefix) && best.is_none_or(|(least, _)| rank < least) {
            best = Some((rank, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Extracts an unknown field and its nearest known field from serde's message (``unknown field `x`, expected one of
/// `a`, `b` ``). `None` for any other message.
pub fn unknown_field(message: &str) -> Option<(&str, Option<&str>)> {
    let (_, rest) = message.split_once("unknown field `")?;
    let (field, rest) = rest.split_once('`')?;
    // The known fields stand between backticks after the comma.
    let known = rest.split('`').skip(1).step_by(2);
    Some((field, nearest(field, known)))
}

/// Levenshtein distance, computed row by row.
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
        let known = [
            "gpu_count",
            "cpu_count",
            "memory",
            "preemptible",
            "gpu_class",
        ];
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
