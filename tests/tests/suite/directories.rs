//! Steps work in the caller's directory if their host lets them, else in a directory of their own, and then the caller is
//! told.

use std::fs;

use sluice_tests::{Dev, DevOptions};

/// A step that prefers a directory which no host has.
const ELSEWHERE: &str = "{kind: step, command: [sh, -c, pwd], prefer_workdir: /no/such/directory}";

#[test]
fn a_step_works_where_its_caller_stands_or_is_told_that_it_does_not() {
    let dev = Dev::start();
    let here = dev.folder().join("project");
    fs::create_dir(&here).unwrap();
    fs::write(here.join("train.sh"), "echo trained > model; echo done\n").unwrap();
    let standing = |args: &[&str]| {
        let mut command = dev.command(args);
        command.current_dir(&here);
        sluice_tests::run(command)
    };
    let ran = standing(&["run", "--id", "here", "--", "sh", "train.sh"]);
    assert_eq!((ran.code, &*ran.stdout, &*ran.stderr), (0, "done\n", ""));
    assert_eq!(fs::read_to_string(here.join("model")).unwrap(), "trained\n");
    let ran = standing(&["run", "--workdir", "none", "--", "sh", "train.sh"]);
    assert_ne!(ran.code, 0);
    assert!(!ran.stderr.contains("directory of its own"), "{ran:?}");
    let ran = standing(&["run", "--workdir", "no/such", "--", "sh", "train.sh"]);
    assert!(ran.stderr.contains("no/such` does not exist"), "{ran:?}");

    fs::write(here.join("elsewhere.yaml"), ELSEWHERE).unwrap();
    let ran = standing(&["run", "--id", "away", "-f", "elsewhere.yaml"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.ends_with("/work\n"), "{ran:?}");
    let words = "away runs in an empty directory of its own on ";
    assert_eq!(ran.stderr.matches(words).count(), 1, "{ran:?}");
    assert!(
        ran.stderr
            .contains(": /no/such/directory does not exist there ("),
        "{ran:?}"
    );
    let text = dev.ok(&["describe", "step", "away"]);
    let words = "the attempt's own: the preferred one does not exist there";
    assert!(text.contains(words), "{text}");
    let text = dev.ok(&["explain", "away"]);
    let words = "in a directory of its own: the preferred one does not exist there";
    assert!(text.contains(words), "{text}");
    let ran = standing(&["run", "-f", "elsewhere.yaml", "--", "./train.sh"]);
    assert!(
        ran.stderr
            .contains("because `/no/such/directory` does not exist there"),
        "{ran:?}"
    );
}

#[test]
fn a_template_that_uses_the_directory_keeps_the_caller_s_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    let cluster = "{kind: template, name: shown, env: {AT: \"{{workdir}}\"}}\n---\n\
                   {kind: pool, name: shown, templates: [shown]}\n---\n\
                   {kind: policy, pool: shown, subject: s}\n---\n\
                   {kind: host, name: h1, pool: shown}\n";
    fs::write(&file, cluster).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    });
    let script = "test \"$AT\" = \"$PWD\" && pwd";
    let ran = dev.sluice(&[
        "run",
        "--id",
        "in",
        "--subject",
        "s",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert!(ran.stdout.ends_with("/work\n"), "{ran:?}");
    let words = "the pool's template shows steps their directory";
    assert_eq!(ran.stderr.matches(words).count(), 1, "{ran:?}");
}
