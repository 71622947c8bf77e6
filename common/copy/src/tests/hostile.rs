//! Sending ends that break the rules: nothing outside of the destination is made, changed or removed.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::message::FileVersion;

fn version(size: u64) -> FileVersion {
    FileVersion {
        inode: 1,
        size,
        seconds: 1_000_000_000,
        nanoseconds: 0,
    }
}

fn directory(name: &[u8]) -> TreeItem {
    TreeItem::Directory {
        name: name.to_vec(),
        mode: 0o755,
        version: version(0),
    }
}

fn file(name: &[u8], size: u64) -> TreeItem {
    TreeItem::File {
        name: name.to_vec(),
        mode: 0o7777,
        version: version(size),
        from: 0,
    }
}

fn link(name: &[u8], target: &[u8]) -> TreeItem {
    TreeItem::Link {
        name: name.to_vec(),
        target: target.to_vec(),
    }
}

/// A message or contents of a file.
#[derive(Clone, Debug)]
enum HostileFrame {
    Item(TreeItem),
    Bytes(Vec<u8>),
}

/// A stream of these frames.
fn stream(frames: &[HostileFrame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = CopyWriter::new(&mut bytes);
    for frame in frames {
        match frame {
            HostileFrame::Item(item) => writer.message(item).unwrap(),
            HostileFrame::Bytes(data) => {
                let mut data = &data[..];
                writer
                    .data(u64::MAX, |room| Ok(data.read(room).unwrap()))
                    .unwrap();
            }
        }
    }
    bytes
}

fn items(items: impl IntoIterator<Item = TreeItem>) -> Vec<u8> {
    let frames: Vec<_> = items.into_iter().map(HostileFrame::Item).collect();
    stream(&frames)
}

/// A directory with a destination in it, and a file that is none of the copy's business.
struct Scene {
    dir: tempfile::TempDir,
    to: Destination,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("here")).unwrap();
        fs::write(dir.path().join("outside"), "kept").unwrap();
        let to = written(&dir.path().join("here"), "copy");
        Self { dir, to }
    }

    fn receive(&self, bytes: &[u8]) -> (Result<(), CopyError>, Heard) {
        let mut heard = Heard::default();
        let done = received(bytes, &self.to, &mut heard);
        (done, heard)
    }

    /// Checks that only the copy was made.
    fn check(&self) {
        let names = |path: &Path| {
            let entries = fs::read_dir(path).unwrap().flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(self.dir.path()), ["here", "outside"]);
        assert_eq!(fs::read(self.dir.path().join("outside")).unwrap(), b"kept");
        for name in names(&self.dir.path().join("here")) {
            let name = name.to_string_lossy();
            assert!(name == "copy" || name.starts_with(".sluice-cp-"), "{name}");
        }
    }
}

#[test]
fn names_that_are_none_are_refused() {
    let long = [b'a'; 256];
    for name in [
        &b".."[..],
        b".",
        b"",
        b"/etc",
        b"a/b",
        b"../outside",
        b"a\0b",
        &long,
    ] {
        for item in [directory(name), file(name, 0), link(name, b"x")] {
            let scene = Scene::new();
            let (done, _) = scene.receive(&items([directory(b""), item]));
            let why = done.unwrap_err().to_string();
            assert!(why.contains("is not a file's name"), "{name:?}: {why}");
            scene.check();
        }
        if !name.is_empty() {
            let scene = Scene::new();
            let (done, _) = scene.receive(&items([directory(name)]));
            assert!(
                done.unwrap_err()
                    .to_string()
                    .contains("outside of the tree"),
                "{name:?}"
            );
            scene.check();
        }
    }
}

#[test]
fn nothing_is_written_through_a_link() {
    let scene = Scene::new();
    let bytes = items([
        directory(b""),
        link(b"in", b"."),
        directory(b"in"),
        file(b"x", 0),
    ]);
    let why = scene.receive(&bytes).0.unwrap_err().to_string();
    assert!(why.contains("cannot write into `"), "{why}");
    assert!(!scene.to.path().join("x").exists());
    // Neither through one that was there before.
    symlink("../..", scene.to.path().join("out")).unwrap();
    let bytes = items([directory(b""), directory(b"out"), file(b"outside", 0)]);
    assert!(scene.receive(&bytes).0.is_err());
    scene.check();
    // A file replaces a link, and leaves alone where the link leads.
    symlink("../../outside", scene.to.path().join("file")).unwrap();
    let end = [TreeItem::FileEnd, TreeItem::DirectoryEnd, TreeItem::End];
    let bytes = items([directory(b""), file(b"file", 0)].into_iter().chain(end));
    scene.receive(&bytes).0.unwrap();
    assert!(
        scene
            .to
            .path()
            .join("file")
            .symlink_metadata()
            .unwrap()
            .is_file()
    );
    scene.check();
}

#[test]
fn no_more_arrives_than_was_announced_and_no_special_permissions() {
    let scene = Scene::new();
    let frames = [
        HostileFrame::Item(file(b"", 3)),
        HostileFrame::Bytes(b"four".to_vec()),
    ];
    let why = scene.receive(&stream(&frames)).0.unwrap_err().to_string();
    assert!(why.contains("more of a file than its size"), "{why}");
    assert!(!scene.to.path().exists());
    let frames = [
        HostileFrame::Item(file(b"", 4)),
        HostileFrame::Bytes(b"four".to_vec()),
        HostileFrame::Item(TreeItem::FileEnd),
        HostileFrame::Item(TreeItem::End),
    ];
    scene.receive(&stream(&frames)).0.unwrap();
    let mode = scene.to.path().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o777, "set-uid bits are not copied");
    scene.check();
}

#[test]
fn a_tree_is_one_tree_and_not_endlessly_deep() {
    for (bytes, said) in [
        (items([TreeItem::End]), "the end of a tree too early"),
        (
            items([TreeItem::DirectoryEnd]),
            "a directory that has not begun",
        ),
        (items([TreeItem::FileEnd]), "a file that has not begun"),
        (items([link(b"", b"x")]), "a link instead of a tree"),
        (
            items([directory(b""), TreeItem::DirectoryEnd, directory(b"")]),
            "a file outside of the tree",
        ),
        (
            items(std::iter::once(directory(b"")).chain((0..200).map(|_| directory(b"d")))),
            "more directories in each other",
        ),
        (
            vec![0, 255, 255, 255, 255],
            "a frame of kind 0 with 4294967295 bytes",
        ),
        (vec![9, 0, 0, 0, 0], "a frame of kind 9"),
        (
            stream(&[HostileFrame::Bytes(b"x".to_vec())]),
            "contents outside of a file",
        ),
    ] {
        let scene = Scene::new();
        let why = scene.receive(&bytes).0.unwrap_err().to_string();
        assert!(why.contains(said), "{why}");
        scene.check();
    }
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let names = vec![
        "",
        "a",
        "b",
        "a",
        "b",
        ".",
        "..",
        "a/b",
        "../outside",
        "copy",
        "outside",
    ];
    prop_oneof![
        4 => select(names).prop_map(|name| name.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..300),
    ]
}

fn any_frame() -> impl Strategy<Value = HostileFrame> {
    let targets = vec![
        "a",
        "b",
        "..",
        "../..",
        ".",
        "/",
        "a/..",
        "../outside",
        "b/../..",
    ];
    let item = prop_oneof![
        any_name().prop_map(|name| directory(&name)),
        any_name().prop_map(|name| directory(&name)),
        Just(TreeItem::DirectoryEnd),
        (any_name(), 0..3_u64).prop_map(|(name, size)| file(&name, size)),
        Just(TreeItem::FileEnd),
        (any_name(), select(targets)).prop_map(|(name, target)| link(&name, target.as_bytes())),
        Just(TreeItem::End),
    ];
    prop_oneof![
        6 => item.prop_map(HostileFrame::Item),
        1 => vec(any::<u8>(), 0..4).prop_map(HostileFrame::Bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_is_sent_nothing_outside_changes_and_links_lead_nowhere_else(
        mut frames in vec(any_frame(), 0..30),
    ) {
        frames.insert(0, HostileFrame::Item(directory(b"")));
        let scene = Scene::new();
        let _refused_or_not = scene.receive(&stream(&frames));
        scene.check();
        check_links(&scene.to.path());
    }

    #[test]
    fn any_bytes_are_refused_without_harm(bytes in vec(any::<u8>(), 0..300)) {
        let scene = Scene::new();
        prop_assert!(scene.receive(&bytes).0.is_err());
        scene.check();
    }
}

/// Checks that each link below a directory that leads anywhere leads below it.
fn check_links(root: &Path) {
    let Ok(whole) = root.canonicalize() else {
        return;
    };
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let found = path.symlink_metadata().unwrap();
        if found.is_symlink() {
            if let Ok(leads_to) = path.canonicalize() {
                assert!(
                    leads_to.starts_with(&whole),
                    "{path:?} leads to {leads_to:?}"
                );
            }
        } else if found.is_dir() {
            left.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
}
