//! Inputs in folders: what is kept of a target in the tree, and where an input goes that failed.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::coverage::Way;

/// One input, and the ways that it took.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its file, where it came from one.
    pub(crate) name: Option<String>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) ways: Vec<Way>,
}

/// The corpus of a target in the tree.
pub(crate) fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpora")
        .join(target)
}

/// Where failed inputs of a target go: beside what cargo builds.
pub(crate) fn failures(target: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("a process knows its own file");
    let built = exe.ancestors().nth(3).unwrap_or(Path::new("/tmp"));
    built.join("fuzz").join(target)
}

/// Every input of a folder, in the order of their names.
///
/// # Panics
/// Where there is none: a target without a corpus tries next to nothing.
pub(crate) fn read(folder: &Path) -> Vec<Entry> {
    let files = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut all: Vec<Entry> = files
        .map(|file| file.expect("a folder can be read").path())
        .map(|path| Entry {
            name: path.file_name().map(|name| name.to_string_lossy().into()),
            bytes: fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
            ways: Vec::new(),
        })
        .collect();
    assert!(!all.is_empty(), "{} holds no input", folder.display());
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Writes an input down under its hash: its path.
pub(crate) fn keep(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join(hash_name(bytes));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, bytes));
    written.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

/// Leaves in the folder what was written by hand, and the smallest inputs that between them take every other edge, as far
/// as `room` bytes go: a corpus is read at every test run, and lies in the tree for good.
pub(crate) fn rewrite(folder: &Path, mut entries: Vec<Entry>, mut room: usize) -> usize {
    entries.sort_by_key(|entry| (!is_by_hand(entry), entry.bytes.len()));
    let mut taken = BTreeSet::new();
    let mut kept = BTreeSet::new();
    for entry in entries {
        let before = taken.len();
        taken.extend(entry.ways.iter().map(|way| way.edge));
        if is_by_hand(&entry) {
            kept.extend(entry.name);
        } else if taken.len() > before && entry.bytes.len() <= room {
            room -= entry.bytes.len();
            keep(folder, &entry.bytes);
            kept.insert(hash_name(&entry.bytes));
        }
    }
    for file in read(folder).into_iter().filter_map(|entry| entry.name) {
        if !kept.contains(&file) {
            fs::remove_file(folder.join(file)).expect("our own folder");
        }
    }
    kept.len()
}

/// Whether somebody gave it a name.
fn is_by_hand(entry: &Entry) -> bool {
    entry
        .name
        .as_ref()
        .is_some_and(|name| *name != hash_name(&entry.bytes))
}

fn hash_name(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: Option<&str>, bytes: &[u8], edges: &[usize]) -> Entry {
        Entry {
            name: name.map(Into::into),
            bytes: bytes.into(),
            ways: edges
                .iter()
                .map(|edge| Way {
                    edge: *edge,
                    often: 1,
                })
                .collect(),
        }
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let folder = std::env::temp_dir().join(format!("sluice-room-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("by-hand"), "hand").unwrap();
        let made = |nth: u8| entry(None, &[nth; 1024], &[10 + usize::from(nth)]);
        let mut all: Vec<_> = (0..100).map(made).collect();
        all.push(entry(Some("by-hand"), b"hand", &[1]));
        let kept = rewrite(&folder, all, 64 * 1024);
        assert_eq!(kept, 1 + 64, "64 of 1 KiB, and what has a name");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_adds_no_edge_is_not_kept() {
        let folder = std::env::temp_dir().join(format!("sluice-corpus-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("by-hand"), "hand").unwrap();
        let long = entry(None, b"a long one", &[2, 3]);
        keep(&folder, &long.bytes);
        let all = vec![
            long,
            entry(Some("by-hand"), b"hand", &[1]),
            entry(None, b"short", &[2, 3]),
            entry(None, b"", &[1]),
        ];
        assert_eq!(rewrite(&folder, all, 1000), 2);
        let mut left: Vec<_> = read(&folder).into_iter().map(|entry| entry.bytes).collect();
        left.sort();
        assert_eq!(left, [b"hand".to_vec(), b"short".to_vec()]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
