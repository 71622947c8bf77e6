//! The store's contract: appended records survive any crash, and a damaged store does not open.

mod check;
mod crash;
mod damage;
mod fuzz;
mod history;
mod journal;
mod snapshots;
mod variables;

use std::path::Path;

use super::tables::{ENVIRONMENT, SNAPSHOT};
use super::*;
use crate::fixture::RecordMaker;

/// Opens a store, and begins to write.
fn begin(dir: &Path) -> (Store, RecordMaker) {
    begin_with(dir, DEFAULT_RETENTION)
}

fn begin_with(dir: &Path, retention: u64) -> (Store, RecordMaker) {
    let (mut store, recovered) = Store::open(dir, retention).unwrap();
    let (maker, records) = RecordMaker::on(recovered.state, recovered.cluster);
    store.append(&records).unwrap();
    (store, maker)
}

fn write(store: &mut Store, maker: &mut RecordMaker, ids: std::ops::Range<u32>) {
    for id in ids {
        store.append(&maker.submit(&format!("s{id}"))).unwrap();
    }
}

/// Drops a store as if its process had died after its journal was full: all records are in the tables.
fn drop_folded(mut store: Store) {
    store.fold(&[]).unwrap();
}

fn reopen(dir: &Path) -> Recovered {
    Store::open(dir, DEFAULT_RETENTION).unwrap().1
}

fn refusal(dir: &Path) -> String {
    let error = Store::open(dir, DEFAULT_RETENTION).map(|_| ()).unwrap_err();
    error.to_string()
}

#[test]
fn a_new_store_is_empty_and_keeps_its_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("a/b");
    let first = reopen(&data);
    assert_eq!((first.last_seq, &first.state), (0, &State::default()));
    assert_eq!(reopen(&data).cluster, first.cluster);
    assert_ne!(reopen(&dir.path().join("c")).cluster, first.cluster);
}

#[test]
fn what_was_appended_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..20);
    let last = store.last_seq();
    drop(store);
    let recovered = reopen(dir.path());
    assert_eq!(recovered.state, *maker.state());
    assert_eq!(recovered.last_seq, last);
    assert_eq!(recovered.last_at, Time::from_unix_millis(1020));
    assert!(recovered.state.step(&"s19".parse().unwrap()).is_some());
}

#[test]
fn a_snapshot_and_what_follows_it_come_back_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..10);
    store.snapshot(maker.state()).unwrap();
    assert!(!store.snapshot_due());
    drop(store);
    assert_eq!(
        reopen(dir.path()).state,
        *maker.state(),
        "with nothing after it"
    );

    let (mut store, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    assert_eq!(recovered.last_at, Time::from_unix_millis(1010));
    write(&mut store, &mut maker, 10..15);
    drop(store);
    assert_eq!(reopen(dir.path()).state, *maker.state());
}

#[test]
fn snapshots_let_go_of_what_nobody_may_ask_for() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin_with(dir.path(), 5);
    let reader = store.reader();
    for round in 0..4 {
        write(&mut store, &mut maker, round * 10..round * 10 + 10);
        store.snapshot(maker.state()).unwrap();
    }
    // Kept back to the older of two snapshots, which is beyond the retention.
    let last = store.last_seq();
    let error = reader.read(0, 1, |_| true).unwrap_err();
    assert!(
        matches!(error, ReadError::Gone { first } if first == last - 9),
        "{error}"
    );
    assert_eq!(
        reader.read(last - 10, 100, |_| false).unwrap().looked_at,
        10
    );
    assert!(reader.read(last, 100, |_| true).unwrap().events.is_empty());
    drop((store, reader));
    assert_eq!(reopen(dir.path()).state, *maker.state());
}

/// After a retention was lowered far, the first snapshot would drop millions of records at once while hosts wait.
#[test]
fn what_nobody_may_ask_for_goes_a_part_at_a_time() {
    let (mut first, mut last) = (1, 5_000_000);
    let mut snapshots = 0;
    while first < last - 1000 {
        let until = cut(first, last - SNAPSHOT_EVERY, last, 1000, 0);
        assert!(until - first < MOST_DROPPED);
        if until < first + SNAPSHOT_EVERY {
            break;
        }
        first = until + 1;
        last += SNAPSHOT_EVERY;
        snapshots += 1;
    }
    assert!((25..30).contains(&snapshots), "{snapshots}");
    assert_eq!(cut(1, 90, 100, 20, 0), 80);
    assert_eq!(cut(1, 90, 100, 20, 85), 85, "what is too heavy goes");
    assert_eq!(
        cut(1, 70, 100, 20, 85),
        70,
        "what a restart begins with stays"
    );
    assert_eq!(cut(0, 0, 0, 20, 0), 0, "of an empty log nothing");
}

#[test]
fn the_log_reads_back_in_order_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..30);
    let reader = store.reader();
    let mut seen = Vec::new();
    loop {
        let since = seen.last().map_or(0, |event: &Arc<Event>| event.record.seq);
        let page = reader.read(since, 7, |_| true).unwrap().events;
        if page.is_empty() {
            break;
        }
        seen.extend(page);
    }
    let numbers: Vec<u64> = seen.iter().map(|event| event.record.seq).collect();
    assert_eq!(numbers, (1..=store.last_seq()).collect::<Vec<_>>());
    let fold = seen.iter().fold(State::default(), |mut state, event| {
        state.apply(&event.record).unwrap();
        state
    });
    assert_eq!(fold, *maker.state());
    assert_eq!(
        serde_json::from_str::<LogEntry>(&seen[3].json).unwrap(),
        seen[3].record
    );
}

#[test]
fn a_gap_is_refused_before_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    let skipped = maker.submit("a");
    let error = store.append(&maker.submit("b")).unwrap_err();
    assert!(matches!(error, StoreError::OutOfOrder { .. }), "{error}");
    store.append(&skipped).unwrap();
}

#[test]
fn two_coordinators_cannot_have_one_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = begin(dir.path());
    let message = refusal(dir.path());
    let pid = format!("pid {}", std::process::id());
    for part in [dir.path().to_str().unwrap(), &pid, "--data-dir"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    drop(store);
    reopen(dir.path());
}

/// Large records fill the disk long before their number reaches the retention.
#[test]
fn large_records_are_snapshotted_and_dropped_by_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..10);
    store.since_snapshot = SNAPSHOT_EVERY_BYTES - 1;
    assert!(!store.snapshot_due());
    write(&mut store, &mut maker, 10..11);
    assert!(store.snapshot_due());
    store.snapshot(maker.state()).unwrap();
    assert!(!store.snapshot_due());
    // Makes the log appear as large as may be kept.
    store.sizes.add(store.last_seq(), RETENTION_BYTES);
    let last = store.last_seq();
    write(&mut store, &mut maker, 11..20);
    store.snapshot(maker.state()).unwrap();
    let error = store.reader().read(0, 1, |_| true).unwrap_err();
    assert!(
        matches!(error, ReadError::Gone { first } if first == last + 1),
        "{error}"
    );
    drop(store);
    assert_eq!(reopen(dir.path()).state, *maker.state());
}

/// A snapshot of a large state takes seconds of a processor.
#[test]
fn a_large_state_is_written_when_its_records_come_to_a_part_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..10);
    store.last_seq = store.last_snapshot + SNAPSHOT_EVERY;
    assert!(store.snapshot_due(), "a small state");
    store.snapshot_bytes = SNAPSHOT_SHARE * (store.since_snapshot + 1);
    assert!(!store.snapshot_due());
    store.since_snapshot += 1;
    assert!(store.snapshot_due());
    store.since_snapshot = 0;
    store.last_seq = store.last_snapshot + MOST_BETWEEN;
    assert!(store.snapshot_due(), "it would take long to read");
}

/// The log grows no further before a snapshot is due, however often a coordinator restarts.
#[test]
fn a_restart_counts_what_was_written_since_the_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..10);
    let counted = |store: &Store| (store.since_snapshot, store.snapshot_bytes);
    for ids in [10..10, 10..20, 20..20] {
        write(&mut store, &mut maker, ids.clone());
        let before = counted(&store);
        assert_eq!(before.0 > 0, ids != (20..20), "{before:?}");
        drop(store);
        store = Store::open(dir.path(), DEFAULT_RETENTION).unwrap().0;
        assert_eq!(counted(&store), before);
        if ids.end == 20 {
            store.snapshot(maker.state()).unwrap();
        }
    }
}
