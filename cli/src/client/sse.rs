//! Parses server-sent events by the rules of the WHATWG specification: fields `id`, `event` and `data`, comments as
//! keep-alives, an empty line after each event.

use std::io::{self, BufRead, BufReader, Read};

/// Longest accepted line; no record comes near it.
const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;
/// Most data of an event, over all lines.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Event type; `message` if the stream names none.
    pub(crate) kind: String,
    /// Data, lines joined.
    pub(crate) data: String,
}

/// Iterates over the events of a stream, until its end; an unfinished event is dropped.
pub(crate) struct SseReader<R> {
    lines: BufReader<R>,
    place: Option<u64>,
}

impl<R: Read> SseReader<R> {
    /// Reads from `stream`.
    pub(crate) fn new(stream: R) -> Self {
        Self {
            lines: BufReader::new(stream),
            place: None,
        }
    }

    /// Returns the position of the stream: the number of its last event, or a later one that it sent during a silence.
    pub(crate) fn place(&self) -> Option<u64> {
        self.place
    }

    fn next_line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let read = (&mut self.lines)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        if line.pop() != Some(b'\n') {
            let message = "the stream of events ended within a line, or the line has no end";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line)
            .map(Some)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }

    fn next_event(&mut self) -> io::Result<Option<SseEvent>> {
        let mut kind = String::new();
        let mut data: Option<String> = None;
        let mut id = None;
        while let Some(line) = self.next_line()? {
            if line.is_empty() {
                self.place = self.place.max(id);
                if let Some(data) = data.take() {
                    let kind = if kind.is_empty() {
                        "message".to_owned()
                    } else {
                        kind
                    };
                    return Ok(Some(SseEvent { kind, data }));
                }
                kind.clear();
                continue;
            }
            match field(&line) {
                ("event", value) => kind = value.to_owned(),
                ("data", value) => join(&mut data, value)?,
                ("id", value) => id = value.parse().ok(),
                // Comments begin with a colon and so have an empty name.
                _ => {}
            }
        }
        Ok(None)
    }
}

/// Adds a line to the data of an event.
fn join(data: &mut Option<String>, line: &str) -> io::Result<()> {
    let Some(data) = data else {
        *data = Some(line.to_owned());
        return Ok(());
    };
    if data.len() + line.len() >= MAX_EVENT_BYTES {
        let message = "an event of the stream has no end";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    data.push('\n');
    data.push_str(line);
    Ok(())
}

/// Splits a line into name and value; one space after the colon belongs to neither.
fn field(line: &str) -> (&str, &str) {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    (name, value.strip_prefix(' ').unwrap_or(value))
}

impl<R: Read> Iterator for SseReader<R> {
    type Item = io::Result<SseEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Vec<SseEvent> {
        SseReader::new(text.as_bytes())
            .map(Result::unwrap)
            .collect()
    }

    fn event(kind: &str, data: &str) -> SseEvent {
        SseEvent {
            kind: kind.into(),
            data: data.into(),
        }
    }

    #[test]
    fn fields_comments_and_line_ends_are_read_as_specified() {
        let text = ": hello\n\nid: 1\nevent: step_queued\ndata: {\"seq\":1}\n\n:\n\
                    data:a\ndata: b\ndata:  c\r\n\r\nevent: nothing\n\ndata\n\n";
        assert_eq!(
            parse(text),
            [
                event("step_queued", "{\"seq\":1}"),
                event("message", "a\nb\n c"),
                event("message", "")
            ]
        );
    }

    #[test]
    fn a_place_without_an_event_is_kept_once_it_came_whole() {
        let text = "id: 3\ndata: a\n\nid: 9\n\nid: 12";
        let mut events = SseReader::new(text.as_bytes());
        assert_eq!(events.place(), None);
        assert_eq!(events.next().unwrap().unwrap(), event("message", "a"));
        assert_eq!(events.place(), Some(3));
        assert!(events.next().unwrap().is_err(), "it breaks off");
        assert_eq!(events.place(), Some(9));
    }

    #[test]
    fn what_stands_unfinished_at_the_end_is_no_event() {
        assert_eq!(parse("data: a\n\ndata: b\n"), [event("message", "a")]);
        let cut = SseReader::new(&b"data: a\n\ndata: b"[..]).last().unwrap();
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn an_event_without_an_end_is_given_up() {
        let line = format!("data: {}\n", "x".repeat(1 << 20));
        let lines = line.repeat(17);
        let mut events = SseReader::new(lines.as_bytes().chain(io::repeat(b'\n')));
        let error = events.next().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn data_of_any_text_comes_back(text in "[^\r\n]{0,40}") {
            prop_assert_eq!(parse(&format!("data: {text}\n\n")), [event("message", &text)]);
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = SseReader::new(&bytes[..]).take(300).count();
        }
    }
}
