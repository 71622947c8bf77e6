//! Fuzz tests of the parsers of records, snapshots and the tip file. Their checksums are corrected first: random
//! changes would never get them right, and another release would.

use coordinator_core::{LogEntry, State};
use sluice_fuzz::{Fuzz, place_for_files};

use super::super::{Snapshot, Time, encoding, open, tip::TipFile};

fn sealed(json: &[u8]) -> Vec<u8> {
    let sum = format!("{:08x} ", crc32fast::hash(json));
    [sum.as_bytes(), json].concat()
}

const WORDS: &[&str] = &[
    "\"seq\":",
    "\"at\":",
    "\"type\":",
    "\"step_queued\"",
    "\"allocated\"",
    "\"pool_put\"",
    "\"policy_put\"",
    "\"node_reported\"",
    "\"node_ready\"",
    "\"step_ended\"",
    "\"released\"",
    "\"preempted\"",
    "\"coordinator_started\"",
    "\"step\":",
    "\"attempt\":",
    "\"pool\":",
    "\"subject\":",
    "\"node\":",
    "\"placements\":[",
    "\"gpus\":[",
    "\"spec\":{",
];

/// Reads lines of records, each at its position: inconsistent ones are rejected, and accepted ones are read back the
/// same.
#[test]
fn records() {
    Fuzz::new("records")
        .words(WORDS)
        .max_bytes(8192)
        .memory(4 << 20, 2048)
        .run(|input| {
            let mut state = State::default();
            for json in input.split(|byte| *byte == b'\n').take(50) {
                let Ok(mut record) = encoding::parse::<LogEntry>(&sealed(json)) else {
                    continue;
                };
                let again = encoding::seal(&record);
                assert_eq!(open::record_in(&again, record.seq).unwrap(), record);
                record.seq = state.seq() + 1;
                if state.apply(&record).is_err() {
                    return;
                }
            }
            is_kept(state);
        });
}

fn is_kept(state: State) {
    let snapshot = Snapshot {
        seq: state.seq(),
        at: Time::from_unix_millis(1),
        state,
    };
    let json = encoding::seal(&snapshot);
    let read: Snapshot<State> = encoding::parse(&json).unwrap();
    assert_eq!(read.state, snapshot.state);
}

#[test]
fn snapshots() {
    let place = std::path::Path::new("store.redb");
    Fuzz::new("snapshot")
        .words(WORDS)
        .memory(4 << 20, 2048)
        .run(|input| {
            if let Err(error) = open::snapshot_in(&sealed(input), 7, place) {
                let message = error.to_string();
                assert!(message.contains("store.redb"), "{message}");
                assert!(!message.chars().any(char::is_control), "{message:?}");
            }
        });
}

#[test]
fn marks_of_the_last_record() {
    let dir = tempfile::tempdir_in(place_for_files()).unwrap();
    let path = dir.path().join("tip");
    let words = ["\"seq\":", "\"closed\":", "\"bytes\":", "\"sum\":", "null"];
    Fuzz::new("tip").words(&words).run(|input| {
        for bytes in [input.to_vec(), sealed(input)] {
            std::fs::write(&path, bytes).unwrap();
            if let Err(error) = TipFile::read(&path) {
                let message = error.to_string();
                assert!(message.contains("tip"), "{message}");
                assert!(!message.chars().any(char::is_control), "{message:?}");
            }
        }
    });
}
