//! Backups of stopped and of running stores, restored completely or not at all.

mod fuzz;
mod owner;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use coordinator_core::RecoveryCause;

use super::control::{ControlSocket, backup, check};
use super::restore::restore;
use crate::fixture::RecordMaker;
use crate::identity;
use crate::store::{JOURNAL_FILE, Store};

struct BackupFixture {
    _dir: tempfile::TempDir,
    data: PathBuf,
    file: PathBuf,
}

impl BackupFixture {
    /// Makes a data directory with keys and a log of three steps.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        identity::init(&data).unwrap();
        let site = Self {
            file: dir.path().join("backup"),
            data,
            _dir: dir,
        };
        site.write(&["a", "b", "c"]).close().unwrap();
        site
    }

    /// Opens the store and adds these steps.
    fn write(&self, steps: &[&str]) -> Store {
        let (mut store, recovered) = Store::open(&self.data, 1000).unwrap();
        let (mut maker, began) = RecordMaker::on(recovered.state, recovered.cluster);
        store.append(&began).unwrap();
        for step in steps {
            store.append(&maker.submit(step)).unwrap();
        }
        store
    }

    fn restored(&self) -> PathBuf {
        self.data.with_file_name("restored")
    }
}

fn steps(dir: &Path) -> usize {
    let (store, recovered) = Store::open(dir, 1000).unwrap();
    store.close().unwrap();
    recovered.state.steps().len()
}

#[test]
fn a_store_that_rests_is_backed_up_and_restored_with_its_keys() {
    let site = BackupFixture::new();
    backup(&site.data, &site.file, true).unwrap();
    let mode = fs::metadata(&site.file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let done = restore(&site.file, &site.restored(), false).unwrap();
    assert!(done.has_keys && done.aside.is_none());
    for key in ["tls/ca.pem", "tls/ca.key", "warrants.key"] {
        let text = |dir: &Path| fs::read_to_string(dir.join(key)).unwrap();
        assert_eq!(text(&site.data), text(&site.restored()), "{key}");
        let mode = |dir: &Path| fs::metadata(dir.join(key)).unwrap().permissions().mode();
        assert_eq!(mode(&site.data), mode(&site.restored()), "{key}");
    }
    let (_, before) = Store::open(&site.data, 1000).unwrap();
    let (store, after) = Store::open(&site.restored(), 1000).unwrap();
    assert_eq!(
        (before.state, before.last_seq),
        (after.state, after.last_seq)
    );
    assert_eq!(before.cluster, after.cluster);
    assert_eq!(
        (before.recovers, after.recovers),
        (None, Some(RecoveryCause::Restored))
    );
    drop(store);
}

#[test]
fn one_that_is_written_to_is_backed_up_as_it_was_committed_last() {
    let site = BackupFixture::new();
    let mut store = site.write(&["d"]);
    let control = ControlSocket::listen(&site.data, store.reader()).unwrap();
    backup(&site.data, &site.file, true).unwrap();
    assert_eq!(check(&site.file).unwrap().state.steps().len(), 4);
    assert_eq!(check(&site.data).unwrap().state.steps().len(), 4);
    // The snapshot drops old records and contains them.
    let (_, recovered) = {
        let copy = site.restored();
        restore(&site.file, &copy, false).unwrap();
        Store::open(&copy, 1000).unwrap()
    };
    store.snapshot(&recovered.state).unwrap();
    backup(&site.data, &site.file, false).unwrap();
    let summary = check(&site.file).unwrap();
    assert_eq!(summary.snapshot, Some(store.last_seq()));
    assert!(summary.keys.is_empty());
    let text = fs::read_to_string(&site.file).unwrap();
    assert!(!text.contains("PRIVATE KEY"));
    drop(control);
    let refused = backup(&site.data, &site.file, true)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("a coordinator runs in"), "{refused}");
    assert_eq!(
        check(&site.file).unwrap().state.steps().len(),
        4,
        "the one that was there stays"
    );
}

#[test]
fn what_is_there_is_refused_or_moved_aside_and_keys_stay_that_are_not_brought() {
    let site = BackupFixture::new();
    backup(&site.data, &site.file, false).unwrap();
    site.write(&["d"]).close().unwrap();
    let error = restore(&site.file, &site.data, false)
        .unwrap_err()
        .to_string();
    assert!(error.contains("--force"), "{error}");
    assert_eq!(steps(&site.data), 4);
    let done = restore(&site.file, &site.data, true).unwrap();
    assert!(done.has_keys);
    assert_eq!(steps(&site.data), 3);
    assert_eq!(steps(&done.aside.unwrap()), 4);
}

#[test]
fn any_damage_is_found_with_its_line_and_restores_nothing() {
    let site = BackupFixture::new();
    backup(&site.data, &site.file, true).unwrap();
    let whole = fs::read(&site.file).unwrap();
    let bent = site.file.with_file_name("bent");
    let step = whole.len() / 997 + 1;
    for at in (0..whole.len()).step_by(step) {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(&bent, &bytes).unwrap();
        check(&bent).expect_err(&format!("byte {at}"));
        fs::write(&bent, &whole[..at]).unwrap();
        check(&bent).expect_err(&format!("cut to {at}"));
    }
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let records = lines.iter().filter(|line| line.starts_with(b"R ")).count();
    let missing: Vec<u8> = lines[..lines.len() - 3]
        .iter()
        .chain(&lines[lines.len() - 2..])
        .flat_map(|l| l.to_vec())
        .collect();
    fs::write(&bent, missing).unwrap();
    let error = restore(&bent, &site.restored(), false)
        .unwrap_err()
        .to_string();
    let named = format!("record {}", records - 1);
    assert!(error.contains(&named) && error.contains("line"), "{error}");
    assert!(!site.restored().join("store.redb").exists());
    assert!(!site.restored().join("tls").exists());
}

#[test]
fn a_file_that_is_something_else_is_said_to_be() {
    let site = BackupFixture::new();
    for text in ["", "\n", "# a config\n", "K 00000000 {}\n"] {
        fs::write(&site.file, text).unwrap();
        let error = check(&site.file).unwrap_err().to_string();
        assert!(
            error.contains("is not a backup") || error.contains("line 1"),
            "{text:?}: {error}"
        );
    }
}

#[test]
fn what_an_editor_left_beside_the_keys_spoils_no_backup() {
    let site = BackupFixture::new();
    for name in [".ca.pem.swp", "ca.pem~", "#ca.pem#", "of old"] {
        fs::write(site.data.join("tls").join(name), "x").unwrap();
    }
    backup(&site.data, &site.file, true).unwrap();
    let found = check(&site.file).unwrap();
    assert!(found.keys.iter().all(|key| !key.contains(['~', '#', ' '])));
    assert!(found.keys.contains(&"tls/ca.key".to_owned()));
    assert!(
        restore(&site.file, &site.restored(), false)
            .unwrap()
            .has_keys
    );
}

#[test]
fn a_key_whose_name_leads_elsewhere_is_refused() {
    let site = BackupFixture::new();
    backup(&site.data, &site.file, true).unwrap();
    let text = fs::read_to_string(&site.file).unwrap();
    let too_long = format!("tls/{}", "a".repeat(256));
    for name in [
        too_long.as_str(),
        "../evil",
        "tls/../../evil",
        "/etc/evil",
        "tls/.hidden",
        "tls/",
        "tls",
        "store.redb",
        "",
    ] {
        let mut out = Vec::new();
        let mut writer = super::BackupWriter {
            out: &mut out,
            digest: ring::digest::Context::new(&ring::digest::SHA256),
            lines: 0,
        };
        let header = text.lines().next().unwrap();
        writer.line(b'H', &header.as_bytes()[2..]).unwrap();
        let key = super::KeyFile {
            path: name.to_owned(),
            private: true,
            text: "x".to_owned(),
        };
        writer.line(b'K', &super::seal_line(&key)).unwrap();
        writer.end().unwrap();
        fs::write(&site.file, &out).unwrap();
        let error = restore(&site.file, &site.restored(), false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("leads elsewhere"), "{name}: {error}");
    }
}

#[test]
fn a_store_that_is_lost_beside_its_keys_is_made_anew_for_the_same_cluster() {
    let site = BackupFixture::new();
    let cluster = check(&site.data).unwrap().header.cluster;
    for name in ["store.redb", JOURNAL_FILE, "tip"] {
        fs::remove_file(site.data.join(name)).unwrap();
    }
    assert_eq!(identity::init(&site.data).unwrap(), cluster);
    let (_, recovered) = identity::open_store(&site.data, 1000).unwrap();
    assert_eq!(recovered.recovers, Some(RecoveryCause::StoreLost));
}
