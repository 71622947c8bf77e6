//! Variables of steps: stored in a table of their own, nowhere else, and as safely as the rest.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use coordinator_core::Record;
use sluice_common::environment::Environment;
use sluice_common::id::StepId;

use super::*;

/// Values that no record may reveal.
fn values() -> Environment {
    Environment::from([("TOKEN".into(), "planted".into())])
}

/// Makes a store of two steps with variables, and a snapshot between them.
fn filled() -> (tempfile::TempDir, Store, RecordMaker) {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, mut maker) = begin(dir.path());
    store.append(&maker.submit_with("s", values())).unwrap();
    store.snapshot(maker.state()).unwrap();
    store.append(&maker.submit_with("t", values())).unwrap();
    (dir, store, maker)
}

/// Lists the steps whose variables are stored.
fn stored_steps(dir: &Path) -> Vec<String> {
    let db = Database::open(dir.join("store.redb")).unwrap();
    let txn = redb::ReadableDatabase::begin_read(&db).unwrap();
    let table = txn.open_table(ENVIRONMENT).unwrap();
    let entries = table.iter().unwrap().map(|entry| entry.unwrap());
    entries.map(|(step, _)| step.value().to_owned()).collect()
}

#[test]
fn records_and_snapshots_name_variables_and_hold_no_values() {
    let (dir, store, maker) = filled();
    let events = store.reader().read(0, 100, |_| true).unwrap().events;
    assert!(events.iter().any(|event| event.json.contains("TOKEN")));
    assert!(events.iter().all(|event| !event.json.contains("planted")));
    let snapshot = serde_json::to_string(maker.state()).unwrap();
    assert!(snapshot.contains("TOKEN") && !snapshot.contains("planted"));
    drop(store);
    let past = StoreHistory::open(dir.path()).unwrap();
    let (state, _) = past.fold(past.last()).unwrap();
    for id in ["s", "t"] {
        let id: StepId = id.parse().unwrap();
        assert_eq!(state.step(&id).unwrap().spec.env, values().hidden());
    }
}

#[test]
fn the_file_is_its_users_alone_whoever_made_the_directory() {
    let (dir, store, _) = filled();
    drop(store);
    let file = dir.path().join("store.redb");
    let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let journal = fs::metadata(dir.path().join(JOURNAL_FILE)).unwrap();
    assert_eq!(journal.permissions().mode() & 0o777, 0o600);
    // As earlier versions made it.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    drop(Store::open(dir.path(), DEFAULT_RETENTION).unwrap());
    assert_eq!(mode(), 0o600);
}

#[test]
fn a_restart_has_them_again_and_they_go_with_their_step() {
    let (dir, store, maker) = filled();
    drop(store);
    let (mut store, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    assert_eq!(recovered.state, *maker.state());
    let step = "s".parse().unwrap();
    assert_eq!(recovered.state.step(&step).unwrap().spec.env, values());
    let seq = recovered.last_seq + 1;
    let at = recovered.last_at;
    let record = Record::StepForgotten {
        step,
        deleted: false,
    };
    store.append(&[LogEntry { seq, at, record }]).unwrap();
    drop_folded(store);
    assert_eq!(stored_steps(dir.path()), ["t"]);
}

/// A backup of a running coordinator, wherever its records are.
#[test]
fn an_export_has_them_whether_or_not_the_journal_was_full() {
    let (_dir, mut store, maker) = filled();
    let forgotten = LogEntry {
        seq: store.last_seq() + 1,
        at: Time::from_unix_millis(1020),
        record: Record::StepForgotten {
            step: "s".parse().unwrap(),
            deleted: false,
        },
    };
    drop(maker);
    store.append(&[forgotten]).unwrap();
    let exported = |store: &Store| {
        let mut parts = Vec::new();
        let taken = store.reader().export(&mut |part| {
            parts.push(format!("{part:?}"));
            Ok(())
        });
        taken.unwrap();
        parts
    };
    let before = exported(&store);
    let of = |step: &str| format!("Variables {{ step: {step:?}");
    assert!(before.iter().any(|part| part.starts_with(&of("t"))));
    assert!(!before.iter().any(|part| part.starts_with(&of("s"))));
    store.fold(&[]).unwrap();
    assert_eq!(exported(&store), before);
}

#[test]
fn a_step_whose_variables_are_lost_or_others_stops_the_start() {
    type CorruptTable = fn(&mut redb::Table<'_, &'static str, &'static [u8]>);
    let spoils: [(&str, CorruptTable); 3] = [
        ("it is missing", |table| drop(table.remove("t").unwrap())),
        ("it is missing", |table| {
            let other = encoding::seal(&StepVariables {
                step: "t".to_owned(),
                env: Environment::from([("OTHER".into(), "x".into())]),
            });
            table.insert("t", other.as_slice()).unwrap();
        }),
        ("the checksum says", |table| {
            let mut bent = table.get("t").unwrap().unwrap().value().to_vec();
            *bent.last_mut().unwrap() ^= 4;
            table.insert("t", bent.as_slice()).unwrap();
        }),
    ];
    for (expected, spoil) in spoils {
        let (dir, store, _) = filled();
        drop_folded(store);
        let db = Database::open(dir.path().join("store.redb")).unwrap();
        let txn = db.begin_write().unwrap();
        spoil(&mut txn.open_table(ENVIRONMENT).unwrap());
        txn.commit().unwrap();
        drop(db);
        let error = Store::open(dir.path(), DEFAULT_RETENTION).map(|_| ());
        let error = format!("{:#}", anyhow::Error::from(error.unwrap_err()));
        assert!(error.contains("table `environment`, record t"), "{error}");
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("planted"), "{error}");
    }
}
