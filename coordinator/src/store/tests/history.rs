//! History of a store: every kept state comes back, nothing is changed, and damage is named where it is met.

use std::collections::BTreeMap;
use std::fs;

use super::*;
use crate::store::{HistoryError, StoreHistory};

/// Makes a store of some records with a snapshot among them; returns the state after each record.
fn lived(retention: u64) -> (tempfile::TempDir, Store, BTreeMap<u64, State>) {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin_with(dir.path(), retention);
    let mut states = BTreeMap::from([(store.last_seq(), maker.state().clone())]);
    for id in 0..40 {
        write(&mut store, &mut maker, id..id + 1);
        states.insert(store.last_seq(), maker.state().clone());
        if id == 15 || id == 25 {
            store.snapshot(maker.state()).unwrap();
        }
    }
    (dir, store, states)
}

/// Reads every file of a directory.
fn files(dir: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let paths = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

fn past_refusal(dir: &Path) -> String {
    StoreHistory::open(dir).unwrap_err().to_string()
}

#[test]
fn every_state_that_is_kept_comes_back_and_the_directory_is_left_as_it_was() {
    let (dir, store, states) = lived(DEFAULT_RETENTION);
    let last = store.last_seq();
    store.close().unwrap();
    let before = files(dir.path());
    let past = StoreHistory::open(dir.path()).unwrap();
    assert_eq!((past.first(), past.last()), (0, last));
    assert_eq!(past.fold(0).unwrap().0, State::default());
    for (seq, state) in &states {
        assert_eq!(past.fold(*seq).unwrap().0, *state, "record {seq}");
    }
    assert_eq!(past.fold(last).unwrap().1, Time::from_unix_millis(1040));
    let new = past.fold(last + 1).unwrap_err();
    assert_eq!(
        new.to_string(),
        format!("record {} has not happened: the last is {last}", last + 1)
    );
    assert!(files(dir.path()) == before, "it was written to");
}

#[test]
fn what_a_snapshot_stands_for_is_too_old() {
    let (dir, store, states) = lived(1);
    drop(store);
    // After a crash only the copy is repaired.
    let before = files(dir.path());
    let past = StoreHistory::open(dir.path()).unwrap();
    let first = past.first();
    assert!(first > 1);
    for (seq, state) in states.range(first..) {
        assert_eq!(past.fold(*seq).unwrap().0, *state, "record {seq}");
    }
    let old = past.fold(first - 1).unwrap_err();
    let expected = format!(
        "record {} is too old: the first whose state is still kept is {first}",
        first - 1
    );
    assert_eq!(old.to_string(), expected);
    assert!(files(dir.path()) == before, "it was written to");
}

#[test]
fn a_directory_that_is_in_use_or_empty_is_refused() {
    let (dir, store, _) = lived(DEFAULT_RETENTION);
    let running = past_refusal(dir.path());
    let pid = format!("(pid {})", std::process::id());
    for part in ["a coordinator runs in", &pid, "stop it first"] {
        assert!(running.contains(part), "{part}: {running}");
    }
    store.close().unwrap();
    let one = StoreHistory::open(dir.path()).unwrap();
    let other = StoreHistory::open(dir.path()).unwrap();
    assert_eq!(one.last(), other.last());
    // An open copy keeps no coordinator away.
    assert_eq!(reopen(dir.path()).last_seq, one.last());
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(
        StoreHistory::open(empty.path()).unwrap_err(),
        HistoryError::NoStore { .. }
    ));
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
}

#[test]
fn a_part_of_a_directory_of_dev_is_found_and_a_store_without_its_lock_read() {
    let (dir, store, _) = lived(DEFAULT_RETENTION);
    let last = store.last_seq();
    store.close().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let inside = copy.path().join("coordinator");
    fs::create_dir(&inside).unwrap();
    fs::copy(dir.path().join("store.redb"), inside.join("store.redb")).unwrap();
    assert_eq!(StoreHistory::open(copy.path()).unwrap().last(), last);
    assert_eq!(files(&inside).len(), 1, "no lock was made");
}

#[test]
fn damage_is_named_where_it_is_met_and_what_stands_before_it_is_told() {
    let (dir, store, states) = lived(DEFAULT_RETENTION);
    let last = store.last_seq();
    store.close().unwrap();
    let file = dir.path().join("store.redb");
    let db = Database::open(&file).unwrap();
    let txn = db.begin_write().unwrap();
    {
        let mut log = txn.open_table(LOG).unwrap();
        let mut line = log.get(35).unwrap().unwrap().value().to_vec();
        *line.last_mut().unwrap() ^= 4;
        log.insert(35, line.as_slice()).unwrap();
    }
    txn.commit().unwrap();
    drop(db);
    let past = StoreHistory::open(dir.path()).unwrap();
    assert_eq!(past.fold(34).unwrap().0, states[&34]);
    let damaged = past.fold(last).unwrap_err().to_string();
    for part in [
        &*file.to_string_lossy(),
        "table `log`, record 35: the checksum says",
    ] {
        assert!(damaged.contains(part), "{part}: {damaged}");
    }
    fs::write(&file, b"").unwrap();
    let emptied = past_refusal(dir.path());
    assert!(emptied.contains("it has no table `meta`"), "{emptied}");
    fs::write(&file, [7; 9000]).unwrap();
    let other = past_refusal(dir.path());
    assert!(other.contains("is damaged"), "{other}");
}

#[test]
fn an_older_copy_beside_a_newer_witness_is_refused() {
    let (dir, store, _) = lived(DEFAULT_RETENTION);
    store.close().unwrap();
    let file = dir.path().join("store.redb");
    let db = Database::open(&file).unwrap();
    let txn = db.begin_write().unwrap();
    let mut log = txn.open_table(LOG).unwrap();
    log.retain_in(40.., |_, _| false).unwrap();
    drop(log);
    txn.commit().unwrap();
    drop(db);
    fs::remove_file(dir.path().join(JOURNAL_FILE)).unwrap();
    let lost = past_refusal(dir.path());
    assert!(lost.contains("table `log` ends at record 39"), "{lost}");
}
