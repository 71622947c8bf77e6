//! Snapshots in parts: the log grows between them, one that never came to its end is dropped, and stores of the release
//! before are read and brought to the present layout.

use redb::{ReadableDatabase, ReadableTableMetadata};

use super::*;
use crate::store::snapshot::SNAPSHOTS_KEPT;
use crate::store::tables::{FORMAT, SNAPSHOT_PART};

/// Changes a closed store directly.
fn change(dir: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let db = Database::open(dir.join("store.redb")).unwrap();
    let txn = db.begin_write().unwrap();
    change(&txn);
    txn.commit().unwrap();
}

/// Records that are appended while a snapshot is sealed and stored come after it.
#[test]
fn the_log_grows_between_the_parts_of_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..10);
    let (seq, snapshot) = (store.last_seq(), store.begin_snapshot(maker.state()));
    let (parts, sealed) = snapshot.small_parts();
    assert!(parts.len() > 5, "{}", parts.len());
    for (part, id) in parts.iter().zip(10..) {
        write(&mut store, &mut maker, id..id + 1);
        store.add_part(part).unwrap();
    }
    let counted = store.since_snapshot;
    store.add_snapshot(&sealed).unwrap();
    assert_eq!((store.last_snapshot, store.since_snapshot), (seq, counted));
    drop(store);
    let (store, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    assert_eq!(recovered.state, *maker.state());
    assert_eq!((store.last_snapshot, store.since_snapshot), (seq, counted));
}

#[test]
fn parts_without_a_head_count_for_nothing_and_go_with_the_next_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..10);
    store.snapshot(maker.state()).unwrap();
    write(&mut store, &mut maker, 10..20);
    let (parts, _) = store.begin_snapshot(maker.state()).small_parts();
    let broken = store.last_seq();
    let stored = parts.iter().take(3);
    stored.for_each(|part| store.add_part(part).unwrap());
    drop(store);

    let (mut store, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    assert_eq!(recovered.state, *maker.state());
    write(&mut store, &mut maker, 20..30);
    for id in 30..33 {
        write(&mut store, &mut maker, id..id + 1);
        store.snapshot(maker.state()).unwrap();
    }
    drop(store);
    let db = Database::open(dir.path().join("store.redb")).unwrap();
    let txn = db.begin_read().unwrap();
    let (heads, parts) = (
        txn.open_table(SNAPSHOT).unwrap(),
        txn.open_table(SNAPSHOT_PART).unwrap(),
    );
    assert_eq!(heads.len().unwrap(), SNAPSHOTS_KEPT as u64);
    for entry in parts.iter().unwrap() {
        let (seq, _) = entry.unwrap().0.value();
        assert_ne!(seq, broken);
        assert!(heads.get(seq).unwrap().is_some(), "{seq}");
    }
}

#[test]
fn a_lost_part_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..10);
    store.snapshot(maker.state()).unwrap();
    let seq = store.last_snapshot;
    drop(store);
    change(dir.path(), |txn| {
        let mut parts = txn.open_table(SNAPSHOT_PART).unwrap();
        assert!(parts.remove((seq, 2)).unwrap().is_some());
    });
    let message = refusal(dir.path());
    let named = format!("table `snapshot`, record {seq}: the checksum says");
    assert!(message.contains(&named), "{message}");
}

#[test]
fn a_store_of_the_release_before_is_read_and_brought_to_the_present_layout() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..10);
    let snapshot = store.begin_snapshot(maker.state());
    let seq = store.last_snapshot;
    write(&mut store, &mut maker, 10..20);
    drop(store);
    change(dir.path(), |txn| {
        let text = encoding::seal(&snapshot);
        let mut snapshots = txn.open_table(SNAPSHOT).unwrap();
        snapshots.insert(seq, text.as_slice()).unwrap();
        assert!(txn.delete_table(SNAPSHOT_PART).unwrap());
        let mut meta = txn.open_table(META).unwrap();
        let before = encoding::seal(&(FORMAT - 1));
        meta.insert("format", before.as_slice()).unwrap();
    });

    let (mut store, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    assert_eq!(recovered.state, *maker.state());
    assert_eq!(store.last_snapshot, seq);
    for id in 20..23 {
        write(&mut store, &mut maker, id..id + 1);
        store.snapshot(maker.state()).unwrap();
    }
    drop(store);
    assert_eq!(reopen(dir.path()).state, *maker.state());
}
