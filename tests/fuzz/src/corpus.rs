//! Inputs on disk: the kept corpus of a target, and failed inputs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::coverage::EdgeHit;

/// One input, and the edges that it took.
#[derive(Clone, Debug)]
pub(crate) struct CorpusEntry {
    /// Whether somebody wrote and named it: such an input is kept whatever it adds.
    pub(crate) is_by_hand: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) ways: Vec<EdgeHit>,
}

/// Returns the folder of a target's hand-written inputs. The [`archive`] of guided runs is beside it.
pub(crate) fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpora")
        .join(target)
}

/// Returns the folder of a target's failed inputs: beside cargo's build output.
pub(crate) fn failures(target: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("a process knows its own file");
    let built = exe.ancestors().nth(3).unwrap_or(Path::new("/tmp"));
    built.join("fuzz").join(target)
}

/// Returns the archive of inputs that guided runs found: thousands of small ones in one file.
fn archive(folder: &Path) -> PathBuf {
    folder.with_extension("tar.gz")
}

/// Reads every input of a target: those of its folder sorted by name, then those of its archive.
///
/// # Panics
/// If there is none: a target without a corpus tests almost nothing.
pub(crate) fn read(folder: &Path) -> Vec<CorpusEntry> {
    let mut all = by_hand(folder);
    let path = archive(folder);
    match File::open(&path) {
        Ok(file) => all.extend(found(file).unwrap_or_else(|e| panic!("{}: {e}", path.display()))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => panic!("{}: {e}", path.display()),
    }
    assert!(!all.is_empty(), "{} holds no input", folder.display());
    all
}

fn by_hand(folder: &Path) -> Vec<CorpusEntry> {
    let files = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = files
        .map(|file| file.expect("a folder can be read").path())
        .collect();
    paths.sort();
    let entry = |path: PathBuf| CorpusEntry {
        is_by_hand: true,
        bytes: fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
        ways: Vec::new(),
    };
    paths.into_iter().map(entry).collect()
}

fn found(file: File) -> io::Result<Vec<CorpusEntry>> {
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let entry = |packed: io::Result<tar::Entry<'_, _>>| {
        let mut bytes = Vec::new();
        packed?.read_to_end(&mut bytes)?;
        Ok(CorpusEntry {
            is_by_hand: false,
            bytes,
            ways: Vec::new(),
        })
    };
    archive.entries()?.map(entry).collect()
}

/// Writes an input to a file named by its hash; returns the path.
pub(crate) fn keep(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join(hash_name(bytes));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, bytes));
    written.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

/// Keeps in the archive the smallest inputs that take every edge that the hand-written ones do not, up to `room` bytes:
/// a corpus is read at every test run, and stays in the repository. Returns the number of kept inputs, hand-written
/// ones included.
pub(crate) fn rewrite(folder: &Path, mut entries: Vec<CorpusEntry>, mut room: usize) -> usize {
    entries.sort_by_key(|entry| (!entry.is_by_hand, entry.bytes.len()));
    let mut taken = BTreeSet::new();
    let adds = |entry: &CorpusEntry| {
        let before = taken.len();
        taken.extend(entry.ways.iter().map(|way| way.edge));
        taken.len() > before || entry.is_by_hand
    };
    let (hand, mut made): (Vec<CorpusEntry>, Vec<CorpusEntry>) = entries
        .into_iter()
        .filter(adds)
        .partition(|entry| entry.is_by_hand);
    made.retain(|entry| {
        let fits = entry.bytes.len() <= room;
        room -= if fits { entry.bytes.len() } else { 0 };
        fits
    });
    let path = archive(folder);
    pack(&path, &made).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    hand.len() + made.len()
}

/// The same inputs always make the same file.
fn pack(path: &Path, entries: &[CorpusEntry]) -> io::Result<()> {
    let packed = GzEncoder::new(File::create(path)?, Compression::best());
    let mut archive = tar::Builder::new(packed);
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(entry.bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, hash_name(&entry.bytes), &entry.bytes[..])?;
    }
    archive.into_inner()?.finish()?;
    Ok(())
}

fn hash_name(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(is_by_hand: bool, bytes: &[u8], edges: &[usize]) -> CorpusEntry {
        let way = |edge: &usize| EdgeHit {
            edge: *edge,
            often: 1,
        };
        CorpusEntry {
            is_by_hand,
            bytes: bytes.into(),
            ways: edges.iter().map(way).collect(),
        }
    }

    /// Makes a corpus with one hand-written input.
    fn with_one_by_hand(name: &str) -> (PathBuf, PathBuf) {
        let top = std::env::temp_dir().join(format!("sluice-{name}-{}", std::process::id()));
        let folder = top.join("target");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("by-hand"), "hand").unwrap();
        (top, folder)
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let (top, folder) = with_one_by_hand("room");
        let made = |nth: u8| entry(false, &[nth; 1024], &[10 + usize::from(nth)]);
        let mut all: Vec<_> = (0..100).map(made).collect();
        all.push(entry(true, b"hand", &[1]));
        let kept = rewrite(&folder, all, 64 * 1024);
        assert_eq!(kept, 1 + 64, "64 of 1 KiB, and what has a name");
        assert_eq!(read(&folder).len(), kept);
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn what_adds_no_edge_is_not_kept_and_what_is_kept_is_read_again() {
        let (top, folder) = with_one_by_hand("corpus");
        let all = vec![
            entry(false, b"a long one", &[2, 3]),
            entry(true, b"hand", &[1]),
            entry(false, b"short", &[2, 3]),
            entry(false, b"", &[1]),
        ];
        assert_eq!(rewrite(&folder, all.clone(), 1000), 2);
        let written = fs::read(archive(&folder)).unwrap();
        let left = read(&folder).into_iter();
        let left: Vec<_> = left.map(|it| (it.is_by_hand, it.bytes)).collect();
        assert_eq!(left, [(true, b"hand".to_vec()), (false, b"short".to_vec())]);
        rewrite(&folder, all, 1000);
        assert_eq!(fs::read(archive(&folder)).unwrap(), written);
        fs::remove_dir_all(&top).unwrap();
    }
}
