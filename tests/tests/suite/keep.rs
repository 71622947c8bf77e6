//! Files that are kept of steps which have ended: which, of which ends, on whose behalf, and daemons that are killed
//! meanwhile.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_tests::{CommandOutput, Daemon, Dev, eventually};

/// Makes files and directories of every kind.
const MAKES: &str = "mkdir -p out/deep/er out/empty logs .hid && echo a > out/a.pt && echo b > out/deep/er/b.pt \
    && echo h > out/.h && echo c > logs/c.log && echo n > n.txt && echo x > .hid/x.pt && ln -s /etc/shadow out/shadow \
    && ln -s a.pt out/link && echo made";

fn cp(dev: &Dev, from: &str, to: &Path) -> CommandOutput {
    dev.sluice(&["cp", from, to.to_str().unwrap()])
}

fn copied(dev: &Dev, from: &str, to: &Path) -> CommandOutput {
    let copy = cp(dev, from, to);
    assert_eq!(copy.code, 0, "{copy:?}");
    copy
}

/// Paths of all files and directories below a directory, sorted.
fn listing(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let below = path.strip_prefix(root).unwrap();
            found.push(below.display().to_string());
            if path.is_dir() && !path.is_symlink() {
                left.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Directory of an attempt.
fn attempt_dir(dev: &Dev, attempt: &str) -> PathBuf {
    attempt_dir_now(dev, attempt).unwrap()
}

#[test]
fn what_matches_is_kept_after_the_end_and_nothing_else() {
    let dev = Dev::start();
    let here = tempfile::tempdir().unwrap();
    let to = |name: &str| here.path().join(name);
    let run = dev.ok(&[
        "run", "--id", "a", "--keep", "out", "--keep", "**/*.log", "--", "sh", "-c", MAKES,
    ]);
    assert_eq!(run, "made\n");
    let all = copied(&dev, "a:", &to("all"));
    // A link that leads out of the directory arrives nowhere, and nobody has followed it.
    assert!(all.stderr.contains("the link leads out"), "{all:?}");
    assert_eq!(
        listing(&to("all")),
        [
            "logs",
            "logs/c.log",
            "out",
            "out/.h",
            "out/a.pt",
            "out/deep",
            "out/deep/er",
            "out/deep/er/b.pt",
            "out/empty",
            "out/link"
        ]
    );
    copied(&dev, "a:out/deep", &to("deep"));
    assert_eq!(listing(&to("deep")), ["er", "er/b.pt"]);
    copied(&dev, "a:./logs/c.log", &to("c.log"));
    assert_eq!(fs::read_to_string(to("c.log")).unwrap(), "c\n");
    for (path, words) in [
        ("n.txt", "is not among the files that were kept"),
        ("../a", "without `..`"),
        ("/etc/hostname", "only files of that are kept"),
        ("out/link", "is a link to `a.pt`"),
    ] {
        let refused = cp(&dev, &format!("a:{path}"), &to("refused"));
        assert!(
            refused.code != 0 && refused.stderr.contains(words),
            "{refused:?}"
        );
    }
    let up = dev.sluice(&["cp", to("c.log").to_str().unwrap(), "a:c.log"]);
    assert!(up.stderr.contains("nothing can be copied to it"), "{up:?}");
    let exec = dev.sluice(&["exec", "a", "--", "true"]);
    assert!(
        exec.code != 0 && exec.stderr.contains("is succeeded"),
        "{exec:?}"
    );
    let shown = eventually("its host says what it has kept", || {
        let shown = dev.ok(&["describe", "step", "a"]);
        shown.contains("Kept:").then_some(shown)
    });
    assert!(shown.contains("out, **/*.log"), "{shown}");
    // Two links, and four files of one letter and a line feed.
    assert!(shown.contains("Kept:       6 files, 8B\n"), "{shown}");
    // It lives as long as the output does.
    fs::remove_dir_all(attempt_dir(&dev, "a.1")).unwrap();
    let gone = cp(&dev, "a:", &to("gone"));
    assert!(gone.stderr.contains("no files of it are kept"), "{gone:?}");
}

#[test]
fn steps_keep_files_however_they_end_and_those_without_patterns_say_so() {
    let dev = Dev::start();
    let here = tempfile::tempdir().unwrap();
    let to = |name: &str| here.path().join(name);
    let keep = ["submit", "--keep", "*.txt", "--id"];
    let fails = ["f", "--", "sh", "-c", "echo f > f.txt; exit 3"];
    dev.ok(&[&keep[..], &fails].concat());
    dev.step_in("f", &["failed"]);
    copied(&dev, "f:f.txt", &to("f.txt"));
    let timed = ["t", "--timeout", "1s", "--grace", "1s", "--"];
    let sleeps = ["sh", "-c", "echo t > t.txt; exec sleep 1000"];
    dev.ok(&[&keep[..], &timed, &sleeps].concat());
    dev.step_in("t", &["failed"]);
    copied(&dev, "t:t.txt", &to("t.txt"));
    let array = ["p", "--array", "0-1", "--"];
    let writes = ["sh", "-c", "echo part $SLUICE_ARRAY_INDEX > p.txt"];
    dev.ok(&[&keep[..], &array, &writes].concat());
    dev.step_in("p", &["succeeded"]);
    copied(&dev, "p.1:p.txt", &to("p.txt"));
    assert_eq!(fs::read_to_string(to("p.txt")).unwrap(), "part 1\n");
    for whole in [&["cp", "p:p.txt", "."][..], &["exec", "p", "--", "true"]] {
        let refused = dev.sluice(whole);
        assert!(
            refused.code != 0 && refused.stderr.contains("such as `p.0`"),
            "{refused:?}"
        );
    }
    let without = ["submit", "--id", "n", "--", "true"];
    dev.ok(&without);
    dev.step_in("n", &["succeeded"]);
    let refused = cp(&dev, "n:", &to("n"));
    assert!(refused.stderr.contains("submit --keep"), "{refused:?}");
    let both = ["submit", "--keep", "a", "--workdir", "/tmp", "--", "true"];
    let refused = dev.sluice(&both);
    assert!(refused.stderr.contains("files stay anyway"), "{refused:?}");
    let out = dev.sluice(&["submit", "--keep", "../a", "--", "true"]);
    assert!(out.stderr.contains("contains `..`"), "{out:?}");
}

#[test]
fn of_too_much_what_fits_is_kept_and_the_rest_is_named() {
    let dev = Dev::start();
    let here = tempfile::tempdir().unwrap();
    let to = |name: &str| here.path().join(name);
    let script = "echo s > small; truncate -s 2G large; echo t > z";
    dev.ok(&["run", "--id", "l", "--keep", ".", "--", "sh", "-c", script]);
    let all = cp(&dev, "l:", &to("all"));
    assert!(
        all.stderr.contains("does not fit into what its host keeps"),
        "{all:?}"
    );
    assert_eq!(listing(&to("all")), ["small", "z"]);
    let large = cp(&dev, "l:large", &to("large"));
    assert!(large.stderr.contains("2147483648 bytes"), "{large:?}");
    eventually("the step tells the first and counts", || {
        let shown = dev.ok(&["describe", "step", "l"]);
        let told = "2 files, 4B; 1 left out: `large` was not kept: with 2147483648 bytes";
        shown.contains(told).then_some(())
    });
    eventually("the output names it", || {
        let said = dev.ok(&["logs", "l", "--stderr"]);
        said.contains("sluice: `large` was not kept").then_some(())
    });
}

#[test]
fn whichever_daemon_is_killed_meanwhile_the_files_are_whole() {
    let dev = Dev::start();
    let here = tempfile::tempdir().unwrap();
    for daemon in [Daemon::Supervisor, Daemon::Agent] {
        let id = format!("{daemon:?}").to_lowercase();
        let script = "head -c 300000000 /dev/urandom > large; sha256sum large";
        dev.ok(&[
            "submit", "--id", &id, "--keep", "large", "--", "sh", "-c", script,
        ]);
        let part = eventually("files are being kept", || {
            let dir = attempt_dir_now(&dev, &format!("{id}.1"))?;
            let names = ["kept.part", "kept"].map(|name| dir.join(name));
            names.into_iter().find(|path| path.exists())
        });
        dev.kill(daemon);
        dev.step_in(&id, &["succeeded"]);
        let to = here.path().join(&id);
        eventually("its host is back", || {
            let copy = cp(&dev, &format!("{id}:large"), &to);
            (copy.code == 0).then_some(())
        });
        let sum = std::process::Command::new("sha256sum")
            .arg(&to)
            .output()
            .unwrap();
        let sum = String::from_utf8(sum.stdout).unwrap();
        let expected = dev.ok(&["logs", &id]);
        assert_eq!(
            sum.split(' ').next(),
            expected.split(' ').next(),
            "{part:?}"
        );
        let left = attempt_dir(&dev, &format!("{id}.1")).join("kept.part");
        assert!(!left.exists());
    }
}

fn attempt_dir_now(dev: &Dev, attempt: &str) -> Option<PathBuf> {
    let mut left = vec![dev.data().to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.ends_with(format!("attempts/{attempt}")) {
                return Some(path);
            }
            if path.is_dir() && !path.is_symlink() {
                left.push(path);
            }
        }
    }
    None
}
