//! Fuzz tests of steps' output on its way to a terminal.

use sluice_fuzz::Fuzz;

use crate::out::SanitizedWriter;

fn shown(pieces: &[&[u8]]) -> String {
    let mut tamed = SanitizedWriter::default();
    let mut shown: Vec<u8> = pieces.iter().flat_map(|piece| tamed.pass(piece)).collect();
    shown.extend(tamed.finish());
    String::from_utf8(shown).expect("text is shown")
}

/// Removes what may pass: colours, and the sequence that clears the rest of a line.
fn without_what_passes(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut left = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let numbers = |c: char| c.is_ascii_digit() || matches!(c, ';' | ':');
        let rest = part.trim_start_matches(numbers);
        let rest = rest.strip_prefix('m').or_else(|| rest.strip_prefix('K'));
        left.push_str(rest.expect("nothing else begins with ESC"));
    }
    left
}

/// Checks that nothing else controls the terminal, that text is unchanged, and that cuts do not matter.
#[test]
fn output_of_steps() {
    let words = [
        "\u{1b}[",
        "\u{1b}]0;",
        "\u{1b}[1;31m",
        "\u{1b}[2K",
        "\u{1b}[2J",
        "\u{9b}",
        "\u{7}",
        "\u{202e}",
    ];
    Fuzz::new("terminal").words(&words).run(|input| {
        let whole = shown(&[input]);
        let left = without_what_passes(&whole);
        let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{8}');
        assert!(!left.contains(steers), "{whole:?}");
        let cut: Vec<&[u8]> = input.chunks(1).collect();
        assert_eq!(shown(&cut), whole);
        if let Ok(text) = std::str::from_utf8(input)
            && !text.contains(steers)
        {
            assert_eq!(whole, text);
        }
    });
}
