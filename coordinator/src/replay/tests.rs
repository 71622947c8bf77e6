//! Replays of a store: its states in the API's form, and the changes between them.

use std::path::Path;

use sluice_common::state::StepState;

use super::*;
use crate::fixture::RecordMaker;
use crate::store::{DEFAULT_RETENTION, Store};

/// Makes a store with three waiting steps.
fn store() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    let (mut maker, records) = RecordMaker::on(recovered.state, recovered.cluster);
    store.append(&records).unwrap();
    for id in ["a", "b", "c"] {
        store.append(&maker.submit(id)).unwrap();
    }
    store.close().unwrap();
    dir
}

fn replayed(dir: &Path, seq: Option<u64>) -> ReplayView {
    state(dir, seq, None).unwrap()
}

#[test]
fn a_state_has_what_there_was_and_nothing_that_came_later() {
    let dir = store();
    let last = replayed(dir.path(), None);
    assert_eq!(last.seq, last.last);
    let ids = |view: &ReplayView| {
        let ids = view.steps.iter().map(|step| step.id.clone());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(ids(&last), ["a", "b", "c"]);
    assert!(last.steps.iter().all(|s| s.state == StepState::Queued));
    assert_eq!(last.pools.len(), 1);
    assert_eq!(last.policies[0].subject, "default");
    assert_eq!(ids(&replayed(dir.path(), Some(last.last - 1))), ["a", "b"]);
    let before = replayed(dir.path(), Some(0));
    assert_eq!((before.at, before.pools.len()), (None, 0));
    let again = serde_json::to_string(&replayed(dir.path(), None)).unwrap();
    assert_eq!(serde_json::to_string(&last).unwrap(), again);
}

#[test]
fn one_step_is_told_alone_or_refused_where_it_is_not_there() {
    let dir = store();
    let last = replayed(dir.path(), None).last;
    let b = "b".parse().unwrap();
    let view = state(dir.path(), None, Some(&b)).unwrap();
    assert_eq!((view.steps.len(), view.pools.len()), (1, 0));
    let early = state(dir.path(), Some(last - 2), Some(&b)).unwrap_err();
    assert!(
        early
            .to_string()
            .starts_with(&format!("there is no step `b` at record {}", last - 2)),
        "{early}"
    );
}

#[test]
fn changes_name_the_record_that_made_them() {
    let dir = store();
    let last = replayed(dir.path(), None).last;
    let all = changes(dir.path(), 0, last, None).unwrap().changes;
    let what: Vec<&str> = all.iter().map(|change| &*change.what).collect();
    let expected = [
        "coordinator",
        "pool/default",
        "policy/default/default",
        "step/a",
        "step/b",
        "step/c",
    ];
    assert_eq!(what, expected);
    let seqs: Vec<u64> = all.iter().map(|change| change.seq).collect();
    assert_eq!(seqs, (1..=last).collect::<Vec<_>>());
    let b = "b".parse().unwrap();
    let of_b = changes(dir.path(), 0, last, Some(&b)).unwrap().changes;
    assert_eq!(of_b, [all[4].clone()]);
    assert_eq!(of_b[0].r#type, "step_queued");
    assert_eq!(
        (of_b[0].before.as_deref(), of_b[0].after.as_deref()),
        (None, Some("queued"))
    );
    assert_eq!(changes(dir.path(), last, last, None).unwrap().changes, []);
    for (from, to, expected) in [
        (2, 1, "record 2 comes after record 1"),
        (0, 99, "record 99 has not happened"),
    ] {
        let error = changes(dir.path(), from, to, None).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
