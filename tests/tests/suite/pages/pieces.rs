//! A page as its pieces: commands with what they print, scripts, files, and the text around them.

use std::path::PathBuf;

use super::root;

/// A piece of a page.
#[derive(Debug)]
pub(super) enum Piece {
    /// Text, and blocks that this page's own test does not run.
    Text(String),
    /// The command that starts a trial.
    Trial(Start),
    /// The banner that `sluice dev` prints when it is ready.
    Banner(String),
    /// A file that later commands read: its name and its content.
    File(String, String),
    /// A command, and what it prints.
    Command(String, String),
    /// Commands that must succeed, one after the other.
    Script(String),
    /// Commands that print until they are interrupted.
    Follow(String),
}

/// Options of a trial that a page starts.
#[derive(Debug, Default)]
pub(super) struct Start {
    /// The files of documents that it starts with.
    pub(super) files: Vec<PathBuf>,
    /// The script that builds the programs and starts them, where the page uses it.
    pub(super) script: Option<PathBuf>,
}

/// A block of a README that CI itself runs: `tidy` checks that it does.
const RUN_BY_CI: &str = "tests/run.sh\n";

/// The page as its pieces. A block that is a file has the file's name behind its language.
pub(super) fn pieces(page: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    for (index, part) in page.split("```").enumerate() {
        if index % 2 == 0 {
            found.push(Piece::Text(part.to_owned()));
            continue;
        }
        let (info, block) = part.split_once('\n').expect("a fence ends its line");
        found.push(Piece::Text(format!("```{info}\n")));
        let text = block.to_owned();
        match (info, info.split_once(' ')) {
            ("console", _) => {
                found.extend(commands(block));
                found.push(Piece::Text("```".to_owned()));
                continue;
            }
            ("sh", _) if block == RUN_BY_CI => {}
            ("sh", _) => found.push(match start(block) {
                Some(start) => Piece::Trial(start),
                None => Piece::Script(text.clone()),
            }),
            ("sh follow", _) => found.push(Piece::Follow(text.clone())),
            ("text", _) => found.push(Piece::Banner(text.clone())),
            (_, Some(("yaml" | "toml" | "json" | "bash", name))) => {
                found.push(Piece::File(name.to_owned(), text.clone()));
            }
            _ => {}
        }
        found.push(Piece::Text(text));
        found.push(Piece::Text("```".to_owned()));
    }
    found
}

/// Returns how the trial is started that a block starts, if it starts one.
fn start(block: &str) -> Option<Start> {
    let line = block.strip_suffix('\n')?;
    if line == "packaging/dev.sh" {
        let script = Some(root().join(line));
        return Some(Start {
            script,
            ..Start::default()
        });
    }
    if line == "sluice dev" {
        return Some(Start::default());
    }
    let words = line.strip_prefix("sluice dev ")?.split(' ');
    let files = words.filter(|word| *word != "--file");
    let files = files.map(|file| root().join(file)).collect();
    Some(Start {
        files,
        script: None,
    })
}

fn commands(block: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push(Piece::Command(command.to_owned(), String::new())),
            (None, Some(Piece::Command(_, shown))) => {
                shown.push_str(line);
                shown.push('\n');
            }
            (None, _) => panic!("a block of `console` begins with `$ `: {line}"),
        }
    }
    found
}
