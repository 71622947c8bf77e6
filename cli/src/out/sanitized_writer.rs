//! Sanitises a step's output for a terminal: text, colours and what redraws a line pass; every other control sequence
//! (titles, the clipboard, the cursor, the whole screen) is shown as an escape. Output to a file or a pipe does not
//! come here.
//!
//! ```text
//! ESC [ 1 ; 31 m    passes: colours and weights end with the output
//! ESC [ K           passes: the rest of the line, as progress bars clear it
//! anything else     \u{1b}, and what follows is text
//! ```

/// Longest sequence that is recognised: five numbers of a colour are twenty bytes.
const MAX_SEQUENCE_BYTES: usize = 32;

const ESCAPE: u8 = 0x1b;

/// Sanitises bytes as they come, cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct SanitizedWriter {
    /// An incomplete character or sequence at the end of the bytes so far.
    unfinished: Vec<u8>,
    /// Whether the terminal's colour or weight is changed.
    is_painted: bool,
}

/// Beginning of some bytes.
enum Sequence {
    /// Number of bytes that pass.
    Plain(usize),
    /// A control character, to be escaped.
    Steering(char),
    /// Number of bytes that are not text.
    Foreign(usize),
    /// More bytes are needed.
    Unfinished,
}

impl SanitizedWriter {
    /// Returns the sanitised form of these bytes and the incomplete ones before.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut waiting = std::mem::take(&mut self.unfinished);
        waiting.extend_from_slice(bytes);
        let mut shown = Vec::with_capacity(waiting.len());
        let mut rest = &waiting[..];
        while !rest.is_empty() {
            let taken = match piece(rest) {
                Sequence::Plain(length) => {
                    self.note(&rest[..length]);
                    shown.extend_from_slice(&rest[..length]);
                    length
                }
                Sequence::Steering(c) => {
                    shown.extend(c.escape_default().map(|c| c as u8));
                    c.len_utf8()
                }
                Sequence::Foreign(length) => {
                    shown.extend(escaped(&rest[..length]));
                    length
                }
                Sequence::Unfinished => break,
            };
            rest = &rest[taken..];
        }
        self.unfinished = rest.to_vec();
        shown
    }

    /// Ends the output: returns the incomplete rest, and a reset of colours.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let unfinished = std::mem::take(&mut self.unfinished);
        let mut shown = match unfinished.strip_prefix(&[ESCAPE]) {
            // The rest of a sequence is text.
            Some(text) => [br"\u{1b}", text].concat(),
            None => escaped(&unfinished).collect(),
        };
        if std::mem::take(&mut self.is_painted) {
            shown.extend(b"\x1b[0m");
        }
        shown
    }

    fn note(&mut self, passed: &[u8]) {
        if passed.first() == Some(&ESCAPE) && passed.last() == Some(&b'm') {
            self.is_painted = !matches!(passed, b"\x1b[m" | b"\x1b[0m");
        }
    }
}

fn escaped(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes
        .iter()
        .flat_map(|byte| format!("\\x{byte:02x}").into_bytes())
}

fn piece(bytes: &[u8]) -> Sequence {
    match bytes[0] {
        ESCAPE => sequence(bytes),
        b'\n' | b'\r' | b'\t' | 0x08 => Sequence::Plain(1),
        // Most output is printable runs.
        b' '..=b'~' => {
            let run = bytes.iter().take_while(|byte| matches!(byte, b' '..=b'~'));
            Sequence::Plain(run.count())
        }
        _ => character(bytes),
    }
}

fn sequence(bytes: &[u8]) -> Sequence {
    let steering = Sequence::Steering(char::from(ESCAPE));
    match bytes.get(1) {
        None => return Sequence::Unfinished,
        Some(b'[') => {}
        Some(_) => return steering,
    }
    let numbers = bytes[2..]
        .iter()
        .take_while(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'));
    let length = 2 + numbers.count();
    match bytes.get(length) {
        Some(b'm' | b'K') if length < MAX_SEQUENCE_BYTES => Sequence::Plain(length + 1),
        None if length < MAX_SEQUENCE_BYTES => Sequence::Unfinished,
        Some(_) | None => steering,
    }
}

fn character(bytes: &[u8]) -> Sequence {
    let longest = &bytes[..bytes.len().min(4)];
    let (text, wrong) = match std::str::from_utf8(longest) {
        Ok(text) => (text, None),
        Err(error) => {
            let text = std::str::from_utf8(&longest[..error.valid_up_to()]);
            (text.unwrap_or_default(), Some(error))
        }
    };
    match (text.chars().next(), wrong) {
        (Some(c), _) if c.is_control() => Sequence::Steering(c),
        (Some(c), _) => Sequence::Plain(c.len_utf8()),
        (None, Some(error)) => error
            .error_len()
            .map_or(Sequence::Unfinished, Sequence::Foreign),
        (None, None) => Sequence::Unfinished,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(bytes: &[u8]) -> String {
        let mut tamed = SanitizedWriter::default();
        let mut shown = tamed.pass(bytes);
        shown.extend(tamed.finish());
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn text_colours_and_progress_bars_pass() {
        for text in [
            "plain\ttext\r\nof 日本 \u{202b}العربية\u{202c} 👩\u{200d}💻\n",
            "\u{1b}[1;38;5;208mwarm\u{1b}[0m\n",
            "\u{1b}[38:2::1:2:3mexact\u{1b}[m",
            " 10%\r\u{1b}[K 20%\u{8}\u{8}\u{8}30%\u{1b}[2K\n",
        ] {
            assert_eq!(shown(text.as_bytes()), text);
        }
    }

    #[test]
    fn what_steers_is_shown() {
        for (bytes, expected) in [
            (&b"\x1b[2J\x1b[H"[..], r"\u{1b}[2J\u{1b}[H"),
            (b"\x1b]0;title\x07", r"\u{1b}]0;title\u{7}"),
            (b"\x1b]52;c;YQ==\x1b\\", r"\u{1b}]52;c;YQ==\u{1b}\"),
            (b"\x1bc\x1b[?1049h", r"\u{1b}c\u{1b}[?1049h"),
            (b"\x1b[3A\x1b[1;1H", r"\u{1b}[3A\u{1b}[1;1H"),
            (b"\xc2\x9b2J \x9b2J", r"\u{9b}2J \x9b2J"),
            (b"\x7f\x0c\x0e\x00", r"\u{7f}\u{c}\u{e}\u{0}"),
            (b"\x1b[6n", r"\u{1b}[6n"),
        ] {
            assert_eq!(shown(bytes), expected);
        }
    }

    #[test]
    fn what_never_ends_is_not_waited_for() {
        let mut tamed = SanitizedWriter::default();
        let mut said = tamed.pass(b"\x1b[");
        for _ in 0..1000 {
            said.extend(tamed.pass(b"1;"));
            assert!(tamed.unfinished.len() <= MAX_SEQUENCE_BYTES);
        }
        assert!(said.starts_with(br"\u{1b}[1;1;"));
        assert_eq!(shown(b"\x1b[3"), r"\u{1b}[3");
        assert_eq!(shown(b"gr\xc3"), r"gr\xc3");
    }

    #[test]
    fn colours_end_with_the_output() {
        assert_eq!(shown(b"\x1b[31mred"), "\u{1b}[31mred\u{1b}[0m");
    }

    proptest! {
        #[test]
        fn it_is_the_same_however_it_is_cut(
            bytes in proptest::collection::vec(prop_oneof![Just(ESCAPE), Just(b'['), Just(b'm'), any::<u8>()], 0..40),
            cut in 0usize..40
        ) {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let mut tamed = SanitizedWriter::default();
            let mut said = tamed.pass(first);
            said.extend(tamed.pass(second));
            said.extend(tamed.finish());
            prop_assert_eq!(String::from_utf8(said).unwrap(), shown(&bytes));
        }
    }
}
