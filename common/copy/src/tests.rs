//! Both ends together, and each against an end that breaks the rules.

mod hostile;
mod kept;

use std::cell::RefCell;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::error::CopyError;
use crate::message::{
    CopyId, CopyIssue, CopyTarget, Destination, Issue, Position, TreeItem, TreePath,
};
use crate::receiver::{CopyListener, receive};
use crate::sender::send;
use crate::stream::{CopyReader, CopyWriter};
use crate::tree_writer::{FileHeader, TreeWriter};

const TRANSFER: CopyId = CopyId(7);

/// Remembers what it hears.
#[derive(Default)]
struct Heard {
    position: Option<Position>,
    notes: Vec<CopyIssue>,
}

impl CopyListener for Heard {
    fn on_position(&mut self, position: &Position) -> io::Result<()> {
        self.position = Some(position.clone());
        Ok(())
    }

    fn on_note(&mut self, note: CopyIssue) -> io::Result<()> {
        self.notes.push(note);
        Ok(())
    }
}

impl Heard {
    /// Paths and matters of the notes.
    fn issues(&self) -> Vec<(String, Issue)> {
        let notes = self.notes.iter();
        notes
            .map(|note| (note.path.to_string(), note.issue))
            .collect()
    }
}

fn written(path: &Path, name: &str) -> Destination {
    let target = CopyTarget::Written {
        path: path.as_os_str().as_bytes().to_vec(),
        name: Some(name.as_bytes().to_vec()),
    };
    target.decide()
}

/// Bytes of a whole stream.
fn sent(root: &Path, after: Option<&Position>) -> Vec<u8> {
    let mut bytes = Vec::new();
    send(root, after, &mut CopyWriter::new(&mut bytes)).unwrap();
    bytes
}

fn received(bytes: &[u8], to: &Destination, heard: &mut Heard) -> Result<(), CopyError> {
    receive(&mut CopyReader::new(bytes), to, TRANSFER, heard)
}

/// A line for each file below a directory: path, permissions, seconds of its time, and contents.
fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let found = path.symlink_metadata().unwrap();
        let mut contents = String::new();
        let mode = found.mode() & 0o7777;
        let mut state = format!("{mode:o} {}", found.mtime());
        if found.is_symlink() {
            contents = fs::read_link(&path).unwrap().display().to_string();
            state = "link".to_owned();
        } else if found.is_dir() {
            left.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            let bytes = fs::read(&path).unwrap();
            contents = format!("{} bytes, {:x}", bytes.len(), checksum(&bytes));
        }
        let below = path
            .strip_prefix(root)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        lines.push(format!("{below}: {state} {contents}"));
    }
    lines.sort();
    lines
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    })
}

fn make_old(path: &Path, seconds: u64, mode: u32) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let file = File::open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
    file.set_permissions(Permissions::from_mode(mode)).unwrap();
}

/// A tree with files of several sizes, directories in each other, and links.
fn tree(at: &Path) -> PathBuf {
    let root = at.join("tree");
    let big: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    fs::create_dir_all(root.join("a/b/empty")).unwrap();
    fs::create_dir_all(root.join("c")).unwrap();
    for (name, bytes) in [
        ("a/b/big", &big[..]),
        ("a/b/none", b""),
        ("a/z", b"last of a"),
        ("c/run.sh", b"#!/bin/sh\n"),
        ("top", b"1"),
    ] {
        fs::write(root.join(name), bytes).unwrap();
    }
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"no\xffutf")), "x").unwrap();
    symlink("../z", root.join("a/b/up")).unwrap();
    symlink("a/b", root.join("down")).unwrap();
    make_old(&root.join("c/run.sh"), 1_000_000_000, 0o755);
    make_old(&root.join("a/b/big"), 1_100_000_000, 0o640);
    make_old(&root.join("a/b/empty"), 1_200_000_000, 0o700);
    make_old(&root.join("c"), 1_300_000_000, 0o555);
    root
}

#[test]
fn a_tree_arrives_with_its_permissions_times_and_links() {
    let dir = tempfile::tempdir().unwrap();
    let root = tree(dir.path());
    let to = written(&dir.path().join("copy"), "tree");
    let mut heard = Heard::default();
    received(&sent(&root, None), &to, &mut heard).unwrap();
    assert_eq!(listing(&dir.path().join("copy")), listing(&root));
    assert_eq!(heard.issues(), []);
    // Into a directory that exists, by the name of the source.
    fs::create_dir(dir.path().join("there")).unwrap();
    let to = written(&dir.path().join("there"), "tree");
    received(&sent(&root, None), &to, &mut heard).unwrap();
    assert_eq!(listing(&dir.path().join("there/tree")), listing(&root));
    // A second copy replaces files.
    fs::write(root.join("top"), "2").unwrap();
    received(&sent(&root, None), &to, &mut heard).unwrap();
    assert_eq!(fs::read(dir.path().join("there/tree/top")).unwrap(), b"2");
}

#[test]
fn a_copy_goes_on_wherever_it_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let root = tree(dir.path());
    let whole = sent(&root, None);
    let of_root = listing(&root);
    // Within each message at the beginning and at the end, and within the large file.
    let cuts = (0..1000)
        .step_by(7)
        .chain((1000..whole.len()).step_by(30_011));
    for cut in cuts.chain((whole.len() - 1000..whole.len()).step_by(7)) {
        let copy = dir.path().join("copy");
        let to = written(&copy, "tree");
        let mut heard = Heard::default();
        let first = received(&whole[..cut], &to, &mut heard);
        assert!(
            matches!(first, Err(CopyError::Lost(_))),
            "cut at {cut}: {first:?}"
        );
        let to = CopyTarget::Decided(to).decide();
        let rest = sent(&root, heard.position.as_ref());
        received(&rest, &to, &mut heard).unwrap();
        let arrived = listing(&copy);
        let names = |lines: &[String]| {
            // The time of a directory that was made on another connection is not set again.
            let kept = lines
                .iter()
                .filter(|line| line.contains("bytes") || line.contains("link"));
            kept.cloned().collect::<Vec<_>>()
        };
        assert_eq!(names(&arrived), names(&of_root), "cut at {cut}");
        assert_eq!(arrived.len(), of_root.len(), "cut at {cut}: {arrived:?}");
        fs::remove_dir_all(&copy).unwrap();
    }
}

/// Position of a file of which the first bytes have arrived.
fn cut_in_file(root: &Path, to: &Destination, heard: &mut Heard, bytes: usize) {
    let whole = sent(root, None);
    let first = received(&whole[..bytes], to, heard);
    assert!(matches!(first, Err(CopyError::Lost(_))), "{first:?}");
}

#[test]
fn of_a_large_file_only_the_rest_is_sent_again_unless_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (root, to) = (
        dir.path().join("big"),
        written(&dir.path().join("copy"), "big"),
    );
    let size = 5 * 1024 * 1024;
    fs::write(&root, vec![1; size]).unwrap();
    let mut heard = Heard::default();
    cut_in_file(&root, &to, &mut heard, size / 2);
    assert!(
        !dir.path().join("copy").exists(),
        "it has its name before it is whole"
    );
    let rest = sent(&root, heard.position.as_ref());
    assert!(
        rest.len() < size * 7 / 10,
        "{} bytes are sent again",
        rest.len()
    );
    received(&rest, &to, &mut heard).unwrap();
    assert_eq!(fs::read(dir.path().join("copy")).unwrap(), vec![1; size]);

    cut_in_file(&root, &to, &mut heard, size / 2);
    fs::write(&root, vec![2; size]).unwrap();
    make_old(&root, 1_000_000_000, 0o644);
    received(&sent(&root, heard.position.as_ref()), &to, &mut heard).unwrap();
    assert_eq!(heard.issues(), [(String::new(), Issue::Restarted)]);
    assert_eq!(fs::read(dir.path().join("copy")).unwrap(), vec![2; size]);

    // The receiving end has lost its part.
    cut_in_file(&root, &to, &mut heard, size / 2);
    fs::remove_file(to.part_path(&TreePath::default(), TRANSFER)).unwrap();
    let again = received(&sent(&root, heard.position.as_ref()), &to, &mut heard);
    assert!(matches!(again, Err(CopyError::PartGone(_))), "{again:?}");
}

/// Looks at each report of a part whether it is there.
struct PartSeen {
    part: PathBuf,
    found: Vec<bool>,
}

impl CopyListener for PartSeen {
    fn on_position(&mut self, position: &Position) -> io::Result<()> {
        if position.part.is_some() {
            self.found.push(self.part.exists());
        }
        Ok(())
    }

    fn on_note(&mut self, note: CopyIssue) -> io::Result<()> {
        panic!("{note:?}")
    }
}

#[test]
fn a_part_is_reported_before_it_is_made_so_that_an_interruption_leaves_none() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::write(&root, vec![1; 3 * 1024 * 1024]).unwrap();
    let to = written(dir.path(), "copy");
    let mut seen = PartSeen {
        part: to.part_path(&TreePath::default(), TRANSFER),
        found: Vec::new(),
    };
    let bytes = sent(&root, None);
    receive(&mut CopyReader::new(&bytes[..]), &to, TRANSFER, &mut seen).unwrap();
    assert!(!seen.found[0] && seen.found[1], "{:?}", seen.found);
}

/// A stream that does something once, when the contents of a file have begun.
struct Meanwhile<'a> {
    bytes: &'a RefCell<Vec<u8>>,
    act: Option<Box<dyn FnOnce() + 'a>>,
}

impl Write for Meanwhile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > 60_000
            && let Some(act) = self.act.take()
        {
            act();
        }
        self.bytes.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn sent_while(root: &Path, act: impl FnOnce()) -> (Vec<u8>, Result<(), CopyError>) {
    let bytes = RefCell::default();
    let act: Option<Box<dyn FnOnce()>> = Some(Box::new(act));
    let sent = {
        let stream = Meanwhile { bytes: &bytes, act };
        send(root, None, &mut CopyWriter::new(stream))
    };
    (bytes.into_inner(), sent)
}

#[test]
fn a_file_that_is_written_to_is_copied_up_to_its_size_and_one_that_is_cut_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("log");
    let to = written(&dir.path().join("copy"), "log");
    let append = |bytes: &[u8]| {
        let mut file = File::options().append(true).open(&root).unwrap();
        file.write_all(bytes).unwrap();
    };
    fs::write(&root, vec![1; 200_000]).unwrap();
    let mut heard = Heard::default();
    let (bytes, sent) = sent_while(&root, || append(&[2; 100_000]));
    sent.unwrap();
    received(&bytes, &to, &mut heard).unwrap();
    assert_eq!(heard.issues(), [(String::new(), Issue::Grew(200_000))]);
    assert_eq!(fs::read(dir.path().join("copy")).unwrap(), vec![1; 200_000]);

    let (bytes, sent) = sent_while(&root, || {
        File::options()
            .write(true)
            .open(&root)
            .unwrap()
            .set_len(1000)
            .unwrap();
    });
    let why = sent.unwrap_err().to_string();
    assert!(why.contains("log` was cut while it was copied"), "{why}");
    let why = received(&bytes, &to, &mut heard).unwrap_err();
    assert!(matches!(&why, CopyError::Remote(_)), "{why:?}");
    assert_eq!(fs::read(dir.path().join("copy")).unwrap(), vec![1; 200_000]);
    assert!(
        !to.part_path(&TreePath::default(), TRANSFER).exists(),
        "its part stays"
    );
}

#[test]
fn what_cannot_be_copied_is_skipped_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    fs::create_dir(&root).unwrap();
    mkfifo(&root.join("fifo"), Mode::S_IRWXU).unwrap();
    symlink("/etc/passwd", root.join("out")).unwrap();
    symlink("../..", root.join("up")).unwrap();
    fs::write(root.join("z"), "z").unwrap();
    let to = written(&dir.path().join("copy"), "tree");
    let mut heard = Heard::default();
    received(&sent(&root, None), &to, &mut heard).unwrap();
    let expected = [
        ("fifo".to_owned(), Issue::Special),
        ("out".to_owned(), Issue::LeadsOut),
        ("up".to_owned(), Issue::LeadsOut),
    ];
    assert_eq!(heard.issues(), expected);
    let names: Vec<_> = fs::read_dir(dir.path().join("copy"))
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(names.len(), 1);

    let refused = send(&root.join("fifo"), None, &mut CopyWriter::new(io::sink()));
    let why = refused.unwrap_err().to_string();
    assert!(
        why.contains("fifo` is neither a file nor a directory"),
        "{why}"
    );
    let refused = send(&root.join("none"), None, &mut CopyWriter::new(io::sink()));
    let why = refused.unwrap_err().to_string();
    assert!(
        why.starts_with("cannot read `") && why.contains("none`: No such file"),
        "{why}"
    );
}

#[test]
fn a_path_decides_where_the_copy_goes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str, name: Option<&str>| {
        let path = dir.path().join(path);
        let target = CopyTarget::Written {
            path: path.as_os_str().as_bytes().to_vec(),
            name: name.map(|name| name.as_bytes().to_vec()),
        };
        let decided = target.decide();
        let below = decided.path().strip_prefix(dir.path()).unwrap().to_owned();
        (below.display().to_string(), decided.directory_only)
    };
    fs::create_dir(dir.path().join("there")).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for (path, name, expected) in [
        ("there", Some("x"), ("there/x", false)),
        ("there/", Some("x"), ("there/x", false)),
        ("there", None, ("there", true)),
        ("new", Some("x"), ("new", false)),
        ("new/", Some("x"), ("new", true)),
        ("file", Some("x"), ("file", false)),
        ("new", None, ("new", false)),
    ] {
        let (path_there, directory_only) = at(path, name);
        assert_eq!(
            (path_there.as_str(), directory_only),
            expected,
            "{path} {name:?}"
        );
    }
    // A file does not become a directory.
    let root = dir.path().join("file");
    let to = written(&dir.path().join("new/"), "file");
    let why = received(&sent(&root, None), &to, &mut Heard::default()).unwrap_err();
    assert!(
        why.to_string().contains("is not the name of a file"),
        "{why}"
    );
    let to = written(&dir.path().join("none/x"), "file");
    let why = received(&sent(&root, None), &to, &mut Heard::default()).unwrap_err();
    assert!(
        why.to_string().contains("cannot open the directory `"),
        "{why}"
    );
}

#[test]
fn a_tree_that_is_written_by_hand_is_received_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let large = vec![7; 200_000];
    let changed_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let mut tree = TreeWriter::begin(Vec::new(), changed_at).unwrap();
    let files = [
        ("a/b/large", &large[..], 0o644),
        ("a/c/run", b"#!/bin/sh", 0o755),
        ("a/d", b"", 0o644),
        ("e", b"last", 0o644),
    ];
    for (path, bytes, mode) in files {
        let size = bytes.len() as u64;
        let header = FileHeader { size, mode };
        tree.begin_file(path.split('/'), header).unwrap();
        tree.contents(bytes).unwrap();
        tree.end_file().unwrap();
    }
    let bytes = tree.end().unwrap();
    let to = CopyTarget::Written {
        path: dir.path().as_os_str().as_bytes().to_vec(),
        name: None,
    };
    received(&bytes, &to.decide(), &mut Heard::default()).unwrap();
    for (path, bytes, mode) in files {
        let path = dir.path().join(path);
        assert_eq!(fs::read(&path).unwrap(), bytes);
        let found = path.metadata().unwrap();
        assert_eq!((found.mode() & 0o777, found.mtime()), (mode, 1_000_000_000));
    }
    // What ends early is never taken for the whole.
    let cut = &bytes[..bytes.len() - 1];
    let cut = received(
        cut,
        &written(&dir.path().join("cut"), "x"),
        &mut Heard::default(),
    );
    assert!(matches!(cut, Err(CopyError::Lost(_))), "{cut:?}");
}
