//! Steps as users type them: flags over a file, scripts with lines of flags, variables of the caller, contexts by name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_tests::{CommandOutput, Dev, run};

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
    let text = "#!/bin/bash\n#SBATCH --exclusive\n#SBATCH --constraint=ib -n 8\ntrue\n";
    let script = file(folder.path(), "site.sh", text);
    let ran = dev.sluice(&["submit", &script]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for words in [
        "line 2: --exclusive: ",
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

/// Runs a command of a user who has this folder for configuration.
fn of_user(config: &Path, line: &[&str]) -> CommandOutput {
    let mut command = Command::new(sluice());
    command
        .args(line)
        .env_remove("SLUICE_CONTEXT")
        .env("XDG_CONFIG_HOME", config);
    run(command)
}

#[test]
fn contexts_are_side_by_side_and_one_is_in_use() {
    let (first, second) = (Dev::start(), Dev::start());
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path();
    let user = |line: &[&str]| {
        let ran = of_user(config, line);
        assert_eq!(ran.code, 0, "{line:?}: {ran:?}");
        ran.stdout
    };
    for (name, dev) in [("default", &first), ("lab", &second)] {
        let token = file(config, "token", &dev.token());
        user(&["login", &dev.http, "--name", name, "--token-file", &token]);
    }
    first.ok(&["submit", "--id", "of-first", "--", "true"]);
    second.ok(&["submit", "--id", "of-second", "--", "true"]);
    assert_eq!(user(&["get", "steps", "-o", "name"]), "step/of-second\n");
    assert_eq!(
        user(&["--context", "default", "get", "steps", "-o", "name"]),
        "step/of-first\n"
    );
    user(&["context", "use", "default"]);
    assert_eq!(user(&["get", "steps", "-o", "name"]), "step/of-first\n");
    user(&["context", "rename", "lab", "prod"]);
    let listed: Value = serde_json::from_str(&user(&["context", "list", "-o", "json"])).unwrap();
    let listed = listed["items"].as_array().unwrap();
    let told: Vec<_> = listed
        .iter()
        .map(|it| {
            (
                it["name"].as_str().unwrap(),
                it["in_use"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [("default", true), ("prod", false)]);
    let shown = user(&["--context", "prod", "context", "show"]);
    assert!(
        shown.contains(&second.http) && !shown.contains(&second.token()),
        "{shown}"
    );
    user(&["--context", "prod", "logout"]);
    let gone = of_user(config, &["--context", "prod", "get", "steps"]);
    assert_eq!(gone.code, 1, "{gone:?}");
    assert!(
        gone.stderr
            .contains("there is no context `prod`: there are default"),
        "{gone:?}"
    );
    // A file that is there from before is the context `default`.
    let own = fs::read(config.join("sluice/context.json")).unwrap();
    let other = tempfile::tempdir().unwrap();
    fs::create_dir(other.path().join("sluice")).unwrap();
    fs::write(other.path().join("sluice/context.json"), own).unwrap();
    let ran = of_user(other.path(), &["get", "steps", "-o", "name"]);
    assert_eq!(ran.stdout, "step/of-first\n", "{ran:?}");
}

#[test]
fn a_login_says_which_file_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    for (line, words) in [
        (
            &["login", "https://127.0.0.1:9"][..],
            "--ca: an https address needs the file",
        ),
        (
            &["login", "http://127.0.0.1:9", "--ca", "gone.pem"],
            "--ca: cannot read gone.pem",
        ),
        (
            &["login", "http://127.0.0.1:9", "--name", "a/b"],
            "letters, digits",
        ),
    ] {
        let ran = of_user(folder.path(), line);
        assert_eq!(ran.code, 2, "{line:?}: {ran:?}");
        assert!(ran.stderr.contains(words), "{line:?}: {ran:?}");
    }
    assert!(
        !folder.path().join("sluice").exists(),
        "nothing was written"
    );
}

#[test]
fn a_coordinator_that_does_not_answer_is_named_with_what_to_check() {
    let folder = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let text = format!("{{\"http\": \"{address}\"}}");
    let context = file(folder.path(), "context.json", &text);
    let ran = of_user(folder.path(), &["--context", &context, "get", "pools"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let words = format!("cannot reach the coordinator at {address}: ");
    assert!(ran.stderr.contains(&words), "{ran:?}");
    assert!(ran.stderr.contains("`sluice doctor`"), "{ran:?}");
}

/// Returns what a shell is told for the last word of a command line.
fn completed(mut command: Command, words: &[&str]) -> Vec<String> {
    let last = words.len().to_string();
    let variables = [
        ("SLUICE_COMPLETE", "bash"),
        ("_CLAP_COMPLETE_INDEX", &last),
        ("_CLAP_IFS", "\n"),
    ];
    command.envs(variables).args(["--", "sluice"]).args(words);
    let ran = run(command);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn a_shell_completes_what_is_there_and_never_waits_for_a_dead_coordinator() {
    let dev = Dev::start();
    dev.ok(&["submit", "--id", "train-1", "--", "true"]);
    dev.ok(&["submit", "--id", "eval-1", "--", "true"]);
    let node = dev.ok(&["get", "nodes", "-o", "name"]);
    let node = node.trim().strip_prefix("node/").unwrap();
    let of_dev = |words: &[&str]| completed(dev.command(&[]), words);
    assert_eq!(of_dev(&["cancel", "tr"]), ["train-1"]);
    assert!(of_dev(&["drain", ""]).contains(&node.to_owned()));
    assert_eq!(of_dev(&["describe", "pool", "de"]), ["default"]);
    assert_eq!(of_dev(&["run", "--pool", "de"]), ["default"]);
    assert_eq!(of_dev(&["submi"]), ["submit"]);
    // Nobody answers there: the connection is made, and then there is silence.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{{\"http\": \"{}\"}}", silent.local_addr().unwrap());
    let context = file(folder.path(), "silent.json", &text);
    let mut command = Command::new(sluice());
    command.env("SLUICE_CONTEXT", context);
    let begun = Instant::now();
    assert_eq!(completed(command, &["cancel", "tr"]), Vec::<String>::new());
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn what_is_typed_as_elsewhere_is_told_by_its_name_here() {
    let folder = tempfile::tempdir().unwrap();
    for (line, words) in [
        (
            &["squeue"][..],
            "hint: Sluice's equivalent of `squeue`: sluice get steps",
        ),
        (&["create", "pool"], "`create pool`: sluice apply -f FILE"),
        (&["get", "agents"], "`get agents`: sluice get nodes"),
    ] {
        let ran = of_user(folder.path(), line);
        assert_eq!(ran.code, 2, "{line:?}: {ran:?}");
        assert!(
            ran.stderr.contains(words) && !ran.stderr.contains("tip:"),
            "{line:?}: {ran:?}"
        );
    }
}
