//! Files that are kept, and what is sent of them later.

use super::*;
use crate::keep::{KeepLimits, keep};
use crate::stored::send_stored;
use proptest::prelude::*;
use std::collections::BTreeSet;

const LIMITS: KeepLimits = KeepLimits {
    bytes: 1 << 20,
    min_free: 0,
    time: Duration::from_secs(600),
};

/// The stored stream, and the reasons for what was left out.
fn kept(root: &Path, patterns: &[&str], limits: KeepLimits) -> (Vec<u8>, Vec<(String, Issue)>) {
    let stream = tempfile::NamedTempFile::new().unwrap();
    let patterns: Vec<_> = patterns.iter().map(|it| it.parse().unwrap()).collect();
    let report = keep(root, &patterns, limits, stream.as_file()).unwrap();
    let left_out = report.left_out.iter();
    let left_out = left_out.map(|it| (it.path.to_string(), it.issue)).collect();
    (fs::read(stream.path()).unwrap(), left_out)
}

fn stored(stream: &[u8], path: &str, after: Option<&Position>) -> (Vec<u8>, Result<(), CopyError>) {
    let mut bytes = Vec::new();
    let mut reader = CopyReader::new(stream);
    let out = &mut CopyWriter::new(&mut bytes);
    let sent = send_stored(&mut reader, path.as_bytes(), after, out);
    (bytes, sent)
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("out/deep/empty")).unwrap();
    fs::create_dir_all(root.join("other/deep")).unwrap();
    fs::write(root.join("out/a"), "a").unwrap();
    fs::write(root.join("out/deep/b"), vec![b'b'; 150_000]).unwrap();
    fs::write(root.join("other/deep/c.log"), "c").unwrap();
    fs::write(root.join("other/d"), "d").unwrap();
    symlink("/etc/shadow", root.join("out/leads-out")).unwrap();
    symlink("a", root.join("out/link")).unwrap();
}

#[test]
fn what_is_sent_of_a_stored_directory_is_what_the_directory_itself_sends() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    let (stream, left_out) = kept(dir.path(), &["."], LIMITS);
    assert_eq!(left_out, []);
    for (path, below) in [
        ("", "."),
        (".", "."),
        ("out", "out"),
        ("./out/deep/b", "out/deep/b"),
    ] {
        let (bytes, sent_stored) = stored(&stream, path, None);
        sent_stored.unwrap();
        assert!(bytes == sent(&dir.path().join(below), None), "{path}");
    }
}

#[test]
fn only_what_matches_is_stored_and_no_directory_without_it() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    let (stream, _) = kept(dir.path(), &["**/*.log", "out/deep"], LIMITS);
    let to = tempfile::tempdir().unwrap();
    let (bytes, _) = stored(&stream, ".", None);
    received(
        &bytes,
        &written(&to.path().join("t"), "t"),
        &mut Heard::default(),
    )
    .unwrap();
    let lines = listing(&to.path().join("t"));
    let paths: BTreeSet<&str> = lines.iter().filter_map(|it| it.split(':').next()).collect();
    let expected = [
        "",
        "other",
        "other/deep",
        "other/deep/c.log",
        "out",
        "out/deep",
        "out/deep/b",
        "out/deep/empty",
    ];
    assert_eq!(paths, expected.into());
    for (path, words) in [
        ("out/a", "is not among the files"),
        ("/etc", "own directory"),
        ("a/../..", "without `..`"),
    ] {
        let why = stored(&stream, path, None).1.unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn a_copy_goes_on_at_each_position() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    let (stream, _) = kept(dir.path(), &["."], LIMITS);
    let (whole, _) = stored(&stream, "out", None);
    let root = dir.path().join("out");
    for cut in (0..whole.len()).step_by(1_999) {
        let to = tempfile::tempdir().unwrap();
        let to = written(&to.path().join("t"), "t");
        let mut heard = Heard::default();
        let _cut = received(&whole[..cut], &to, &mut heard);
        let (rest, sent_stored) = stored(&stream, "out", heard.position.as_ref());
        sent_stored.unwrap();
        assert!(rest == sent(&root, heard.position.as_ref()), "{cut}");
    }
}

#[test]
fn what_does_not_fit_is_left_out_and_the_rest_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    let limits = KeepLimits {
        bytes: 100_000,
        ..LIMITS
    };
    let (stream, left_out) = kept(dir.path(), &["out"], limits);
    let issue = Issue::TooLarge(150_000);
    assert_eq!(left_out, [("out/deep/b".to_owned(), issue)]);
    let mut heard = Heard::default();
    let to = tempfile::tempdir().unwrap();
    let (bytes, _) = stored(&stream, "out", None);
    received(&bytes, &written(&to.path().join("t"), "t"), &mut heard).unwrap();
    assert!(heard.issues().contains(&("deep/b".to_owned(), issue)));
    let why = stored(&stream, "out/deep/b", None)
        .1
        .unwrap_err()
        .to_string();
    assert!(why.contains("150000 bytes"), "{why}");
    for (limits, issue) in [
        (
            KeepLimits {
                min_free: u64::MAX,
                ..LIMITS
            },
            Issue::DiskFull,
        ),
        (
            KeepLimits {
                time: Duration::ZERO,
                ..LIMITS
            },
            Issue::TookTooLong,
        ),
    ] {
        let (stream, left_out) = kept(dir.path(), &["out"], limits);
        assert_eq!(left_out, [("out".to_owned(), issue)]);
        stored(&stream, "", None).1.unwrap();
    }
}

proptest! {
    /// Whatever a step has put into the file, sending ends, and with an error unless the stream is whole.
    #[test]
    fn a_damaged_stream_is_told_and_does_no_harm(at in 0..20_000usize, byte in any::<u8>(), cut in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/c"), vec![7; 15_000]).unwrap();
        fs::write(dir.path().join("d"), "d").unwrap();
        let (mut stream, _) = kept(dir.path(), &["."], LIMITS);
        let at = at % stream.len();
        match cut {
            true => stream.truncate(at),
            false => stream[at] = byte,
        }
        for path in ["", "a", "a/b/c"] {
            let (bytes, sent_stored) = stored(&stream, path, None);
            // The stream's own end is not needed for what comes before it.
            let is_end_alone = at + 16 > stream.len();
            prop_assert!(!cut || is_end_alone || sent_stored.is_err());
            let to = tempfile::tempdir().unwrap();
            let to = written(&to.path().join("t"), "t");
            let _refused_or_other_contents = received(&bytes, &to, &mut Heard::default());
        }
    }
}
