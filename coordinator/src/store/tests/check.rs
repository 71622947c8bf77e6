//! `check` and the start of a coordinator agree about any data directory, whatever has happened to it.

use std::fs;
use std::path::Path;

use redb::{Database, TableDefinition};

use crate::backup::control::check;
use crate::fixture::RecordMaker;
use crate::identity;
use crate::store::Store;

/// Damages of each kind to each kind of store.
const ROUNDS: u64 = 8;

/// Pseudo-random numbers, the same in each run.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

type DamageFn = fn(&Path, &Path, &mut SeededRandom);

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
}

fn store(dir: &Path) -> std::path::PathBuf {
    dir.join("store.redb")
}

/// Picks a nonzero byte, so that most damages hit data.
fn place(bytes: &[u8], chance: &mut SeededRandom) -> usize {
    let mut at = chance.below(bytes.len());
    for _ in 0..200 {
        if bytes[at] != 0 {
            break;
        }
        at = chance.below(bytes.len());
    }
    at
}

fn without_table(dir: &Path, name: &str) {
    let db = Database::open(store(dir)).unwrap();
    let txn = db.begin_write().unwrap();
    let numbered: TableDefinition<'_, u64, &[u8]> = TableDefinition::new(name);
    let named: TableDefinition<'_, &str, &[u8]> = TableDefinition::new(name);
    let gone = txn
        .delete_table(numbered)
        .or_else(|_| txn.delete_table(named));
    assert!(gone.unwrap(), "there is a table {name}");
    txn.commit().unwrap();
}

/// Kinds of damage. The second directory is an older state of the first.
const DAMAGES: [(&str, DamageFn); 14] = [
    ("none", |_, _, _| {}),
    ("a byte flipped", |dir, _, chance| {
        change(&store(dir), |bytes| {
            let at = place(bytes, chance);
            bytes[at] ^= 1 << chance.below(8);
        });
    }),
    ("a byte flipped anywhere", |dir, _, chance| {
        change(&store(dir), |bytes| {
            let at = chance.below(bytes.len());
            bytes[at] ^= 1 << chance.below(8);
        });
    }),
    ("cut", |dir, _, chance| {
        change(&store(dir), |bytes| {
            bytes.truncate(chance.below(bytes.len()))
        });
    }),
    ("two pages swapped", |dir, _, chance| {
        change(&store(dir), |bytes| {
            let pages = bytes.len() / 4096;
            let (one, other) = (chance.below(pages) * 4096, chance.below(pages) * 4096);
            for at in 0..4096 {
                bytes.swap(one + at, other + at);
            }
        });
    }),
    ("a page written twice", |dir, _, chance| {
        change(&store(dir), |bytes| {
            let pages = bytes.len() / 4096;
            let (from, to) = (chance.below(pages) * 4096, chance.below(pages) * 4096);
            bytes.copy_within(from..from + 4096, to);
        });
    }),
    ("an older store", |dir, older, _| {
        fs::copy(store(older), store(dir)).unwrap();
    }),
    ("an older tip", |dir, older, _| {
        fs::copy(older.join("tip"), dir.join("tip")).unwrap();
    }),
    ("no tip", |dir, _, _| {
        fs::remove_file(dir.join("tip")).unwrap()
    }),
    ("a damaged tip", |dir, _, chance| {
        change(&dir.join("tip"), |bytes| {
            let at = place(bytes, chance);
            bytes[at] ^= 1 << chance.below(8);
        });
    }),
    ("a table less", |dir, _, chance| {
        let tables = ["log", "snapshot", "meta", "environment"];
        without_table(dir, tables[chance.below(tables.len())]);
    }),
    ("a damaged key of warrants", |dir, _, chance| {
        change(&dir.join("warrants.key"), |bytes| {
            let at = chance.below(bytes.len());
            bytes[at] = b'!';
        });
    }),
    ("not a warrant key", |dir, _, _| {
        fs::remove_file(dir.join("warrants.key")).unwrap();
    }),
    ("nothing left of the store", |dir, _, _| {
        fs::write(store(dir), b"").unwrap();
    }),
];

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), &to).unwrap()),
        }
    }
}

/// Compares `check` with a start. The start changes what it opens, so each works on a copy.
fn judged_alike(dir: &Path, scratch: &Path, what: &str) -> bool {
    let (for_start, for_check) = (scratch.join("start"), scratch.join("check"));
    copy(dir, &for_start);
    copy(dir, &for_check);
    let checked = check(&for_check);
    let started = identity::open_store(&for_start, 1000);
    match (&started, &checked) {
        (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
        (Ok(_), Err(refusal)) => panic!("{what}: the start takes what check refuses: {refusal}"),
        (Err(refusal), Ok(_)) => panic!("{what}: check takes what the start refuses: {refusal}"),
    }
    let is_sound = started.is_ok();
    drop(started);
    fs::remove_dir_all(&for_start).unwrap();
    fs::remove_dir_all(&for_check).unwrap();
    is_sound
}

/// Opens a store with these steps, and a snapshot if wanted.
fn written(data: &Path, steps: &[&str], snapshot: bool) -> Store {
    let (mut store, recovered) = Store::open(data, 1000).unwrap();
    let (mut maker, began) = RecordMaker::on(recovered.state, recovered.cluster);
    store.append(&began).unwrap();
    for step in steps {
        store.append(&maker.submit(step)).unwrap();
    }
    if snapshot {
        store.snapshot(maker.state()).unwrap();
    }
    store
}

#[test]
fn check_refuses_what_the_start_refuses_and_nothing_else() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    identity::init(&data).unwrap();
    written(&data, &["a", "b"], true).close().unwrap();
    let older = scratch.path().join("older");
    copy(&data, &older);
    let store = written(&data, &["c", "d"], false);
    // As after kill -9, and as after a clean end.
    let killed = scratch.path().join("killed");
    copy(&data, &killed);
    store.close().unwrap();
    let (mut sound, mut refused) = (0, 0);
    for base in [&killed, &data] {
        for (number, (what, damage)) in DAMAGES.iter().enumerate() {
            let mut chance = SeededRandom(number as u64 + 1);
            for _ in 0..ROUNDS {
                let dir = scratch.path().join("damaged");
                copy(base, &dir);
                damage(&dir, &older, &mut chance);
                match judged_alike(&dir, scratch.path(), what) {
                    true => sound += 1,
                    false => refused += 1,
                }
                fs::remove_dir_all(&dir).unwrap();
            }
        }
    }
    assert!(
        sound.min(refused) > ROUNDS * 4,
        "{sound} sound, {refused} refused"
    );
}
