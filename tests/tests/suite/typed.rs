//! Steps as users type them: flags over a file, scripts with lines of flags, variables of the caller.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
fn a_script_runs_as_it_was_submitted_where_its_file_is_not() {
    let dev = Dev::start();
    let folder = tempfile::tempdir().unwrap();
    let text = "#!/bin/sh -e\n#SBATCH --job-name=slurm --time=10 --mail-type=END\n#SLUICE --timeout 20m -e GREETING='good day'\n\n\
                echo \"$GREETING, $(basename \"$0\"): $# of $1\"\nuntil [ -e \"$2\" ]; do sleep 0.02; done\nexit 3\n";
    let script = file(folder.path(), "train.sh", text);
    let go = folder.path().join("go");
    let submitted = dev.sluice(&[
        "submit",
        "--id",
        "sent",
        "-w",
        "none",
        &script,
        "a b",
        go.to_str().unwrap(),
    ]);
    assert_eq!(submitted.code, 0, "{submitted:?}");
    assert!(
        submitted.stderr.contains("--mail-type (line 2)"),
        "{submitted:?}"
    );
    fs::write(&script, "#!/bin/sh\necho changed\n").unwrap();
    dev.step_in("sent", &["running"]);
    dev.ok(&["requeue", "sent"]);
    fs::write(go, "").unwrap();
    assert_eq!(output_of(&dev, "sent"), "good day, train.sh: 2 of a b\n");
    let (_, view) = dev.call("GET", "/v1/steps/sent", None);
    assert_eq!(
        (&view["name"], &view["timeout"]),
        (&"slurm".into(), &"20m".into()),
        "{view}"
    );
    assert_eq!(view["exit"]["code"], 3);
    let piped = format!(
        "printf '#!/bin/cat\\nits text\\n' | '{}' submit -f - --id piped",
        sluice().display()
    );
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &piped])
        .env("SLUICE_CONTEXT", &dev.context);
    let piped = run(shell);
    assert_eq!(piped.code, 0, "{piped:?}");
    assert_eq!(output_of(&dev, "piped"), "#!/bin/cat\nits text\n");
}

#[test]
fn a_script_for_what_is_not_here_is_refused_with_every_option() {
    let dev = Dev::start();
    let folder = tempfile::tempdir().unwrap();
    let text = "#!/bin/bash\n#SBATCH --array=0-9\n#SBATCH --constraint=ib -n 8\ntrue\n";
    let script = file(folder.path(), "site.sh", text);
    let ran = dev.sluice(&["submit", &script]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for words in [
        "line 2: --array: ",
        "line 3: --constraint: ",
        "--ntasks: 8 on 1 hosts",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
    assert_eq!(steps(&dev), 0);
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

fn sluice() -> PathBuf {
    sluice_tests::binaries().join("sluice")
}
