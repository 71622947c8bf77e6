//! Ownership of files after root has restored into the directory of a coordinator that is not root. Other users than
//! root can only check that the restore succeeds.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;

use super::*;

/// A user id that no user of this machine has.
const COORDINATOR: u32 = 48_213;

fn give_to_coordinator(path: &Path) -> u32 {
    match nix::unistd::geteuid().is_root() {
        true => {
            chown(path, Some(COORDINATOR), Some(COORDINATOR)).unwrap();
            COORDINATOR
        }
        false => nix::unistd::geteuid().as_raw(),
    }
}

fn owner(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().uid()
}

#[test]
fn what_a_restore_made_is_the_directorys_owners() {
    let site = BackupFixture::new();
    backup(&site.data, &site.file, true).unwrap();
    let dir = site.restored();
    fs::create_dir(&dir).unwrap();
    let coordinator = give_to_coordinator(&dir);
    restore(&site.file, &dir, false).unwrap();
    for name in [
        "store.redb",
        "warrants.key",
        "tls",
        "tls/ca.pem",
        "tls/ca.key",
        "lock",
    ] {
        assert_eq!(owner(&dir.join(name)), coordinator, "{name}");
    }
}

/// A refused restore leaves the lock to the coordinator, which could not start otherwise.
#[test]
fn one_that_is_refused_leaves_nothing_of_roots() {
    let site = BackupFixture::new();
    fs::write(&site.file, "no backup").unwrap();
    let dir = site.restored();
    fs::create_dir(&dir).unwrap();
    let coordinator = give_to_coordinator(&dir);
    restore(&site.file, &dir, false).unwrap_err();
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(owner(&path), coordinator, "{}", path.display());
    }
}

/// A user who may write in the directory must not make root write, or give away, files elsewhere.
#[test]
fn no_link_is_followed_out_of_the_directory() {
    let site = BackupFixture::new();
    backup(&site.data, &site.file, false).unwrap();
    let dir = site.restored();
    fs::create_dir_all(dir.join("tls")).unwrap();
    let elsewhere = site.file.with_file_name("elsewhere");
    fs::write(&elsewhere, "of root").unwrap();
    let before = owner(&elsewhere);
    give_to_coordinator(&dir);
    symlink(&elsewhere, dir.join("tls/ca.pem")).unwrap();
    restore(&site.file, &dir, false).unwrap();
    assert_eq!(owner(&elsewhere), before);
    fs::remove_dir_all(dir.join("tls")).unwrap();
    symlink(site.file.parent().unwrap(), dir.join("tls")).unwrap();
    restore(&site.file, &dir, true).unwrap();
    assert_eq!(owner(&elsewhere), before);
    fs::remove_file(dir.join("lock")).unwrap();
    symlink(&elsewhere, dir.join("lock")).unwrap();
    restore(&site.file, &dir, true).unwrap_err();
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "of root");
}
