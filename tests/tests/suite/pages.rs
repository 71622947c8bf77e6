//! The pages of the documentation, run as a reader would: each trial that a page starts, each command in a block of
//! `console` or `sh`, each document and config. What a command of `console` prints must be what the page shows.
//! `SLUICE_PAGES=write` writes what is printed into the pages.

mod documents;
mod pieces;
mod secure;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pieces::{Piece, Start, pieces};
use sluice_tests::{Dev, DevOptions, binaries};
use trial::Trial;

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("a crate of a workspace").to_owned()
}

/// Whether a word is drawn at random: an id in hexadecimal digits, or a secret.
fn is_drawn(word: &str) -> bool {
    let is_id = word.len() >= 10 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id || is_secret(word)
}

fn is_secret(word: &str) -> bool {
    word.starts_with("sluice-join-") || word.starts_with("sluice-api-")
}

/// The words of each line, without what changes from one run to the next: ages, times, and with them the widths of columns.
fn settled(text: &str, names: Option<&(String, String)>) -> Vec<String> {
    let settle = |word: &str| -> String {
        let ends = |c: char| c.is_ascii_punctuation();
        // Base64 for URLs, as in secrets, ends with these too.
        let ends_word = |c: char| ends(c) && !"-_".contains(c);
        let bare = match word.trim_start_matches(ends).trim_end_matches(ends_word) {
            secret if is_secret(secret) => secret,
            _ => word.trim_matches(ends),
        };
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

/// Runs a page; the number of commands and blocks of commands on it.
fn run(name: &str) -> usize {
    run_in(name, None)
}

/// Runs a page in a trial that it does not start itself.
fn run_in(name: &str, start: Option<Start>) -> usize {
    let path = root().join(name);
    let text = fs::read_to_string(&path).unwrap();
    let write = std::env::var("SLUICE_PAGES").is_ok_and(|word| word == "write");
    let (mut trial, mut written, mut commands) = (start.map(Trial::start), String::new(), 0);
    for piece in pieces(&text) {
        match piece {
            Piece::Text(text) => written.push_str(&text),
            Piece::Trial(start) => {
                trial.take().into_iter().for_each(Trial::end);
                trial = Some(Trial::start(start));
            }
            Piece::Banner(shown) => trial.get_or_insert_default().compare_banner(&shown),
            Piece::File(file, content) => trial.get_or_insert_default().write(&file, &content),
            Piece::Script(script) => {
                commands += 1;
                trial.get_or_insert_default().run(name, &script);
            }
            Piece::Follow(lines) => {
                commands += 1;
                trial.get_or_insert_default().follow(&lines);
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
fn a_secret_is_settled_to_its_last_character() {
    let of = |text| settled(text, None);
    assert_eq!(
        of("token sluice-join-1.AFUb-e_"),
        of("token sluice-join-1.AFUb-eQ")
    );
    assert_eq!(of("`sluice-api-x_-`."), of("`sluice-api-xyz`."));
    assert_ne!(of("sluice-api-xyz"), of("(sluice-api-xyz)"));
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
fn the_page_on_containers_shows_what_is_printed() {
    assert!(run("docs/containers.md") >= 11);
}

#[test]
fn the_page_on_resources_shows_what_is_printed() {
    assert!(run("docs/resources.md") >= 4);
}

#[test]
fn the_page_on_dependencies_shows_what_is_printed() {
    assert!(run("docs/dependencies.md") >= 5);
}

#[test]
fn the_page_on_services_shows_what_is_printed() {
    assert!(run("docs/services.md") >= 8);
}

#[test]
fn the_page_on_the_gateway_shows_what_is_printed() {
    assert!(run("docs/gateway.md") >= 1);
}

#[test]
fn the_page_on_allocations_shows_what_is_printed() {
    assert!(run("docs/allocations.md") >= 7);
}

#[test]
fn the_page_on_arrays_shows_what_is_printed() {
    assert!(run("docs/arrays.md") >= 13);
}

#[test]
fn the_pages_for_users_of_slurm_and_hyperqueue_can_be_typed() {
    assert!(run("docs/coming-from-slurm.md") >= 5);
    assert!(run("docs/coming-from-hyperqueue.md") >= 4);
}

#[test]
fn the_page_for_users_of_kubernetes_can_be_typed() {
    assert!(run("docs/coming-from-kubernetes.md") >= 5);
}

#[test]
fn the_page_for_users_of_nomad_can_be_typed() {
    assert!(run("docs/coming-from-nomad.md") >= 5);
}

#[test]
fn the_page_for_users_of_gpuctl_can_be_typed() {
    assert!(run("docs/coming-from-gpuctl.md") >= 4);
}

#[test]
fn the_page_for_users_of_determined_can_be_typed() {
    assert!(run("docs/coming-from-determined.md") >= 4);
}

#[test]
fn the_page_for_users_of_zenml_can_be_typed() {
    assert!(run("docs/coming-from-zenml.md") >= 4);
}

#[test]
fn the_page_for_users_of_osmo_can_be_typed() {
    assert!(run("docs/coming-from-osmo.md") >= 3);
}

#[test]
fn the_page_on_steps_shows_what_is_printed() {
    assert!(run("docs/steps.md") >= 5);
}

#[test]
fn the_examples_of_policies_show_what_is_printed() {
    assert!(run("docs/policies.md") > 30);
}

#[test]
fn the_page_on_commands_can_be_typed() {
    assert!(run("docs/cli.md") > 10);
}

#[test]
fn the_pages_on_validation_and_templates_show_what_is_printed() {
    assert!(run("docs/validation.md") >= 4);
    assert!(run("docs/templates.md") >= 2);
}

/// The hosts that have joined when the page comes to its first pool.
#[test]
fn the_first_pool_of_an_installation_is_made_as_the_page_says() {
    let hosts = root().join("packaging/examples/commands.yaml");
    let start = Start {
        files: vec![hosts],
        ..Start::default()
    };
    assert!(run_in("docs/install.md", Some(start)) >= 3);
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
