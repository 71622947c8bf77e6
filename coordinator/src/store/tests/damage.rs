//! Every kind of damage: in one record, in the file, and in files beside it. Whatever opens is intact.

use std::fs;
use std::path::PathBuf;

use super::*;

/// Makes a store of some records with a snapshot among them, whose coordinator has died.
fn left() -> (tempfile::TempDir, State) {
    let (dir, store, state) = filled();
    drop_folded(store);
    (dir, state)
}

/// Makes a store that was closed properly.
fn closed() -> (tempfile::TempDir, State) {
    let (dir, store, state) = filled();
    store.close().unwrap();
    (dir, state)
}

fn filled() -> (tempfile::TempDir, Store, State) {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..40);
    store.snapshot(maker.state()).unwrap();
    write(&mut store, &mut maker, 40..60);
    let state = maker.state().clone();
    (dir, store, state)
}

/// Changes the log directly.
fn tamper(dir: &Path, change: impl FnOnce(&mut redb::Table<'_, u64, &'static [u8]>)) {
    let db = Database::open(dir.join("store.redb")).unwrap();
    let txn = db.begin_write().unwrap();
    change(&mut txn.open_table(LOG).unwrap());
    txn.commit().unwrap();
}

fn stored(log: &redb::Table<'_, u64, &'static [u8]>, seq: u64) -> Vec<u8> {
    log.get(seq).unwrap().unwrap().value().to_vec()
}

#[test]
fn a_damaged_record_is_named_whether_or_not_a_snapshot_covers_it() {
    type Corrupt = fn(&mut Vec<u8>);
    let spoils: [(&str, Corrupt); 4] = [
        ("the checksum says", |line| *line.last_mut().unwrap() ^= 4),
        ("the checksum says", |line| line.truncate(line.len() / 2)),
        ("the checksum says", |line| line.fill(0xa5)),
        ("0 bytes are too short", Vec::clear),
    ];
    for seq in [7, 55] {
        for (expected, spoil) in spoils {
            let (dir, _) = left();
            tamper(dir.path(), |log| {
                let mut line = stored(log, seq);
                spoil(&mut line);
                log.insert(seq, line.as_slice()).unwrap();
            });
            let message = refusal(dir.path());
            let record = format!("table `log`, record {seq}: {expected}");
            for part in ["store.redb", &record, "restore the data directory"] {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
    }
}

#[test]
fn records_that_are_missing_misplaced_or_cannot_have_happened_are_named() {
    let (dir, _) = left();
    tamper(dir.path(), |log| drop(log.remove(9).unwrap()));
    assert!(refusal(dir.path()).contains("table `log`, record 9: it is missing"));

    let (dir, _) = left();
    tamper(dir.path(), |log| {
        let other = stored(log, 50);
        log.insert(51, other.as_slice()).unwrap();
    });
    assert!(refusal(dir.path()).contains("table `log`, record 51: it holds record 50"));

    let (dir, _) = left();
    tamper(dir.path(), |log| {
        let other: LogEntry = encoding::parse(&stored(log, 50)).unwrap();
        let twice = LogEntry { seq: 51, ..other };
        log.insert(51, encoding::seal(&twice).as_slice()).unwrap();
    });
    let message = refusal(dir.path());
    assert!(
        message.contains("table `log`, record 51: it does not fit"),
        "{message}"
    );

    let (dir, _) = left();
    tamper(dir.path(), |log| {
        log.insert(51, encoding::seal(&"colour").as_slice())
            .unwrap();
    });
    let message = refusal(dir.path());
    assert!(
        message.contains("record 51: the content cannot be read"),
        "{message}"
    );

    let (dir, _) = left();
    tamper(dir.path(), |log| log.retain_in(40.., |_, _| false).unwrap());
    let message = refusal(dir.path());
    assert!(
        message.contains("table `log`, record 40: it is missing"),
        "{message}"
    );
}

#[test]
fn a_damaged_snapshot_or_cluster_is_named() {
    let (dir, _) = left();
    let db = Database::open(dir.path().join("store.redb")).unwrap();
    let txn = db.begin_write().unwrap();
    txn.open_table(SNAPSHOT)
        .unwrap()
        .insert(42, b"00000000 {}".as_slice())
        .unwrap();
    txn.commit().unwrap();
    drop(db);
    let message = refusal(dir.path());
    assert!(
        message.contains("table `snapshot`, record 42: the checksum says"),
        "{message}"
    );

    let (dir, _) = left();
    let db = Database::open(dir.path().join("store.redb")).unwrap();
    let txn = db.begin_write().unwrap();
    txn.open_table(META)
        .unwrap()
        .insert("cluster", b"x".as_slice())
        .unwrap();
    txn.commit().unwrap();
    drop(db);
    assert!(refusal(dir.path()).contains("table `meta`, record cluster"));

    let (dir, _) = left();
    let db = Database::open(dir.path().join("store.redb")).unwrap();
    let txn = db.begin_write().unwrap();
    txn.open_table(META)
        .unwrap()
        .insert("format", encoding::seal(&7).as_slice())
        .unwrap();
    txn.commit().unwrap();
    drop(db);
    let message = refusal(dir.path());
    assert!(
        message.contains("format 7") && message.contains("format 3"),
        "{message}"
    );
}

#[test]
fn a_file_that_is_cut_emptied_replaced_or_gone_is_refused() {
    type Corrupt = fn(&Path);
    let spoils: [(&str, Corrupt); 5] = [
        ("damaged", |file| truncate(file, |len| len / 2)),
        ("damaged", |file| truncate(file, |_| 100)),
        ("empty", |file| truncate(file, |_| 0)),
        ("damaged", |file| {
            fs::write(file, vec![0xa5; 100_000]).unwrap()
        }),
        ("ends at record 0", |file| fs::remove_file(file).unwrap()),
    ];
    for (expected, spoil) in spoils {
        let (dir, _) = left();
        spoil(&dir.path().join("store.redb"));
        let message = refusal(dir.path());
        assert!(
            message.contains("store.redb") && message.contains(expected),
            "{message}"
        );
        // A refusal repairs nothing.
        assert!(refusal(dir.path()).contains("store.redb"));
    }
}

fn truncate(file: &Path, length: impl Fn(u64) -> u64) {
    let file = fs::OpenOptions::new().write(true).open(file).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(length(len)).unwrap();
}

#[test]
fn an_older_copy_of_the_store_is_refused_until_the_admin_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    write(&mut store, &mut maker, 0..3);
    drop_folded(store);
    let file = dir.path().join("store.redb");
    let old = fs::read(&file).unwrap();
    let (mut store, _) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    write(&mut store, &mut maker, 3..5);
    drop_folded(store);
    fs::write(&file, &old).unwrap();
    assert_eq!(reopen(dir.path()).last_seq, 8, "the journal has the rest");

    fs::write(&file, old).unwrap();
    fs::remove_file(dir.path().join(JOURNAL_FILE)).unwrap();
    let message = refusal(dir.path());
    for part in ["ends at record 6", "record 8 was committed", "remove"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    fs::remove_file(dir.path().join("tip")).unwrap();
    assert_eq!(reopen(dir.path()).last_seq, 6);
}

#[test]
fn a_damaged_witness_is_refused_by_name() {
    let (dir, _) = left();
    fs::write(dir.path().join("tip"), "12").unwrap();
    let message = refusal(dir.path());
    assert!(
        message.contains("tip") && message.contains("damaged"),
        "{message}"
    );
}

/// Copies a directory's files, as after a crash.
fn copy(dir: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for name in ["store.redb", JOURNAL_FILE, "tip"] {
        fs::copy(dir.join(name), to.path().join(name)).unwrap();
    }
    to
}

/// Pseudo-random numbers, the same in every run.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % bound as u64).unwrap()
    }
}

/// Flips single bits in copies of `dir`. Returns how many flips were noticed.
fn flip(dir: &Path, expected: &State, places: impl Iterator<Item = usize>) -> usize {
    let whole = fs::read(dir.join("store.redb")).unwrap();
    let mut noticed = 0;
    for place in places {
        let copy = copy(dir);
        let mut bytes = whole.clone();
        bytes[place / 8] ^= 1 << (place % 8);
        let file: PathBuf = copy.path().join("store.redb");
        fs::write(&file, bytes).unwrap();
        match Store::open(copy.path(), DEFAULT_RETENTION) {
            Ok((_, recovered)) => assert_eq!(recovered.state, *expected, "bit {place}"),
            Err(error) => {
                noticed += 1;
                assert!(
                    error.to_string().contains("store.redb"),
                    "bit {place}: {error}"
                );
            }
        }
    }
    noticed
}

#[test]
fn every_flipped_bit_is_seen_after_a_clean_end() {
    let (dir, state) = closed();
    let file = dir.path().join("store.redb");
    let bits = fs::metadata(&file).unwrap().len() as usize * 8;
    let mut dice = Xorshift(3);
    let anywhere = (0..60).map(|_| dice.below(bits));
    assert_eq!(flip(dir.path(), &state, anywhere), 60);
    assert_eq!(reopen(dir.path()).state, state);

    let (dir, _) = closed();
    let file = dir.path().join("store.redb");
    let whole = fs::read(&file).unwrap();
    // Copies of a record are all over the file; some of those places are unused now.
    let places = whole.windows(5).enumerate();
    let places: Vec<usize> = places
        .filter(|(_, w)| w == b"\"s57\"")
        .map(|(at, _)| at)
        .collect();
    let mut named = 0;
    for at in places {
        let mut bytes = whole.clone();
        bytes[at + 2] ^= 1;
        fs::write(&file, bytes).unwrap();
        let message = refusal(dir.path());
        assert!(message.contains("store.redb is damaged"), "{message}");
        named += usize::from(message.contains("table `log`, record 61: the checksum"));
    }
    assert!(named > 0, "none of them was the record's own");
    fs::write(&file, whole).unwrap();
    reopen(dir.path());
}

#[test]
fn any_flipped_bit_is_refused_or_harmless_after_a_death() {
    let (dir, state) = left();
    let bits = fs::metadata(dir.path().join("store.redb")).unwrap().len() as usize * 8;
    let mut dice = Xorshift(1);
    let anywhere = (0..40).map(|_| dice.below(bits));
    flip(dir.path(), &state, anywhere);
    // No checksum covers some of the first bytes, which locate everything.
    let head = (0..320 * 8).step_by(31);
    assert!(flip(dir.path(), &state, head) > 10);

    let (store, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    let mut store = store;
    let (mut maker, records) = RecordMaker::on(recovered.state, recovered.cluster);
    store.append(&records).unwrap();
    write(&mut store, &mut maker, 60..70);
    let dead = copy(dir.path());
    let mut dice = Xorshift(2);
    let anywhere = (0..40).map(|_| dice.below(bits));
    flip(dead.path(), maker.state(), anywhere);
    assert!(flip(dead.path(), maker.state(), (0..320 * 8).step_by(31)) > 5);
    drop(store);
}
