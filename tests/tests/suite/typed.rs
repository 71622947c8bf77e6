//! Steps as users type them: flags over a file, variables of the caller.

use std::fs;
use std::path::Path;

use sluice_tests::{Dev, run};

/// Writes a file into a folder of its own, which is not shared with the steps' hosts.
fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn output_of(dev: &Dev, id: &str) -> String {
    dev.step_in(id, &["succeeded", "failed"]);
    dev.ok(&["logs", id])
}

fn steps(dev: &Dev) -> usize {
    dev.ok(&["get", "steps", "-o", "name"]).lines().count()
}

#[test]
fn flags_and_a_command_override_the_step_of_a_file() {
    let dev = Dev::start();
    let folder = tempfile::tempdir().unwrap();
    let text = "kind: step\ncommand: [sh, -c, 'echo file $A $B']\nenv: {A: \"1\", B: \"2\"}\ntimeout: 1h\n";
    let step = file(folder.path(), "step.yaml", text);
    let ran = dev.sluice(&["run", "-f", &step, "-e", "B=3"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "file 1 3\n"),
        "{ran:?}"
    );
    let line = [
        "submit",
        "--id",
        "other",
        "-t",
        "2:00:00",
        "-f",
        &step,
        "--",
        "sh",
        "-c",
        "echo flag $A",
    ];
    dev.ok(&line);
    assert_eq!(output_of(&dev, "other"), "flag 1\n");
    let (_, view) = dev.call("GET", "/v1/steps/other", None);
    assert_eq!(view["timeout"], "2h", "{view}");
    dev.ok(&["submit", "--id", "bare", &step]);
    assert_eq!(output_of(&dev, "bare"), "file 1 2\n");
    let several = file(folder.path(), "two.yaml", &format!("{text}---\n{text}"));
    let before = steps(&dev);
    for line in [
        &["run", "-f", several.as_str()][..],
        &["submit", "-f", &several, "--id", "x"],
        &["submit", "-f", &several, "--", "true"],
        &["submit", &step, "--gpus", "1"],
        &["submit", "nonsense", "--flag"],
    ] {
        let ran = dev.sluice(line);
        assert_eq!(ran.code, 2, "{line:?}: {ran:?}");
    }
    assert_eq!(steps(&dev), before, "nothing was submitted");
}

#[test]
fn variables_of_the_caller_are_copied_when_asked() {
    let dev = Dev::start();
    let mut command = dev.command(&["run", "-e", "OWN", "--", "sh", "-c", "echo $OWN-$OTHER"]);
    let ran = run({
        command.env("OWN", "a b").env("OTHER", "x");
        command
    });
    assert_eq!(ran.stdout, "a b-\n", "{ran:?}");
    let script = "echo $OTHER-$OWN-${SLURM_JOB_ID-none}-$HOME";
    let mut command = dev.command(&["run", "--env-all", "-e", "OWN=1", "--", "sh", "-c", script]);
    let ran = run({
        let variables = [
            ("OWN", "0"),
            ("OTHER", "x"),
            ("SLURM_JOB_ID", "7"),
            ("HOME", "/nowhere"),
        ];
        command.envs(variables);
        command
    });
    assert!(ran.stdout.starts_with("x-1-none-/"), "{ran:?}");
    assert!(!ran.stdout.contains("nowhere"), "{ran:?}");
    let ran = dev.sluice(&["submit", "-e", "SLUICE_TYPED_UNSET", "--", "true"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(steps(&dev), 2);
}
