//! `tests/golden/help.txt`: what each program and each of its commands prints for `--help`, in one place for a
//! reviewer. `SLUICE_RENEW_GOLDEN=1` writes the file.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use sluice_tests::binaries;

const PROGRAMS: [&str; 5] = [
    "sluice",
    "sluice-coordinator",
    "sluice-agent",
    "sluice-supervisor",
    "sluice-helper",
];

/// The supervisor's own command, which its help describes without a list of commands.
const KEEP: [&str; 2] = ["sluice-supervisor", "keep"];

fn help_of(words: &[String]) -> String {
    let mut command = Command::new(binaries().join(&words[0]));
    let variables = env::vars_os().map(|(name, _)| name);
    for name in variables.filter(|name| name.to_string_lossy().starts_with("SLUICE_")) {
        command.env_remove(name);
    }
    command
        .args(&words[1..])
        .arg("--help")
        .env("COLUMNS", "100");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the names below `Commands:`.
fn commands_in(help: &str) -> Vec<String> {
    let below = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = below.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| !line.starts_with(' '));
    let names = names.filter_map(|line| line.split(' ').next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Writes the help of a command, then that of its own commands. A paragraph that many commands have, such as an option
/// of all of them, is written once.
fn write_help(page: &mut String, words: &[String]) {
    let help = help_of(words);
    let trimmed: Vec<&str> = help.lines().map(str::trim_end).collect();
    let trimmed = trimmed.join("\n");
    let known = page.clone();
    let paragraphs = trimmed.split("\n\n");
    let paragraphs = paragraphs.filter(|it| !known.contains(&format!("\n\n{it}\n\n")));
    let paragraphs: Vec<&str> = paragraphs.collect();
    write!(
        page,
        "\n## {}\n\n{}\n\n",
        words.join(" "),
        paragraphs.join("\n\n")
    )
    .unwrap();
    for name in commands_in(&help) {
        write_help(page, &[words, &[name]].concat());
    }
}

#[test]
fn the_help_of_every_command_is_in_a_list() {
    let mut page = String::from("# What each command prints for --help\n");
    for program in PROGRAMS {
        write_help(&mut page, &[program.to_owned()]);
        if program == KEEP[0] {
            write_help(&mut page, &KEEP.map(str::to_owned));
        }
    }
    assert!(page.matches("\n## ").count() > 40, "the walk is broken");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/help.txt");
    if env::var_os("SLUICE_RENEW_GOLDEN").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let mut lines = golden.lines().zip(page.lines());
    assert!(
        golden == page,
        "help.txt is not what the programs print, first here: {:#?}\nread the new help, then renew the list:\n\
         SLUICE_RENEW_GOLDEN=1 cargo test -p sluice-tests --test suite help",
        lines.find(|(old, new)| old != new)
    );
}
