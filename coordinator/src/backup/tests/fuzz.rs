//! Fuzz tests of backups. The checksums of lines and file are corrected first: random changes would never get them
//! right, and an attacker would.

use std::path::Path;

use ring::digest::{Context, SHA256};
use sluice_common::error_chain::error_chain;
use sluice_fuzz::{Fuzz, place_for_files};

use super::super::check::{NoVisitor, Summary, read};
use super::super::restore::restore;
use super::super::{BackupError, BackupWriter};
use crate::store::Store;

/// Builds a backup of lines with a kind, a space and JSON; adds the trailer with the number of lines.
fn sealed(input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = BackupWriter {
        out: &mut out,
        digest: Context::new(&SHA256),
        lines: 0,
    };
    for line in input.split(|byte| *byte == b'\n').take(50) {
        let (kind, json) = line.split_first().unwrap_or((&b'?', b""));
        let json = json.strip_prefix(b" ").unwrap_or(json);
        let sum = format!("{:08x} ", crc32fast::hash(json));
        writer
            .line(*kind, &[sum.as_bytes(), json].concat())
            .unwrap();
    }
    writer.end().unwrap();
    out
}

fn looked_at(bytes: &[u8]) -> Result<Summary, BackupError> {
    let read = read(bytes, Path::new("a.backup"), &mut NoVisitor);
    if let Err(error) = &read {
        let message = error_chain(error);
        assert!(
            message.contains("a.backup"),
            "it names the file: {message:?}"
        );
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
    read
}

/// Checks that a backup found valid is restored and opens with the same state, and that another one restores nothing.
fn is_restored(bytes: &[u8], found: Summary) {
    let dir = tempfile::tempdir_in(place_for_files()).unwrap();
    let (file, data) = (dir.path().join("a.backup"), dir.path().join("data"));
    std::fs::write(&file, bytes).unwrap();
    let restored = restore(&file, &data, false).unwrap_or_else(|e| panic!("{}", error_chain(&e)));
    assert_eq!(restored.summary.state, found.state);
    let (store, opened) = match Store::open(&data, 1000) {
        Ok(opened) => opened,
        Err(error) => {
            // The backup does not check the contents of keys.
            let message = error_chain(&error);
            return assert!(message.contains("is not a warrant key"), "{message}");
        }
    };
    assert_eq!(opened.state, found.state);
    assert_eq!(opened.cluster, found.header.cluster);
    drop(store);
}

#[test]
fn backups() {
    let words = [
        "H ",
        "K ",
        "S ",
        "R ",
        "V ",
        "\n",
        "\"format\":1",
        "\"cluster\":",
        "\"keys\":true",
        "\"path\":\"tls/ca.pem\"",
        "\"private\":true",
        "\"text\":",
        "\"seq\":",
        "\"at\":",
        "\"state\":",
        "\"step\":",
        "\"env\":{",
        "\"type\":",
        "18446744073709551615",
    ];
    Fuzz::new("backup")
        .words(&words)
        .max_bytes(8192)
        .memory(16 << 20, 4096)
        .run(|input| {
            if looked_at(input).is_ok() {
                panic!("nobody made its checksums");
            }
            let bytes = sealed(input);
            if let Ok(found) = looked_at(&bytes) {
                let message = found.to_string();
                assert!(
                    !message.contains(|c: char| c.is_control() && c != '\n'),
                    "{message:?}"
                );
                assert_eq!(message.lines().count(), 5, "{message:?}");
                is_restored(&bytes, found);
            }
        });
}
