//! Files of steps' users that get output: what is in them is what `sluice logs` reads, for steps, arrays and gangs, and a
//! path that cannot be written is refused with its name.

use std::fs;
use std::path::Path;

use serde_json::json;
use sluice_tests::{Dev, DevOptions, eventually};

fn read(dev: &Dev, name: &str) -> String {
    fs::read_to_string(dev.folder().join(name)).unwrap_or_default()
}

/// Submits with flags and waits for the end.
fn submit(dev: &Dev, id: &str, flags: &[&str], command: &[&str]) {
    dev.ok(&[&["submit", "--id", id], flags, &["--"], command].concat());
    dev.ok(&["wait", id]);
}

#[test]
fn a_step_has_its_output_in_its_own_files_too() {
    let dev = Dev::start();
    let script = "seq 1000; echo bad >&2; exit $((2 - SLUICE_ATTEMPT))";
    let dir = dev.folder().to_str().unwrap();
    let flags = ["--workdir", dir, "--name", "my/step", "--retries", "1"];
    let files = ["--stdout", "%x-%j.out", "--stderr", "%x-%j.err"];
    submit(
        &dev,
        "own",
        &[&flags[..], &files].concat(),
        &["sh", "-c", script],
    );
    let out = read(&dev, "my_step-own.out");
    // The second attempt goes on in the file of the first.
    assert_eq!(
        out,
        dev.ok(&["logs", "own", "--attempt", "1"]) + &dev.ok(&["logs", "own"])
    );
    assert_eq!(read(&dev, "my_step-own.err"), "bad\nbad\n");
    let absolute = dev.folder().join("both");
    fs::write(&absolute, "old\n").unwrap();
    let both = absolute.to_str().unwrap();
    for (id, more, expected) in [
        ("appends", &["--append"][..], "old\nnew\n"),
        ("empties", &[], "new\n"),
    ] {
        let files = ["--stdout", both, "--stderr", both];
        submit(&dev, id, &[&files[..], more].concat(), &["echo", "new"]);
        assert_eq!(read(&dev, "both"), expected, "{id}");
    }
    let (_, step) = dev.call("GET", "/v1/steps/appends", None);
    assert_eq!(
        (&step["stdout"], &step["append"]),
        (&json!(both), &json!(true))
    );
}

#[test]
fn parts_and_ranks_write_files_of_their_own() {
    let dev = Dev::start();
    let dir = dev.folder().to_str().unwrap();
    let files = [
        "--workdir",
        dir,
        "--array",
        "1,7,10",
        "--cpus",
        "0.1",
        "--stdout",
        "%A_%3a",
    ];
    let print = "echo part $SLUICE_ARRAY_INDEX";
    submit(&dev, "a", &files, &["sh", "-c", print]);
    for (index, name) in [(1, "a_001"), (7, "a_007"), (10, "a_010")] {
        assert_eq!(read(&dev, name), format!("part {index}\n"));
    }
    let all = dev.ok(&["logs", "a"]);
    assert_eq!(all, "a.1: part 1\na.7: part 7\na.10: part 10\n");
    let two = dev.ok(&["logs", "a.10", "a.1"]);
    assert_eq!(two, "a.10: part 10\na.1: part 1\n");
    let followed = dev.ok(&["logs", "-f", "a"]);
    let mut lines: Vec<&str> = followed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a.10: part 10", "a.1: part 1", "a.7: part 7"]);
}

#[test]
fn a_path_that_cannot_be_written_is_named_with_the_reason() {
    let dev = Dev::start();
    let refused = |flags: &[&str]| {
        let command = [&["submit"], flags, &["--", "true"]].concat();
        dev.sluice(&command).stderr
    };
    for (flags, words) in [
        (
            &["--stdout", "%q"][..],
            "--stdout: `%q`: `%q` has no meaning: write %j (step)",
        ),
        (
            &["--stderr", "a", "--workdir", "none"],
            "--stderr: `a` is relative to the working directory",
        ),
        (
            &["--stdout", "/a", "--array", "1-2"],
            "add `%a` or `%j`, or append",
        ),
        (
            &["--stdout", "/a", "--nodes", "2"],
            "add `%t` or `%N`, or append",
        ),
        (&["--append"], "--append: there is no file to append to"),
    ] {
        let told = refused(flags);
        assert!(told.contains(words), "{flags:?}: {told}");
    }
    let missing = dev.folder().join("no/such.log");
    let path = missing.to_str().unwrap();
    dev.sluice(&["run", "--id", "lost", "--stdout", path, "--", "true"]);
    let step = dev.step_in("lost", &["failed"]);
    let why = step["reason"]["message"].as_str().unwrap();
    assert!(
        why.contains(path) && why.contains("its directory does not exist"),
        "{why}"
    );
    let fifo = dev.folder().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let path = fifo.to_str().unwrap();
    dev.sluice(&["run", "--id", "blocked", "--stdin", path, "--", "true"]);
    let step = dev.step_in("blocked", &["failed"]);
    let why = step["reason"]["message"].as_str().unwrap();
    assert!(why.contains(&format!("`{path}` is a pipe")), "{why}");
}

#[test]
fn nobody_writes_what_is_not_theirs() {
    if !sluice_tests::needs_root() {
        return;
    }
    let dev = Dev::with(DevOptions {
        ordinary_user: true,
        ..DevOptions::default()
    });
    let secret = Path::new("/etc/sluice-test-output");
    assert!(!secret.exists());
    dev.sluice(&[
        "run",
        "--id",
        "climbs",
        "--stdout",
        secret.to_str().unwrap(),
        "--",
        "true",
    ]);
    let step = dev.step_in("climbs", &["failed"]);
    let why = step["reason"]["message"].as_str().unwrap();
    assert!(
        why.contains("`/etc/sluice-test-output` for stdout may not be written by the step's user"),
        "{why}"
    );
    assert!(!secret.exists());
}

#[test]
fn a_log_that_is_awaited_says_why() {
    let dev = Dev::start();
    dev.ok(&[
        "submit",
        "--id",
        "first",
        "--",
        "sh",
        "-c",
        "while [ ! -e go ]; do sleep 0.1; done",
    ]);
    dev.ok(&[
        "submit", "--id", "second", "--after", "first", "--", "echo", "done",
    ]);
    let told = dev.folder().join("told");
    let mut logs = dev.command(&["logs", "-f", "second"]);
    let mut logs = logs
        .stderr(fs::File::create(&told).unwrap())
        .spawn()
        .unwrap();
    eventually("the reason", || {
        let said = fs::read_to_string(&told).unwrap();
        said.starts_with("second waits: it starts after `first`")
            .then_some(())
    });
    dev.ok(&["cancel", "first"]);
    logs.wait().unwrap();
}
