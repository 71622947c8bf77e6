//! The lines that the page on logging shows are those that a coordinator writes, in each format.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use serde_json::{Map, Value};

use super::{dev, log};

const PAGE: &str = include_str!("../../../../docs/logging.md");

/// Fields whose values differ from run to run, and from host to host.
const CHANGING: [&str; 4] = ["time", "node", "pid", "duration_ms"];

/// Returns the lines of the page that follow `heading` and a fence.
fn shown_after(heading: &str) -> Vec<&'static str> {
    let (_, rest) = PAGE.split_once(heading).unwrap();
    let block = rest.split("```").nth(1).unwrap();
    block.lines().skip(1).collect()
}

/// A line without the values that change.
fn settled(line: &str) -> String {
    if let Ok(fields) = serde_json::from_str::<Map<String, Value>>(line) {
        let words = fields.into_iter().map(|(key, value)| match key.as_str() {
            key if CHANGING.contains(&key) => key.to_owned(),
            key => format!("{key}={value}"),
        });
        return words.collect::<Vec<_>>().join(" ");
    }
    let words = line.split(' ').map(|word| match word.split_once('=') {
        Some((key, _)) if CHANGING.contains(&key) => key,
        None if word.len() == "2026-11-21T21:32:10.254Z".len() && word.ends_with('Z') => "time",
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_page_shows_the_lines_that_are_written() {
    for (heading, format) in [
        ("\nText:\n", "text"),
        ("\nThe journal adds", "auto"),
        ("\nJSON:\n", "json"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(data.join("logs")).unwrap();
        let file = File::create(data.join("logs/coordinator.log")).unwrap();
        let file = file.metadata().unwrap();
        // The coordinator takes this file for the journal's socket.
        let journal = format!("{}:{}", file.dev(), file.ino());
        let variables = [("SLUICE_LOG_FORMAT", format), ("JOURNAL_STREAM", &journal)];
        let dev = dev(&data, &variables);
        dev.sluice(&["run", "--id", "k3v9", "--", "sh", "-c", "exit 7"]);
        dev.stop();
        let written = log(&data, "coordinator");
        let written: Vec<String> = written.lines().map(settled).collect();
        let shown = shown_after(heading);
        assert!(!shown.is_empty(), "{heading}");
        for line in shown.into_iter().map(settled) {
            assert!(written.contains(&line), "{line}\n{}", written.join("\n"));
        }
    }
}
