//! The journal: whatever dies, what was acknowledged is there, once and in order.

use std::fs;

use super::*;
use crate::fixture::FakeDisk;
use crate::store::journal::records_after;

/// A journal of few records, which is full soon.
const SMALL: usize = 6 * 1024;

/// The two disks of a store.
struct TwoDisks {
    tables: FakeDisk,
    journal: FakeDisk,
}

impl TwoDisks {
    fn open(&self) -> Result<(Store, Recovered), StoreError> {
        let journal = self.journal.remains(|_| false);
        let (mut store, recovered) = Store::on_backends(self.tables.clone(), &journal)?;
        let opened = Journal::on("journal".into(), self.journal.clone());
        store.journal = Some(opened.unwrap());
        Ok((store, recovered))
    }

    /// Writes until one of the disks dies. Returns the last acknowledged record.
    fn write_until_death(&self) -> u64 {
        let Ok((mut store, recovered)) = self.open() else {
            return 0;
        };
        let (mut maker, records) = RecordMaker::on(recovered.state, recovered.cluster);
        if store.append(&records).is_err() {
            return 0;
        }
        for id in 0..40 {
            if id % 17 == 16 && store.snapshot(maker.state()).is_err() {
                break;
            }
            if store.append(&maker.submit(&format!("s{id}"))).is_err() {
                break;
            }
        }
        store.last_seq()
    }

    /// The disks of a restart, with some of what was not synced.
    fn remains(&self, lucky: impl Fn(usize) -> bool) -> Self {
        let left = |disk: &FakeDisk| FakeDisk::dying_after(usize::MAX, disk.remains(&lucky));
        Self {
            tables: left(&self.tables),
            journal: left(&self.journal),
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_whichever_disk_dies() {
    for (syncs, of_journal) in (0..30).flat_map(|syncs| [(syncs, true), (syncs, false)]) {
        for luck in 0..3 {
            let (tables, journal) = match of_journal {
                true => (usize::MAX, syncs),
                false => (syncs / 2, usize::MAX),
            };
            let disks = TwoDisks {
                tables: FakeDisk::dying_after(tables, Vec::new()),
                journal: FakeDisk::dying_after(journal, vec![0; SMALL]),
            };
            let acknowledged = disks.write_until_death();
            if acknowledged == 0 {
                continue;
            }
            let disks = disks.remains(|turn| luck != 0 && turn % luck == 0);
            let (mut store, recovered) = disks.open().unwrap();
            let last = recovered.last_seq;
            assert!(
                (acknowledged..=acknowledged + 2).contains(&last),
                "{syncs} syncs: {acknowledged} was acknowledged and {last} is there"
            );
            assert_eq!(recovered.state.seq(), last);
            // Writing continues from there.
            let (_, records) = RecordMaker::on(recovered.state, recovered.cluster);
            store.append(&records).unwrap();
            drop(store);
            let (_, again) = disks.remains(|_| false).open().unwrap();
            assert_eq!(again.last_seq, last + records.len() as u64);
        }
    }
}

/// Makes a store whose records are in the journal alone, each in a frame of its own. Returns the numbers of the first
/// records of the frames.
fn left_in_journal() -> (tempfile::TempDir, Vec<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    let mut firsts = vec![1];
    for id in 0..5 {
        firsts.push(store.last_seq() + 1);
        write(&mut store, &mut maker, id..id + 1);
    }
    (dir, firsts)
}

/// Positions of the frames in a journal.
fn frames(journal: &[u8]) -> Vec<usize> {
    let sectors = (0..journal.len()).step_by(512);
    sectors
        .filter(|at| journal[*at..].starts_with(b"sluicejl"))
        .collect()
}

#[test]
fn damage_is_refused_unless_it_is_where_the_machine_died() {
    let (dir, firsts) = left_in_journal();
    let path = dir.path().join(JOURNAL_FILE);
    let sound = fs::read(&path).unwrap();
    let tip = fs::read(dir.path().join("tip")).unwrap();
    let places = frames(&sound);
    assert_eq!(places.len(), firsts.len());
    let last = firsts[firsts.len() - 1];
    for (place, first) in places.iter().zip(&firsts) {
        for byte in [0, 9, 14, 21, 25, 40] {
            let copy = tempfile::tempdir().unwrap();
            fs::copy(
                dir.path().join("store.redb"),
                copy.path().join("store.redb"),
            )
            .unwrap();
            let mut bent = sound.clone();
            bent[place + byte] ^= 4;
            fs::write(copy.path().join(JOURNAL_FILE), &bent).unwrap();
            // After a power failure the tip may be behind.
            let (file, recovered) = (copy.path().join("tip"), last - 1);
            if *first == last {
                assert_eq!(reopen(copy.path()).last_seq, recovered, "byte {byte}");
                fs::write(&file, &tip).unwrap();
                fs::write(copy.path().join(JOURNAL_FILE), &bent).unwrap();
                let message = refusal(copy.path());
                assert!(message.contains(&format!("record {last} was committed")));
            } else {
                let message = refusal(copy.path());
                let missing = format!("record {first} is neither in the store");
                assert!(message.contains(&missing), "byte {byte}: {message}");
                assert!(message.contains("remove the journal"), "{message}");
            }
        }
    }
}

#[test]
fn no_bent_bit_makes_another_record() {
    let (dir, _) = left_in_journal();
    let sound = fs::read(dir.path().join(JOURNAL_FILE)).unwrap();
    let records = records_after(0, &sound).unwrap();
    let end = frames(&sound).last().unwrap() + 1024;
    for bit in (0..end * 8).step_by(3) {
        let mut bent = sound[..end].to_vec();
        bent[bit / 8] ^= 1 << (bit % 8);
        if let Ok(found) = records_after(0, &bent) {
            assert_eq!(found, records[..found.len()], "bit {bit}");
        }
    }
    for length in 0..end {
        let found = records_after(0, &sound[..length]).unwrap();
        assert_eq!(found, records[..found.len()], "cut to {length}");
    }
}

#[test]
fn a_full_journal_begins_again_and_a_commit_beyond_it_goes_to_the_tables() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    let reader = store.reader();
    let room = fs::metadata(dir.path().join(JOURNAL_FILE)).unwrap().len();
    for commits in [1, 3000, 5] {
        let records: Vec<LogEntry> = (0..commits)
            .flat_map(|id| maker.submit(&format!("b{commits}-{id}")))
            .collect();
        store.append(&records).unwrap();
        write(&mut store, &mut maker, commits * 10..commits * 10 + 300);
        let last = store.last_seq();
        for since in [0, last.saturating_sub(310), last - 3, last] {
            let seqs = reader.read(since, 7, |_| true).unwrap().events;
            let seqs = seqs.into_iter().map(|event| event.record.seq);
            assert!(seqs.eq((since + 1..=last).take(7)), "after {since}");
        }
    }
    let length = fs::metadata(dir.path().join(JOURNAL_FILE)).unwrap().len();
    assert_eq!(length, room, "it never grows");
    drop((store, reader));
    assert_eq!(reopen(dir.path()).state, *maker.state());
}

#[test]
fn a_journal_without_its_store_is_not_given_to_another() {
    let (dir, _) = left_in_journal();
    for name in ["store.redb", "tip"] {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    let message = refusal(dir.path());
    for part in ["record 8 was committed", "remove", JOURNAL_FILE] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!dir.path().join("store.redb").exists(), "one was made");
}
