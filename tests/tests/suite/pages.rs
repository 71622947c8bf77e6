//! The pages of the documentation, run as a reader would: each trial that a page starts, each command in a block of
//! `console`, and each YAML document. What a command prints must be what the page shows. `SLUICE_PAGES=write` writes what
//! is printed into the pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sluice_tests::{Dev, DevOptions, binaries};
use tempfile::TempDir;

/// Pages whose blocks of `console` a test of their own runs, because they need no cluster or a stopped one.
const RUN_ELSEWHERE: [&str; 2] = ["docs/replay.md", "docs/simulate.md"];

/// The address of a trial's API as pages show it.
const SHOWN_API: &str = "127.0.0.1:40433";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A piece of a page.
#[derive(Debug)]
enum Piece {
    /// Text, and blocks that are not run.
    Text(String),
    /// The command that starts a trial: its files.
    Trial(Vec<PathBuf>),
    /// The banner that `sluice dev` prints when it is ready.
    Banner(String),
    /// A file that later commands read: its name and its content.
    File(String, String),
    /// A command, and what it prints.
    Command(String, String),
}

/// The page as its pieces. A block that is a file has the file's name behind its language.
fn pieces(page: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    for (index, part) in page.split("```").enumerate() {
        if index % 2 == 0 {
            found.push(Piece::Text(part.to_owned()));
            continue;
        }
        let (info, block) = part.split_once('\n').expect("a fence ends its line");
        found.push(Piece::Text(format!("```{info}\n")));
        match (info, info.split_once(' ')) {
            ("console", _) => found.extend(commands(block)),
            ("sh", _) if trial(block).is_some() => {
                found.push(Piece::Trial(trial(block).unwrap_or_default()));
                found.push(Piece::Text(block.to_owned()));
            }
            ("text", _) if block.starts_with("Sluice is ready on this machine.") => {
                found.push(Piece::Banner(block.to_owned()));
                found.push(Piece::Text(block.to_owned()));
            }
            (_, Some(("yaml" | "toml" | "json", name))) => {
                found.push(Piece::File(name.to_owned(), block.to_owned()));
                found.push(Piece::Text(block.to_owned()));
            }
            _ => found.push(Piece::Text(block.to_owned())),
        }
        found.push(Piece::Text("```".to_owned()));
    }
    found
}

/// The files of the trial that a block starts, if it starts one.
fn trial(block: &str) -> Option<Vec<PathBuf>> {
    let line = block.strip_suffix('\n')?;
    if line == "packaging/dev.sh" || line == "sluice dev" {
        return Some(Vec::new());
    }
    let words = line.strip_prefix("sluice dev ")?.split(' ');
    let files = words.filter(|word| *word != "--file");
    Some(files.map(|file| root().join(file)).collect())
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

/// The place where commands run, and the names to compare their output by.
struct Trial {
    /// The cluster, on pages that start one.
    dev: Option<Dev>,
    folder: TempDir,
    /// The name of this machine, and that of the machine which the page shows.
    names: Option<(String, String)>,
}

impl Default for Trial {
    fn default() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let examples = root().join("packaging");
        std::os::unix::fs::symlink(examples, folder.path().join("packaging")).unwrap();
        Self {
            dev: None,
            folder,
            names: None,
        }
    }
}

impl Trial {
    fn start(files: Vec<PathBuf>) -> Self {
        let dev = Dev::with(DevOptions {
            files,
            ..DevOptions::default()
        });
        Self {
            dev: Some(dev),
            ..Self::default()
        }
    }

    /// Returns the output of a command: first its standard output, then its standard error.
    fn printed(&self, command: &str) -> String {
        let path = std::env::var("PATH").unwrap();
        let mut shell = Command::new("bash");
        shell
            .env("PATH", format!("{}:{path}", binaries().display()))
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        let mut command = command.to_owned();
        if let Some(dev) = &self.dev {
            shell.env("SLUICE_CONTEXT", &dev.context);
            command = command.replace(SHOWN_API, &dev.http);
        }
        let output = shell.args(["-c", &command]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        text(&output.stdout) + &text(&output.stderr)
    }

    /// Compares a banner by its labels, since what it tells is of one machine, and notes the names of both.
    fn compare_banner(&mut self, shown: &str) {
        let log = self.dev.as_ref().map(Dev::log).unwrap_or_default();
        let printed = log.split_once("\nSluice is ready").unwrap().1;
        let printed = format!("Sluice is ready{printed}");
        let label = |line: &str| line.split_whitespace().next().map(str::to_owned);
        let labels = |text: &str| -> BTreeSet<String> {
            let lines = text.lines().filter(|line| line.starts_with("  "));
            lines.filter_map(label).collect()
        };
        let always = ["agents", "api", "cpu", "data", "gpus", "memory", "node"];
        for word in always {
            assert!(labels(&printed).contains(word), "{word}: {printed}");
            assert!(labels(shown).contains(word), "{word}: {shown}");
        }
        let last = |text: &str, begin: &str| {
            let line = text.lines().find(|line| line.starts_with(begin));
            let line = line.unwrap_or_else(|| panic!("{begin}: {text}"));
            line.split(" run -- ").nth(1).map(str::to_owned)
        };
        for begin in [
            "Sluice is ready on this machine.",
            "Try it:",
            "Stop it: Ctrl-C",
        ] {
            assert_eq!(last(&printed, begin), last(shown, begin));
        }
        let node = |text: &str| {
            let line = text.lines().find(|line| line.starts_with("  node "));
            let word = line.and_then(|line| line.split_whitespace().nth(1));
            word.expect("a banner names its node").to_owned()
        };
        self.names = Some((node(&printed), node(shown)));
    }

    /// Stops it. The hooks of its steps have then removed what they made in `/tmp`.
    fn end(self) {
        let Some(dev) = self.dev else { return };
        let log = fs::read_to_string(dev.data().join("logs/coordinator.log")).unwrap();
        let id = log.split("cluster=").nth(1).unwrap();
        let cluster = id.split_whitespace().next().unwrap();
        let scratch = format!("scratch-{cluster}");
        dev.stop();
        let mut left = fs::read_dir("/tmp")
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let left = left.find(|name| name.to_string_lossy().starts_with(&scratch));
        assert_eq!(left, None);
    }
}

/// Whether a word is drawn at random: an id in hexadecimal digits, or a secret.
fn is_drawn(word: &str) -> bool {
    let is_id = word.len() >= 10 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id || word.starts_with("sluice-join-") || word.starts_with("sluice-api-")
}

/// The words of each line, without what changes from one run to the next: ages, times, and with them the widths of columns.
fn settled(text: &str, names: Option<&(String, String)>) -> Vec<String> {
    let settle = |word: &str| -> String {
        let ends = |c: char| c.is_ascii_punctuation();
        let bare = word.trim_matches(ends);
        let digits = bare.strip_suffix('s').unwrap_or_default();
        let is_age =
            (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_digits = |c: char| c.is_ascii_digit() || "-:.TZ".contains(c);
        let is_time = bare.contains(['-', ':']) && bare.len() >= 5 && bare.chars().all(is_digits);
        match names {
            _ if is_age => word.replace(bare, "AGE"),
            _ if is_time => word.replace(bare, "TIME"),
            _ if is_drawn(bare) => word.replace(bare, "DRAWN"),
            Some((real, shown)) if bare == real => word.replace(bare, shown),
            _ => word.to_owned(),
        }
    };
    let line = |line: &str| line.split_whitespace().map(settle).collect::<Vec<_>>();
    text.lines().map(|it| line(it).join(" ")).collect()
}

/// Runs a page; the number of commands on it.
fn run(name: &str) -> usize {
    let path = root().join(name);
    let text = fs::read_to_string(&path).unwrap();
    let write = std::env::var("SLUICE_PAGES").is_ok_and(|word| word == "write");
    let (mut trial, mut written, mut commands) = (None::<Trial>, String::new(), 0);
    for piece in pieces(&text) {
        match piece {
            Piece::Text(text) => written.push_str(&text),
            Piece::Trial(files) => {
                trial.take().into_iter().for_each(Trial::end);
                trial = Some(Trial::start(files));
            }
            Piece::Banner(shown) => trial.get_or_insert_default().compare_banner(&shown),
            Piece::File(file, content) => {
                let trial = trial.get_or_insert_default();
                fs::write(trial.folder.path().join(file), content).unwrap();
            }
            Piece::Command(command, shown) => {
                commands += 1;
                let trial = trial.get_or_insert_default();
                let printed = trial.printed(&command);
                let names = trial.names.as_ref();
                let same = settled(&printed, names) == settled(&shown, None);
                assert!(
                    same || write,
                    "{name} shows for `{command}`\n{shown}\nand this is printed (SLUICE_PAGES=write renews the page):\n{printed}"
                );
                let kept = if same { shown } else { printed };
                written.push_str(&format!("$ {command}\n{kept}"));
            }
        }
    }
    trial.into_iter().for_each(Trial::end);
    if write && written != text {
        fs::write(path, written).unwrap();
    }
    commands
}

#[test]
fn the_readme_shows_what_is_printed() {
    assert!(run("README.md") > 5);
}

#[test]
fn the_guide_shows_what_is_printed() {
    assert!(run("docs/guide.md") > 30);
}

#[test]
fn the_page_on_access_shows_what_is_printed() {
    assert!(run("docs/access.md") >= 3);
}

#[test]
fn the_example_of_suspending_shows_what_is_printed() {
    assert!(run("docs/suspend.md") > 5);
}

#[test]
fn the_pages_on_joining_and_operations_show_what_is_printed() {
    assert!(run("docs/join.md") >= 2);
    assert!(run("docs/operations.md") >= 3);
}

#[test]
fn the_page_on_resources_shows_what_is_printed() {
    assert!(run("docs/resources.md") >= 4);
}

#[test]
fn the_page_on_steps_shows_what_is_printed() {
    assert!(run("docs/steps.md") >= 5);
}

#[test]
fn the_examples_of_policies_show_what_is_printed() {
    assert!(run("docs/policies.md") > 30);
}

/// Every page, by its path from the root.
fn pages() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "README.md", "docs/*.md"])
        .current_dir(root())
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn every_page_with_commands_and_what_they_print_is_run() {
    let source = include_str!("pages.rs");
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let run =
            RUN_ELSEWHERE.contains(&page.as_str()) || source.contains(&format!("run(\"{page}\")"));
        assert!(
            run || !text.contains("```console"),
            "{page} is run by no test"
        );
    }
}

/// Returns the arguments of a command of ours with `--help` behind its flags, if a line is one.
fn asking_for_help(line: &str) -> Option<(&str, Vec<&str>)> {
    let line = line.trim_start();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let command = line.split(" #").next()?.trim_end_matches(['&', ' ']);
    let mut words = command.split_whitespace();
    let program = words
        .next()
        .filter(|it| *it == "sluice" || it.starts_with("sluice-"))?;
    let words = words.take_while(|it| *it != "--");
    Some((program, words.chain(["--help"]).collect()))
}

#[test]
fn commands_in_blocks_that_the_guest_runs_are_commands() {
    let mut checked = 0;
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        for block in text.split(" guest: ").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            for (program, words) in block.lines().skip(1).filter_map(asking_for_help) {
                let mut command = Command::new(binaries().join(program));
                let output = command.args(&words).stdin(Stdio::null()).output().unwrap();
                assert!(
                    output.status.success(),
                    "{page}: {program} {words:?}: {output:?}"
                );
                checked += 1;
            }
        }
    }
    assert!(checked >= 8, "the search is broken: {checked} commands");
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
