//! Fuzz tests of what the command line reads: documents, traces, and streams of a coordinator. `fuzz/answers.rs` has
//! answers, `fuzz/files.rs` contexts and scenarios, `fuzz/terminal.rs` output of steps. The engine is `sluice-fuzz`.

mod answers;
mod files;
mod terminal;

use std::io;

use sluice_fuzz::Fuzz;

use crate::client::SseReader;
use crate::documents;
use crate::failure::Failure;
use crate::simulate;

/// Returns the printed message. `out` escapes control characters, since parsers quote what they read.
fn said(failure: Failure) -> String {
    match failure {
        Failure::Usage(said) | Failure::Failed(said) => said,
        other => panic!("{other}"),
    }
}

#[test]
fn documents_of_yaml() {
    let words = [
        "kind: pool\n",
        "kind: policy\n",
        "kind: host\n",
        "kind: cluster\n",
        "kind: template\n",
        "kind: platform\n",
        "kind: validation\n",
        "kind: role\n",
        "kind: binding\n",
        "kind: training\n",
        "name: p\n",
        "pool: p\n",
        "subject: s\n",
        "capacity: {gpu: 16}\n",
        "assertions:\n",
        "- assert: nodes <= 2\n  message: m\n",
        "command: [a]\n",
        "---\n",
        "...\n",
        "&a ",
        "*a",
        "<<: *a\n",
        "!!binary ",
        "!!str ",
        "? ",
        "|\n",
        ">-\n",
        "%YAML 1.2\n",
        "- ",
        "{",
        "}",
        "[",
        "]",
        ": ",
        "# ",
    ];
    // The parser counts nodes, and takes a few hundred bytes for each.
    Fuzz::new("yaml")
        .words(&words)
        .max_bytes(2000)
        .memory(8 << 20, 4096)
        .run(|input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return;
            };
            match documents::placed(text, "f.yaml") {
                Ok(placed) => assert!(!placed.is_empty()),
                Err(failure) => {
                    let said = said(failure);
                    assert!(said.starts_with("f.yaml"), "it names a place: {said:?}");
                }
            }
        });
}

#[test]
fn traces() {
    let words = [
        "timestamp,duration,num_gpus,cluster\n",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n",
        "qos,creation_time",
        "2017-10-09 07:01:55",
        "66.5",
        ",",
        "\n",
    ];
    Fuzz::new("trace").words(&words).run(|input| {
        let Ok(text) = std::str::from_utf8(input) else {
            return;
        };
        if let Err(failure) = simulate::jobs_in("t.csv", text) {
            let said = said(failure);
            assert!(said.starts_with("t.csv"), "it names a place: {said:?}");
        }
    });
}

/// Checks that events do not depend on how the stream is cut, and that a malformed one is reported once.
#[test]
fn streams_of_events() {
    let words = [
        "data: ",
        "event: ",
        "id: 7\n",
        "\n\n",
        ": \n",
        "\r\n",
        "{\"seq\":1}",
    ];
    Fuzz::new("events").words(&words).run(|input| {
        let whole: Vec<_> = SseReader::new(input).map(Result::ok).collect();
        let cut: Vec<_> = SseReader::new(OneByOne(input)).map(Result::ok).collect();
        assert_eq!(cut, whole);
    });
}

struct OneByOne<'a>(&'a [u8]);

impl io::Read for OneByOne<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let most = room.len().min(1);
        io::Read::read(&mut self.0, &mut room[..most])
    }
}
