//! The name of a supervisor's root group, the same in each hierarchy. A random name is generated on first use
//! of a state directory and stored there. So two supervisors of one host never share a group, and the next
//! supervisor of a directory finds the groups of an earlier one.
//!
//! The inode and device number of the directory are stored with the name. A copy of the directory has other
//! numbers and generates a new name, because the copy must not adopt the original's steps.
//!
//! Earlier releases used those numbers as the name, which the file system may assign to another directory
//! later. If such a supervisor has left running attempts, its name is kept; a start without attempts
//! generates a new one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sluice_common::error_chain::error_chain;
use tracing::{info, warn};

use crate::atomic_file::{self, FileError};

/// First part of every name.
pub(super) const PREFIX: &str = "sluice-";

const FILE: &str = "groups";
const NEW: &str = "groups.new";
/// The kernel returns a new random value for each read.
const RANDOM_UUID: &str = "/proc/sys/kernel/random/uuid";

/// The name for a state directory. Generates and stores one if none is stored, unless attempts `run` there
/// under a name of an earlier release.
///
/// If a new name cannot be stored, as on a full disk, the old form of the name is used.
///
/// # Errors
/// If the directory is missing, or the stored name cannot be read.
pub fn settle(state_dir: &Path, run: bool) -> Result<String, FileError> {
    if let Some(kept) = kept(state_dir)? {
        return Ok(kept);
    }
    if run {
        info!(
            "attempts run under the groups' name of an earlier supervisor, which is kept until none does"
        );
        return by_number(state_dir);
    }
    draw(state_dir).or_else(|e| {
        warn!(
            "the groups have the name that earlier supervisors gave them: {}",
            error_chain(&e)
        );
        by_number(state_dir)
    })
}

/// The current name for a state directory.
///
/// # Errors
/// If the directory is missing, or the stored name cannot be read.
pub fn of(state_dir: &Path) -> Result<String, FileError> {
    kept(state_dir)?.map_or_else(|| by_number(state_dir), Ok)
}

/// The name stored for this very directory. Invalid content counts as none: a crash of the host may leave an
/// empty file, and then no groups exist either.
fn kept(state_dir: &Path) -> Result<Option<String>, FileError> {
    let path = state_dir.join(FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(e) => return Err(FileError::new("read", &path, e)),
    };
    match text.trim_end().split_once(' ') {
        Some((name, parent)) if is_drawn(name) => {
            let here = parent == self::parent(state_dir)?;
            Ok(here.then(|| name.to_owned()))
        }
        Some(_) | None => {
            warn!(path = %path.display(), "it contains no valid name for control groups: a new one is generated");
            Ok(None)
        }
    }
}

fn draw(state_dir: &Path) -> Result<String, FileError> {
    let lots = Path::new(RANDOM_UUID);
    let lot = fs::read_to_string(lots).map_err(|e| FileError::new("read", lots, e))?;
    let name = format!("{PREFIX}{}", lot.trim());
    let text = format!("{name} {}\n", parent(state_dir)?);
    let (path, beside) = (state_dir.join(FILE), state_dir.join(NEW));
    atomic_file::replace(&path, &beside, text.as_bytes())?;
    Ok(name)
}

/// Whether a name is a valid generated one. The name becomes a directory, so nothing else is accepted.
fn is_drawn(name: &str) -> bool {
    let lot = name.strip_prefix(PREFIX).unwrap_or_default();
    lot.len() == 36 && lot.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// The name that earlier releases used.
fn by_number(state_dir: &Path) -> Result<String, FileError> {
    Ok(format!("{PREFIX}{}", parent(state_dir)?))
}

/// Identifies a directory among those that exist at the same time.
fn parent(state_dir: &Path) -> Result<String, FileError> {
    let found = fs::metadata(state_dir).map_err(|e| FileError::new("look at", state_dir, e))?;
    Ok(format!("{:x}-{:x}", found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_drawn_once_and_read_after() {
        let dir = tempfile::tempdir().unwrap();
        let name = settle(dir.path(), false).unwrap();
        assert!(is_drawn(&name), "{name}");
        for run in [false, true] {
            assert_eq!(settle(dir.path(), run).unwrap(), name);
        }
        assert_eq!(of(dir.path()).unwrap(), name);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(settle(other.path(), false).unwrap(), name);
    }

    #[test]
    fn what_runs_under_an_old_name_keeps_it_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let old = settle(dir.path(), true).unwrap();
        assert_eq!(old, by_number(dir.path()).unwrap());
        assert_eq!(of(dir.path()).unwrap(), old, "it is still its name");
        assert_eq!(settle(dir.path(), true).unwrap(), old, "nothing was drawn");
        let new = settle(dir.path(), false).unwrap();
        assert_ne!(new, old);
        assert_eq!(of(dir.path()).unwrap(), new);
    }

    #[test]
    fn a_copy_has_a_name_of_its_own_and_what_is_moved_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let (first, copy) = (dir.path().join("first"), dir.path().join("copy"));
        fs::create_dir(&first).unwrap();
        fs::create_dir(&copy).unwrap();
        let name = settle(&first, false).unwrap();
        fs::copy(first.join(FILE), copy.join(FILE)).unwrap();
        assert_ne!(of(&copy).unwrap(), name);
        assert_ne!(settle(&copy, false).unwrap(), name);
        let moved = dir.path().join("moved");
        fs::rename(&first, &moved).unwrap();
        assert_eq!(settle(&moved, false).unwrap(), name);
        assert!(of(&first).is_err_and(|e| e.is_not_found()));
    }

    #[test]
    fn what_is_no_name_is_drawn_anew() {
        let dir = tempfile::tempdir().unwrap();
        let parent = parent(dir.path()).unwrap();
        for text in [
            String::new(),
            "\n".to_owned(),
            format!("sluice-../../../../../../../../../../../etc {parent}\n"),
            format!("sluice-x {parent}"),
            format!("{} {parent}", "0".repeat(36)),
        ] {
            fs::write(dir.path().join(FILE), &text).unwrap();
            let name = settle(dir.path(), false).unwrap();
            assert!(is_drawn(&name), "{text:?}: {name}");
            assert_eq!(of(dir.path()).unwrap(), name);
        }
        fs::write(dir.path().join(FILE), [0xff, 0xfe]).unwrap();
        assert!(is_drawn(&settle(dir.path(), false).unwrap()));
    }

    #[test]
    fn where_none_can_be_kept_the_old_one_will_do() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(NEW)).unwrap();
        let name = settle(dir.path(), false).unwrap();
        assert_eq!(name, by_number(dir.path()).unwrap());
        assert_eq!(of(dir.path()).unwrap(), name);
    }
}
