//! Crashes in the middle of writing: on a disk that forgets unsynced data, and by copying the files of an open store.

use super::*;
use crate::fixture::FakeDisk;

/// Writes until the disk dies. Returns the last acknowledged record.
fn write_until_death(disk: &FakeDisk) -> u64 {
    let Ok((mut store, recovered)) = Store::on_backend(disk.clone()) else {
        return 0;
    };
    let (mut maker, records) = RecordMaker::on(recovered.state, recovered.cluster);
    if store.append(&records).is_err() {
        return 0;
    }
    for id in 0.. {
        if id % 7 == 6 && store.snapshot(maker.state()).is_err() {
            break;
        }
        if store.append(&maker.submit(&format!("s{id}"))).is_err() {
            break;
        }
    }
    store.last_seq()
}

#[test]
fn nothing_acknowledged_is_lost_whenever_the_disk_dies() {
    for syncs in 0..60 {
        for luck in 0..3 {
            let disk = FakeDisk::dying_after(syncs, Vec::new());
            let acknowledged = write_until_death(&disk);
            let remains = disk.remains(|turn| luck != 0 && turn % luck == 0);
            if acknowledged == 0 {
                continue;
            }
            let disk = FakeDisk::dying_after(usize::MAX, remains);
            let (mut store, recovered) = Store::on_backend(disk).unwrap();
            let last = recovered.last_seq;
            assert!(
                last >= acknowledged,
                "{syncs} syncs: {acknowledged} was acknowledged and {last} is there"
            );
            assert_eq!(recovered.state.seq(), last);
            // Writing continues from there.
            let (_, records) = RecordMaker::on(recovered.state, recovered.cluster);
            store.append(&records).unwrap();
        }
    }
}

#[test]
fn what_was_appended_outlives_the_process_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    for id in 0..10 {
        write(&mut store, &mut maker, id..id + 1);
        if id == 5 {
            store.snapshot(maker.state()).unwrap();
        }
        // The files as the kernel has them, as after a SIGKILL.
        let copy = tempfile::tempdir().unwrap();
        for name in ["store.redb", JOURNAL_FILE, "tip"] {
            std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
        }
        assert_eq!(reopen(copy.path()).state, *maker.state());
    }
}
