//! The guide for admins and the files that it applies: every command of the page is run, in order, against the trial that
//! its part starts, and must print what the page shows. `SLUICE_GUIDE=write` writes what is printed into the page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sluice_tests::{Dev, DevOptions};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> PathBuf {
    root().join("docs/guide.md")
}

/// A piece of the page.
#[derive(Debug)]
enum Piece {
    /// Text, and whatever else is not run.
    Text(String),
    /// The command that starts a trial: its files.
    Trial(Vec<PathBuf>),
    /// A command, and what it prints.
    Command(String, String),
}

/// The page as its pieces: what is between fences is run where it begins with `$`, or starts a trial.
fn pieces(page: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if let Some(trial) = line.strip_prefix("sluice dev ").filter(|_| fenced) {
            found.push(Piece::Text(format!("{line}\n")));
            let words = trial.split(' ').filter(|word| *word != "--file");
            found.push(Piece::Trial(words.map(|word| root().join(word)).collect()));
            continue;
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| fenced) {
            found.push(Piece::Command(command.to_owned(), String::new()));
            continue;
        } else if let (true, Some(Piece::Command(_, shown))) = (fenced, found.last_mut()) {
            shown.push_str(line);
            shown.push('\n');
            continue;
        }
        found.push(Piece::Text(format!("{line}\n")));
    }
    found
}

/// What a command prints: first what it found, then what it says.
fn printed(dev: &Dev, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let mut command = dev.command(&words[1..]);
    let command = command.current_dir(root()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

/// Without what changes from one run to the next: ages, and with them the widths of columns.
fn settled(text: &str) -> Vec<String> {
    let is_age = |word: &str| {
        let digits = word.strip_suffix('s').unwrap_or_default();
        (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let word = |word: &str| String::from(if is_age(word) { "AGE" } else { word });
    let lines = text.lines();
    lines
        .map(|line| {
            line.split_whitespace()
                .map(word)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

/// Stops a trial. The hooks of its steps have then removed what they made in `/tmp`.
fn end(trial: Dev) {
    let log = fs::read_to_string(trial.data().join("logs/coordinator.log")).unwrap();
    let id = log.split("cluster=").nth(1).unwrap();
    let cluster = id.split_whitespace().next().unwrap();
    let scratch = format!("scratch-{cluster}");
    trial.stop();
    let mut left = fs::read_dir("/tmp")
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let left = left.find(|name| name.to_string_lossy().starts_with(&scratch));
    assert_eq!(left, None);
}

#[test]
fn what_the_guide_shows_is_what_is_printed() {
    let text = fs::read_to_string(page()).unwrap();
    let write = std::env::var("SLUICE_GUIDE").is_ok_and(|word| word == "write");
    let (mut dev, mut written, mut commands) = (None, String::new(), 0);
    for piece in pieces(&text) {
        match piece {
            Piece::Text(text) => written.push_str(&text),
            Piece::Trial(files) => {
                dev.take().into_iter().for_each(end);
                dev = Some(Dev::with(DevOptions {
                    files,
                    ..DevOptions::default()
                }));
            }
            Piece::Command(command, shown) => {
                commands += 1;
                let dev = dev.as_ref().expect("a part begins with its trial");
                let printed = printed(dev, &command);
                if !write {
                    assert_eq!(settled(&printed), settled(&shown), "$ {command}\n{printed}");
                }
                written.push_str(&format!("$ {command}\n{printed}"));
            }
        }
    }
    dev.into_iter().for_each(end);
    assert!(commands > 30, "the guide is cut short: {commands}");
    if write {
        fs::write(page(), written).unwrap();
    }
}

#[test]
fn applying_the_examples_again_changes_nothing() {
    for example in ["four-pools", "mixed-pool"] {
        let folder = root().join("packaging/examples").join(example);
        let dev = Dev::with(DevOptions {
            files: vec![folder.join("hosts.yaml")],
            ..DevOptions::default()
        });
        let pools = folder.join("pools.yaml");
        let apply =
            |more: &[&str]| dev.ok(&[&["apply", "-f", pools.to_str().unwrap()], more].concat());
        let first = apply(&[]);
        assert!(
            first.lines().any(|line| line.contains(" created: ")),
            "{first}"
        );
        for again in [apply(&["--dry-run"]), apply(&[])] {
            let changed = again.lines().find(|line| !line.contains(" unchanged"));
            assert_eq!(changed, None, "{example}: {again}");
        }
    }
}
