//! Reading and writing the kernel's files of a control group; every failure names its file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sluice_common::limit::MAX_SENTENCE_BYTES;

/// Why a control group could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct GroupError {
    action: String,
    path: PathBuf,
    source: io::Error,
}

impl GroupError {
    pub(crate) fn new(action: impl Into<String>, path: &Path, source: io::Error) -> Self {
        Self {
            action: action.into(),
            path: path.to_owned(),
            source,
        }
    }

    /// The whole of it for an agent, whose frames are bounded.
    pub fn sentence(&self) -> String {
        let mut text = self.to_string();
        text.truncate(text.floor_char_boundary(MAX_SENTENCE_BYTES));
        text
    }

    /// What was tried, and why not.
    pub fn into_parts(self) -> (String, io::Error) {
        let action = format!("{} {}", self.action, self.path.display());
        (action, self.source)
    }

    /// Whether the file is not there.
    pub fn is_absent(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Whether this user may not.
    pub fn is_denied(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
    }

    /// Whether the kernel knows the file and does not take the value.
    pub fn is_invalid(&self) -> bool {
        self.source.kind() == io::ErrorKind::InvalidInput
    }
}

/// Writes `value` at once, as the kernel wants it. Never makes a file.
pub fn write(path: &Path, value: &str) -> Result<(), GroupError> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|e| GroupError::new(format!("write `{value}` to"), path, e))
}

/// Makes a group, if it is not there.
pub fn make(path: &Path) -> Result<(), GroupError> {
    match fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(GroupError::new("make control group", path, e))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes a group and the groups below it, the deepest first; the kernel's own files go with them.
pub fn remove_tree(path: &Path) -> Result<(), GroupError> {
    for group in below(path).iter().rev() {
        match fs::remove_dir(group) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(GroupError::new("remove control group", group, e));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// A group and all groups below it, each before those below it. A loop and not a recursion: a step may nest groups as
/// deep as it likes.
fn below(path: &Path) -> Vec<PathBuf> {
    let mut groups = vec![path.to_owned()];
    let mut next = 0;
    while let Some(group) = groups.get(next) {
        let inside: Vec<PathBuf> = children(group).map(|name| group.join(name)).collect();
        groups.extend(inside);
        next += 1;
    }
    groups
}

/// The names of the groups right below one; none where it is gone.
pub fn children(group: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
}

/// Every process in a group and in the groups below it.
pub fn members(group: &Path) -> Vec<u32> {
    let listed = |group: &PathBuf| fs::read_to_string(group.join("cgroup.procs")).ok();
    let lists: Vec<String> = below(group).iter().filter_map(listed).collect();
    lists
        .iter()
        .flat_map(|list| list.lines())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// The value after `key` in a file of `key value` lines; `None` where there is no such file or line.
pub fn keyed(path: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?
        .trim()
        .parse()
        .ok()
}

/// The number that is all of a file; `None` where there is no such file, or it says something else.
pub(crate) fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
