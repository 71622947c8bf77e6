//! Many steps at once from the command line: patterns, filters, names, questions, and waits.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex};

use nix::pty::{Winsize, openpty};
use serde_json::{Value, json};
use sluice_tests::{Dev, eventually};

/// A command on a terminal of its own.
struct OnTerminal {
    child: Child,
    keyboard: File,
    shown: Arc<Mutex<String>>,
}

impl OnTerminal {
    fn start(dev: &Dev, args: &[&str]) -> Self {
        let size = Winsize {
            ws_row: 24,
            ws_col: 120,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(Some(&size), None).unwrap();
        let mut command = dev.command(args);
        command.env("TERM", "xterm").env("NO_COLOR", "1");
        command.stdin(pty.slave.try_clone().unwrap());
        command.stdout(pty.slave.try_clone().unwrap());
        let child = command.stderr(pty.slave).spawn().unwrap();
        // The command holds the terminal's slave too: without it, reading ends with the child.
        drop(command);
        let mut screen = File::from(pty.master);
        let keyboard = screen.try_clone().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let text = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut chunk) {
                let mut text = text.lock().unwrap();
                text.push_str(&String::from_utf8_lossy(&chunk[..read]));
            }
        });
        Self {
            child,
            keyboard,
            shown,
        }
    }

    fn until_shown(&self, wanted: &str) {
        eventually(wanted, || self.text().contains(wanted).then_some(()));
    }

    fn text(&self) -> String {
        self.shown.lock().unwrap().replace("\r\n", "\n")
    }

    fn typed(&mut self, line: &str) {
        self.keyboard.write_all(line.as_bytes()).unwrap();
    }

    fn code(&mut self) -> Option<i32> {
        eventually("the command's end", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Closes the only node, so that what is submitted waits.
fn closed() -> (Dev, String) {
    let dev = Dev::start();
    let nodes = dev.ok(&["get", "nodes", "-o", "name"]);
    let node = nodes.trim().to_owned();
    dev.ok(&["cordon", &node]);
    (dev, node)
}

fn submit(dev: &Dev, steps: &[(&str, &str, &str)]) {
    let steps: Vec<Value> = steps
        .iter()
        .map(|(id, name, program)| {
            json!({ "id": id, "name": name, "command": [program], "labels": { "team": "vision" },
                "resources": { "cpu_count": 0.01 } })
        })
        .collect();
    let body = json!({ "steps": steps }).to_string();
    let (status, answer) = dev.call("POST", "/v1/steps:batch", Some(&body));
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn steps_are_changed_by_pattern_and_filter_and_a_script_says_yes() {
    let (dev, _) = closed();
    submit(
        &dev,
        &[
            ("a1", "train-1", "true"),
            ("a2", "train-2", "true"),
            ("b1", "eval", "true"),
        ],
    );
    let refused = dev.sluice(&["cancel", "train-*"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("add --yes"), "{}", refused.stderr);
    let listed = dev.ok(&["cancel", "train-*", "--dry-run"]);
    assert_eq!(listed, "a1 queued\na2 queued\n");
    let held = dev.ok(&["suspend", "-l", "team=vision", "--state", "queued", "-y"]);
    assert_eq!(
        held,
        "a1 queued (held)\na2 queued (held)\nb1 queued (held)\n"
    );
    assert_eq!(
        dev.ok(&["resume", "eval", "train-1"]),
        "b1 queued\na1 queued\n"
    );
    assert_eq!(
        dev.ok(&["resume", "--all", "--yes", "-o", "name"]),
        "step/a2\n"
    );
    let done: Value =
        serde_json::from_str(&dev.ok(&["cancel", "train-?", "--yes", "-o", "json"])).unwrap();
    assert_eq!(done["matched"], 2, "{done}");
    assert_eq!(done["steps"][1]["state"], "cancelled", "{done}");
    let nothing = dev.sluice(&["cancel", "train-*", "--yes"]);
    assert_eq!(
        (nothing.code, nothing.stdout.as_str()),
        (0, ""),
        "{}",
        nothing.stderr
    );
    assert!(
        nothing.stderr.contains("no step matches name=train-*"),
        "{}",
        nothing.stderr
    );
    dev.ok(&["submit", "--id", "m1", "--cpus", "0.1", "--", "true"]);
    assert_eq!(
        dev.ok(&["cancel", "--mine", "--yes", "-o", "name"]),
        "step/m1\n"
    );
    assert_eq!(
        dev.ok(&["get", "steps", "--state", "queued", "-o", "name"]),
        "step/b1\n"
    );
    dev.stop();
}

#[test]
fn steps_that_have_ended_are_deleted_and_others_are_kept() {
    let dev = Dev::start();
    dev.ok(&["submit", "--id", "lives", "--", "sleep", "1000"]);
    dev.ok(&["submit", "--id", "many", "--array", "0-2", "--", "true"]);
    for id in ["one", "two"] {
        dev.ok(&["submit", "--id", id, "--name", "short", "--", "false"]);
    }
    dev.sluice(&["wait", "one", "two", "many"]);
    let refused = |args: &[&str], why: &str| {
        let said = dev.sluice(args);
        assert_ne!(said.code, 0, "{args:?}");
        assert!(said.stderr.contains(why), "{args:?}: {}", said.stderr);
        said.stdout
    };
    // Ended steps are listed as soon as their resources were seen free.
    eventually("all that ended can be deleted", || {
        let listed = dev.ok(&["delete", "steps", "--all", "--dry-run"]);
        (listed == "many succeeded\none failed\ntwo failed\n").then_some(())
    });
    let gone = refused(
        &["delete", "step", "lives", "step/one"],
        "`sluice cancel lives` first",
    );
    assert_eq!(gone, "step/one deleted\n");
    refused(&["delete", "step", "many.1"], "`sluice delete step many`");
    refused(&["delete", "steps", "sh*"], "add --yes");
    let gone = dev.ok(&["delete", "steps", "--state", "failed,succeeded", "--yes"]);
    assert_eq!(gone, "step/many deleted\nstep/two deleted\n");
    let left = dev.ok(&["get", "steps", "--all", "--parts", "-o", "name"]);
    assert_eq!(left, "step/lives\n");
    refused(&["submit", "--id", "one", "--", "true"], "was deleted");
    refused(&["delete", "step", "lives", "--force"], "sluice cancel");
    refused(
        &["delete", "pool", "a", "--mine"],
        "filters and --yes are for steps",
    );
}

#[test]
fn a_terminal_is_asked_before_many_steps_change() {
    let (dev, _) = closed();
    submit(
        &dev,
        &[("a1", "train-1", "true"), ("a2", "train-2", "true")],
    );
    for (answer, code, state) in [
        ("n\n", 1, "queued"),
        ("\n", 1, "queued"),
        ("y\n", 0, "cancelled"),
    ] {
        let mut asked = OnTerminal::start(&dev, &["cancel", "train-*"]);
        asked.until_shown("Cancel 2 steps? [y/N] ");
        asked.typed(answer);
        assert_eq!(asked.code(), Some(code), "{}", asked.text());
        assert_eq!(
            dev.step_in("a1", &["queued", "cancelled"])["state"],
            state,
            "{answer:?}"
        );
    }
    submit(&dev, &[("c1", "lone", "true")]);
    let mut one = OnTerminal::start(&dev, &["cancel", "lo*"]);
    assert_eq!(one.code(), Some(0), "{}", one.text());
    assert!(!one.text().contains("[y/N]"), "{}", one.text());
    dev.stop();
}

#[test]
fn a_name_is_taken_for_an_id_if_only_one_live_step_has_it() {
    let (dev, node) = closed();
    submit(
        &dev,
        &[
            ("a1", "twice", "true"),
            ("a2", "twice", "true"),
            ("b1", "once, here", "echo"),
        ],
    );
    let name = "once, here";
    for command in [
        vec!["describe", "step", name],
        vec!["explain", name],
        vec!["get", "step", name],
    ] {
        assert!(dev.ok(&command).contains("b1"), "{command:?}");
    }
    for command in [
        vec!["cancel", "twice"],
        vec!["wait", "twice"],
        vec!["logs", "twice"],
    ] {
        let refused = dev.sluice(&command);
        assert_eq!(refused.code, 1, "{command:?}");
        let expected = "several live steps are called `twice`: a1, a2; write the id of one";
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    dev.ok(&["cancel", "a1"]);
    assert_eq!(dev.ok(&["cancel", "twice"]), "a2 cancelled\n");
    dev.ok(&["uncordon", &node]);
    assert_eq!(dev.ok(&["wait", name]), "b1 succeeded\n");
    // A step that has ended is found too, while no other has its name.
    assert_eq!(dev.ok(&["logs", name]), "\n");
    let refused = dev.sluice(&["describe", "step", "twice"]);
    assert!(
        refused.stderr.contains("several steps that have ended"),
        "{}",
        refused.stderr
    );
    assert!(dev.sluice(&["cancel", "nobody"]).stderr.contains("nobody"));
    dev.stop();
}

#[test]
fn a_wait_for_many_steps_shows_how_many_have_ended() {
    let (dev, node) = closed();
    let ids: Vec<String> = (0..40).map(|n| format!("w{n:02}")).collect();
    let steps: Vec<(&str, &str, &str)> = ids
        .iter()
        .map(|id| {
            (
                id.as_str(),
                "many",
                if id == "w07" { "false" } else { "true" },
            )
        })
        .collect();
    submit(&dev, &steps);
    let mut waits = OnTerminal::start(&dev, &["wait", "many*"]);
    waits.until_shown("0 of 40 ended");
    dev.ok(&["uncordon", &node]);
    assert_eq!(waits.code(), Some(0), "{}", waits.text());
    eventually("the last line", || {
        let text = waits.text();
        let ended = ids.iter().all(|id| text.contains(&format!("{id} ")));
        (ended && text.contains("w07 failed") && text.contains(" of 40 ended, 1 failed"))
            .then_some(())
    });
    let listed: Vec<&str> = std::iter::once("wait")
        .chain(ids.iter().map(String::as_str))
        .collect();
    let plain = dev.sluice(&listed);
    assert_eq!(
        (plain.code, plain.stdout.lines().count()),
        (0, 40),
        "{}",
        plain.stderr
    );
    assert_eq!(plain.stderr, "");
    let never = [&listed[..], &["--for", "succeeded"]].concat();
    let refused = dev.sluice(&never);
    assert_eq!(refused.code, 1);
    assert!(
        refused
            .stderr
            .contains("w07 is `failed` and can no longer reach"),
        "{}",
        refused.stderr
    );
    let none = dev.sluice(&["wait", "many*"]);
    assert_eq!(none.code, 0);
    assert!(
        none.stderr.contains("no step matches name=many*"),
        "{}",
        none.stderr
    );
    dev.stop();
}
