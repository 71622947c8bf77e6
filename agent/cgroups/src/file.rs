//! Reads and writes the kernel's files of a control group. Every error names its file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sluice_common::limit::MAX_SENTENCE_BYTES;

/// A failed action on a control group.
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

    /// The error with its cause, truncated to what fits a frame to the agent.
    pub fn bounded_message(&self) -> String {
        let mut text = self.to_string();
        text.truncate(text.floor_char_boundary(MAX_SENTENCE_BYTES));
        text
    }

    /// The attempted action, and the cause of its failure.
    pub fn into_parts(self) -> (String, io::Error) {
        let action = format!("{} {}", self.action, self.path.display());
        (action, self.source)
    }

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Whether this user has no permission.
    pub fn is_permission_denied(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
    }

    /// Whether the kernel rejects the value.
    pub fn is_invalid(&self) -> bool {
        self.source.kind() == io::ErrorKind::InvalidInput
    }
}

/// Bytes that fit into the first read of a file; most files of the kernel are shorter.
const READ_BYTES: usize = 4096;

/// Reads a file of the kernel. These files have no size, so asking for it and growing a buffer bit by bit, as
/// [`fs::read`] does, would take three times as many calls.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(READ_BYTES);
    // A limited reader does not ask for the size.
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file of the kernel as text.
///
/// # Errors
/// If it cannot be read or is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(io::Error::other)
}

/// Writes `value` in one call, as the kernel requires. Never creates a file.
pub fn write(path: &Path, value: &str) -> Result<(), GroupError> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|e| GroupError::new(format!("write `{value}` to"), path, e))
}

/// Makes a group if it does not exist.
pub fn make(path: &Path) -> Result<(), GroupError> {
    match fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(GroupError::new("make control group", path, e))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes a group and the groups below it, the deepest first. The kernel's own files disappear with them.
pub fn remove_tree(path: &Path) -> Result<(), GroupError> {
    // Most groups have none below them.
    if remove(path).is_ok() {
        return Ok(());
    }
    let groups = subtree(path);
    groups.iter().rev().try_for_each(|group| remove(group))
}

fn remove(group: &Path) -> Result<(), GroupError> {
    match fs::remove_dir(group) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(GroupError::new("remove control group", group, e))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A group and all groups below it, parents first. A loop and no recursion, because a step may nest groups
/// arbitrarily deep.
fn subtree(path: &Path) -> Vec<PathBuf> {
    let mut groups = vec![path.to_owned()];
    let mut next = 0;
    while let Some(group) = groups.get(next) {
        let inside: Vec<PathBuf> = children(group).map(|name| group.join(name)).collect();
        groups.extend(inside);
        next += 1;
    }
    groups
}

/// Names of the child groups of a group; empty if the group does not exist.
pub fn children(group: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
}

/// Every process in a group and in the groups below it.
pub fn members(group: &Path) -> Vec<u32> {
    let listed = |group: &PathBuf| read_text(&group.join("cgroup.procs")).ok();
    let lists: Vec<String> = subtree(group).iter().filter_map(listed).collect();
    lists
        .iter()
        .flat_map(|list| list.lines())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// The value after `key` in a file of `key value` lines; `None` if the file or the line is missing.
pub fn keyed_number(path: &Path, key: &str) -> Option<u64> {
    let text = read_text(path).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?
        .trim()
        .parse()
        .ok()
}

/// The number that a file consists of; `None` if the file is missing or contains anything else.
pub(crate) fn number(path: &Path) -> Option<u64> {
    read_text(path).ok()?.trim().parse().ok()
}
