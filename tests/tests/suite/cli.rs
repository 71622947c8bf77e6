//! The command line against a live cluster: formats, filters, watching.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{Dev, eventually};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A running command, with its lines of output and errors as they come.
pub(crate) struct RunningCommand {
    child: Child,
    lines: Receiver<String>,
}

impl RunningCommand {
    fn start(dev: &Dev, args: &[&str]) -> Self {
        Self::of(dev.command(args))
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, lines) = channel();
        let pipes: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().unwrap()),
            Box::new(child.stderr.take().unwrap()),
        ];
        for pipe in pipes {
            let send = send.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Self { child, lines }
    }

    /// Sends a signal, if given, and waits for the exit code.
    pub(crate) fn end(mut self, signal: Option<Signal>) -> Option<i32> {
        if let Some(signal) = signal {
            sluice_tests::kill(self.child.id(), signal);
        }
        let ended = || self.child.try_wait().unwrap();
        eventually("the command's end", ended).code()
    }

    /// Returns the first line that is no head of a table, while `knock` makes something happen now and then.
    pub(crate) fn knocked(&self, mut knock: impl FnMut()) -> String {
        let is_head = |line: &str| line.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
        eventually("the first line", || {
            knock();
            let mut lines = std::iter::from_fn(|| {
                let patience = Duration::from_millis(100);
                self.lines.recv_timeout(patience).ok()
            });
            lines.find(|line| !is_head(line))
        })
    }

    /// Returns lines up to the first that `wanted` accepts.
    pub(crate) fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut seen = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            seen.push(line.unwrap_or_else(|_| panic!("no {what} in {seen:#?}")));
            if wanted(seen.last().unwrap()) {
                return seen;
            }
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_reading_command_takes_every_format() {
    let dev = Dev::start();
    let submitted = json(&dev.ok(&["submit", "--id", "one", "-o", "json", "--", "true"]));
    assert_eq!(submitted["id"], "one");
    dev.step_in("one", &["succeeded"]);
    let node = json(&dev.ok(&["get", "nodes", "-o", "json"]))["items"][0]["name"].clone();
    let node = node.as_str().unwrap();
    for (kind, name) in [("step", "one"), ("node", node), ("pool", "default")] {
        let single = json(&dev.ok(&["get", kind, name, "-o", "json"]));
        let described = json(&dev.ok(&["describe", kind, name, "-o", "json"]));
        let yaml = dev.ok(&["describe", kind, name, "-o", "yaml"]);
        let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
        let key = if kind == "step" { "id" } else { "name" };
        for value in [&single, &described, &yaml] {
            assert_eq!(value[key], name, "{value}");
        }
        let full = format!("{kind}/{name}");
        assert_eq!(dev.ok(&["get", kind, "-o", "name"]).trim(), full);
        let by_full_name = json(&dev.ok(&["get", kind, &full, "-o", "json"]));
        assert_eq!(by_full_name[key], name);
        let short = dev.ok(&["get", &kind[..2], "-o", "yaml"]);
        let list: Value = serde_saphyr::from_str(&short).unwrap();
        assert_eq!(list["items"][0][key], name);
        let (table, wide) = (dev.ok(&["get", kind]), dev.ok(&["get", kind, "-o", "wide"]));
        let first = |text: &str| text.lines().next().unwrap().len();
        assert!(first(&wide) > first(&table), "{wide}");
    }
    let events = json(&dev.ok(&["get", "events", "-o", "json"]));
    assert!(events["items"].as_array().unwrap().len() > 3);
    let last = dev.ok(&["get", "events", "--limit", "1", "-o", "name"]);
    assert!(
        last.starts_with("event/") && last.lines().count() == 1,
        "{last}"
    );
    let waited: Value =
        serde_saphyr::from_str(&dev.ok(&["wait", "step/one", "-o", "yaml"])).unwrap();
    assert_eq!(waited["items"][0]["state"], "succeeded");
    assert_eq!(dev.ok(&["cancel", "step/one", "-o", "name"]), "step/one\n");
    assert_eq!(dev.ok(&["wait", "one"]), "one succeeded\n");
}

#[test]
fn filters_take_what_they_name_and_refuse_what_there_is_not() {
    let dev = Dev::start();
    for (id, name) in [("f1", "train"), ("f2", "train"), ("f3", "test")] {
        dev.ok(&["submit", "--id", id, "--name", name, "--", "true"]);
        dev.step_in(id, &["succeeded"]);
    }
    let names = |args: &[&str]| {
        let mut line = vec!["get", "steps", "-o", "name"];
        line.extend(args);
        dev.ok(&line).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["step/f1", "step/f2", "step/f3"]);
    assert_eq!(names(&["--name", "train"]), ["step/f1", "step/f2"]);
    assert_eq!(names(&["--limit", "2"]), ["step/f2", "step/f3"]);
    assert_eq!(names(&["--state", "running,queued"]), Vec::<String>::new());
    assert_eq!(
        names(&["--pool", "default", "--state", "succeeded"]).len(),
        3
    );
    assert_eq!(names(&["--subject", "nobody"]), Vec::<String>::new());
    for (args, code, words) in [
        (
            &["get", "steps", "--state", "runing"][..],
            2,
            "did you mean `running`?",
        ),
        (
            &["get", "steps", "--pool", "defalt"],
            1,
            "did you mean `default`?",
        ),
        (&["get", "nodes", "-l", "a==b=c"], 2, "`=` stands where"),
        (&["get", "nodes", "-l", "=x"], 2, "`key!=value`"),
        (&["get", "pods"], 2, "possible values"),
        (&["get", "step"], 0, ""),
        (&["descibe", "step", "x"], 2, "describe"),
        (&["logs", "f1", "-o", "json"], 2, "leave it out"),
    ] {
        let ran = dev.sluice(args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(words), "{args:?}: {ran:?}");
    }
}

#[test]
fn watching_shows_the_life_of_a_step_and_survives_the_coordinator() {
    let dev = Dev::start();
    let going = RunningCommand::start(&dev, &["get", "steps", "-w"]);
    going.until("header", |line| line.starts_with("ID "));
    dev.ok(&["submit", "--id", "life", "--", "sh", "-c", "exit 3"]);
    let life = going.until("end", |line| line.contains(" failed "));
    assert!(
        life.iter().all(|line| line.starts_with("life")),
        "{life:#?}"
    );
    dev.kill(sluice_tests::Daemon::Coordinator);
    dev.ok(&["submit", "--id", "later", "--", "true"]);
    let later = going.until("a later step", |line| line.starts_with("later"));
    assert_eq!(
        later.len(),
        1,
        "what did not change is not said again: {later:#?}"
    );
    assert_eq!(going.end(Some(Signal::SIGINT)), None, "the signal ends it");
    let going = RunningCommand::start(&dev, &["get", "steps", "life", "-w", "-o", "json"]);
    let first = going.until("line", |_| true);
    assert_eq!(json(&first[0])["state"], "failed");
}

#[test]
fn a_watched_filter_shows_what_leaves_it_once_more() {
    let dev = Dev::start();
    let going = RunningCommand::start(&dev, &["get", "steps", "--state", "running", "-w"]);
    going.until("header", |line| line.starts_with("ID "));
    let script = "until [ -e go ]; do sleep 0.02; done";
    dev.ok(&["submit", "--id", "leaves", "--", "sh", "-c", script]);
    let came = going.until("row", |line| line.starts_with("leaves"));
    assert!(came.last().unwrap().contains(" running "), "{came:#?}");
    std::fs::write(dev.folder().join("go"), "").unwrap();
    going.until("last row", |line| {
        line.starts_with("leaves") && line.contains(" succeeded ")
    });
    dev.ok(&["submit", "--id", "later", "--", "sleep", "1000"]);
    let later = going.until("another", |line| line.starts_with("later"));
    assert_eq!(
        later.len(),
        1,
        "what has left is not shown again: {later:#?}"
    );
}

#[test]
fn watching_nodes_shows_what_is_used_of_them() {
    let dev = Dev::start();
    let going = RunningCommand::start(&dev, &["get", "nodes", "-w", "-o", "json"]);
    let steps = |line: &str| json(line)["steps"].as_array().unwrap().len();
    going.until("empty node", |line| steps(line) == 0);
    dev.ok(&["submit", "--id", "use", "--", "sleep", "1000"]);
    going.until("used node", |line| steps(line) == 1);
    dev.ok(&["cancel", "use"]);
    going.until("empty node again", |line| steps(line) == 0);
    let closed = eventually("a step that is over", || {
        let (_, step) = dev.call("GET", "/v1/steps/use", None);
        (step["state"] == "cancelled").then_some(step)
    });
    assert_eq!(closed["id"], "use");
}

#[test]
fn events_from_now_on_are_those_that_happen_later_also_over_a_lost_coordinator() {
    let dev = Dev::start();
    let last = json(&dev.ok(&["get", "events", "--limit", "1", "-o", "json"]));
    let last = last["items"][0]["seq"].as_u64().unwrap();
    let none = json(&dev.ok(&["get", "events", "--since", "now", "-o", "json"]));
    assert_eq!(none["items"], serde_json::json!([]));
    let refused = dev.sluice(&["get", "events", "--since", "noww"]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.stderr.contains("the number of one, or `now`"),
        "{}",
        refused.stderr
    );
    let going = RunningCommand::start(
        &dev,
        &["get", "events", "--since", "now", "-w", "-o", "json"],
    );
    // Once it listens, one of these is seen.
    let mut knocks = 0_u64..;
    let first = going.knocked(|| {
        let id = format!("knock-{}", knocks.next().unwrap());
        dev.ok(&["submit", "--id", &id, "--", "true"]);
    });
    assert!(json(&first)["seq"].as_u64().unwrap() > last, "{first}");
    dev.kill(sluice_tests::Daemon::Coordinator);
    dev.ok(&["submit", "--id", "later", "--", "true"]);
    let heard = going.until("a later step", |line| {
        line.starts_with('{') && json(line)["type"] == "step_queued" && line.contains("later")
    });
    let events = heard.iter().filter(|line| line.starts_with('{'));
    let numbers: Vec<u64> = std::iter::once(&first)
        .chain(events)
        .map(|line| json(line)["seq"].as_u64().unwrap())
        .collect();
    let all = numbers.windows(2).all(|pair| pair[1] == pair[0] + 1);
    assert!(all, "each once, and none is missed: {numbers:?}");
}

#[test]
fn attaching_looks_on_and_leaves_the_step_alone() {
    let dev = Dev::start();
    let script = "seq 1 20; until [ -e go ]; do sleep 0.02; done; echo on; exit 3";
    dev.ok(&["submit", "--id", "seen", "--", "sh", "-c", script]);
    dev.step_in("seen", &["running"]);
    eventually("its output", || {
        dev.ok(&["logs", "seen"]).contains("20").then_some(())
    });
    let guest = RunningCommand::start(&dev, &["attach", "seen", "--tail", "2"]);
    let shown = guest.until("last line", |line| line == "20");
    assert_eq!(shown, ["19", "20"]);
    assert_eq!(
        guest.end(Some(Signal::SIGINT)),
        Some(0),
        "detaching is no failure"
    );
    let guest = RunningCommand::start(&dev, &["attach", "step/seen"]);
    guest.until("last line", |line| line == "20");
    let (_, step) = dev.call("GET", "/v1/steps/seen", None);
    assert_eq!(step["state"], "running", "the first guest left it alone");
    std::fs::write(dev.folder().join("go"), "").unwrap();
    guest.until("more output", |line| line == "on");
    assert_eq!(guest.end(None), Some(3), "its own exit code");
    let late = dev.sluice(&["attach", "seen"]);
    assert_eq!(late.code, 125);
    assert!(late.stderr.contains("sluice logs seen"), "{late:?}");
}

#[test]
fn a_run_that_waits_says_why_and_a_guest_hears_of_changes() {
    let dev = Dev::start();
    let cores = json(&dev.ok(&["get", "nodes", "-o", "json"]))["items"][0]["capacity"]["cpu"]
        .as_u64()
        .unwrap();
    let cpus = cores.to_string();
    dev.ok(&[
        "submit", "--id", "first", "--cpus", &cpus, "--", "sleep", "1000",
    ]);
    dev.step_in("first", &["running"]);
    let script = "echo done; until [ -e go ]; do sleep 0.02; done";
    let second = [
        "run", "--id", "second", "--cpus", &cpus, "--", "sh", "-c", script,
    ];
    let waiting = RunningCommand::start(&dev, &second);
    waiting.until("reason", |line| line.starts_with("second waits: "));
    let guest = RunningCommand::start(&dev, &["attach", "second"]);
    guest.until("reason", |line| line.starts_with("second waits: "));
    dev.ok(&["cancel", "first"]);
    waiting.until("output", |line| line == "done");
    // Output and errors are two pipes, so their order is undefined.
    let (change, output) = ("second is running now", "done");
    let first = guest.until("change or output", |line| line == change || line == output);
    let other = if first.last().is_some_and(|line| line == change) {
        output
    } else {
        change
    };
    guest.until(other, |line| line == other);
    std::fs::write(dev.folder().join("go"), "").unwrap();
    assert_eq!(waiting.end(None), Some(0));
    assert_eq!(guest.end(None), Some(0));
}

#[test]
fn the_doctor_looks_at_this_machine_with_and_without_a_cluster() {
    let dev = Dev::start();
    let folder = dev.folder().to_string_lossy().into_owned();
    let report = |ran: &sluice_tests::CommandOutput| {
        let report = json(&ran.stdout);
        let checks = report["checks"].as_array().unwrap().clone();
        let find = move |name: &str| {
            let mut all = checks.iter();
            all.find(|check| check["name"] == name).cloned()
        };
        (report["verdict"].clone(), find)
    };
    let ran = dev.sluice(&["doctor", "--state-dir", &folder, "-o", "json"]);
    let (verdict, find) = report(&ran);
    for name in [
        "context",
        "coordinator",
        "clock",
        "open files",
        "nvml",
        "disk",
        "durability",
    ] {
        let check = find(name).unwrap_or_else(|| panic!("no {name} in {ran:?}"));
        assert!(
            check["found"]
                .as_str()
                .is_some_and(|found| !found.is_empty()),
            "{check}"
        );
    }
    assert_eq!(find("coordinator").unwrap()["verdict"], "ok");
    assert_eq!(find("clock").unwrap()["verdict"], "ok");
    assert_eq!(ran.code, i32::from(verdict == "fail"), "{ran:?}");
    let alone = dev.sluice(&["doctor", "--context", "/does/not/exist", "-o", "json"]);
    let (verdict, find) = report(&alone);
    assert_eq!((alone.code, verdict), (1, Value::from("fail")));
    assert_eq!(find("context").unwrap()["verdict"], "fail");
    assert!(find("coordinator").is_none() && find("disk").is_some());
    let text = dev.sluice(&["doctor"]).stdout;
    assert!(
        text.lines()
            .any(|line| line.starts_with("ok    coordinator ")),
        "{text}"
    );
}

#[test]
fn what_is_typed_wrongly_is_answered_with_a_way_out() {
    let dev = Dev::start();
    let guide = dev.sluice(&[]);
    assert_eq!(guide.code, 2);
    assert!(guide.stderr.contains("sluice doctor") && guide.stdout.is_empty());
    let typed = dev.sluice(&["get", "\u{1b}[2J\u{202e}"]);
    assert_eq!(typed.code, 2);
    assert!(!typed.stderr.contains(['\u{1b}', '\u{202e}']), "{typed:?}");
    let unknown = dev.sluice(&["get", "pool", "defalt"]);
    assert_eq!(unknown.code, 1);
    assert!(
        unknown.stderr.contains("did you mean `default`?"),
        "{unknown:?}"
    );
    let unknown = dev.sluice(&["describe", "pool", "defaut"]);
    assert!(
        unknown.stderr.contains("did you mean `default`?"),
        "{unknown:?}"
    );
    let hostile = dev.sluice(&["describe", "node", "a\u{1b}[31m\u{9b}b"]);
    assert_eq!(hostile.code, 1);
    assert!(
        !hostile
            .stderr
            .contains(|c: char| c != '\n' && c.is_control()),
        "{hostile:?}"
    );
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            dev.ok(&["completions", shell]).contains("SLUICE_COMPLETE"),
            "{shell}"
        );
    }
    let script = dev.folder().join("completions.bash");
    std::fs::write(&script, dev.ok(&["completions", "bash"])).unwrap();
    let checked = std::process::Command::new("bash")
        .arg("-n")
        .arg(&script)
        .status();
    assert!(checked.unwrap().success(), "bash reads its own completions");
    let pages = dev.folder().join("man1");
    dev.ok(&["man", pages.to_str().unwrap()]);
    assert!(pages.join("sluice-attach.1").exists());
}

/// Runs a command on a terminal of this size, with these variables; returns its output.
pub(crate) fn on_terminal(dev: &Dev, columns: u16, env: &[(&str, &str)], args: &[&str]) -> String {
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(Some(&size), None).unwrap();
    let mut command = dev.command(args);
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
    command.envs(env.iter().copied());
    command.stdin(Stdio::null());
    command.stdout(pty.slave.try_clone().unwrap());
    let mut child = command.stderr(pty.slave).spawn().unwrap();
    // The command holds the terminal's slave too: without it, reading ends with the child.
    drop(command);
    let mut text = Vec::new();
    let mut master = std::fs::File::from(pty.master);
    let mut chunk = [0; 4096];
    // Reading a terminal without a slave fails instead of reaching its end.
    while let Ok(read @ 1..) = master.read(&mut chunk) {
        text.extend_from_slice(&chunk[..read]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(text).unwrap().replace("\r\n", "\n")
}

#[test]
fn a_terminal_has_colours_and_an_edge_and_a_pipe_has_neither() {
    let dev = Dev::start();
    let name = "a-name-that-is-long-enough-to-be-cut-on-a-terminal";
    dev.ok(&["submit", "--id", "shown", "--name", name, "--", "true"]);
    dev.step_in("shown", &["succeeded"]);
    let get = ["get", "steps"];
    let wide = on_terminal(&dev, 300, &[], &get);
    assert!(
        wide.contains("\u{1b}[32msucceeded\u{1b}[0m") && wide.contains(name),
        "{wide}"
    );
    for env in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = on_terminal(&dev, 300, &[env], &get);
        assert!(!plain.contains('\u{1b}') && plain.contains(name), "{plain}");
    }
    for columns in [20, 40, 60, 80] {
        let text = on_terminal(&dev, columns, &[("NO_COLOR", "1")], &get);
        assert_eq!(text.lines().count(), 2, "{text}");
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(columns.into()), "{text}");
        assert!(text.contains("shown"), "what it is known by stays: {text}");
    }
    let wide = on_terminal(
        &dev,
        40,
        &[("NO_COLOR", "1")],
        &["get", "steps", "-o", "wide"],
    );
    assert!(wide.contains(name) && wide.contains("MESSAGE"), "{wide}");
    let piped = dev.ok(&get);
    assert!(piped.contains(name) && !piped.contains('\u{1b}'), "{piped}");
}

#[test]
fn a_pool_of_several_platforms_is_counted_and_filtered() {
    let example = "../packaging/examples/three-hosts.yaml";
    let dev = Dev::with(sluice_tests::DevOptions {
        files: vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(example)],
        ..Default::default()
    });
    dev.ok(&[
        "submit", "--id", "two", "--gpus", "6", "--", "sleep", "1000",
    ]);
    dev.step_in("two", &["running"]);
    let pool = json(&dev.ok(&["get", "pool", "training", "-o", "json"]));
    let (h100, l40s) = (&pool["platforms"]["h100"], &pool["platforms"]["l40s"]);
    assert_eq!(
        (&h100["gpus"], &h100["used"], &h100["nodes"]),
        (&8.into(), &6.into(), &1.into())
    );
    assert_eq!((&l40s["gpus"], &l40s["used"]), (&4.into(), &0.into()));
    assert_eq!(pool["free"]["gpu"], 6);
    let wide = dev.ok(&["get", "pools", "-o", "wide"]);
    assert!(wide.contains("h100=6/8,l40s=0/4"), "{wide}");
    let nodes = dev.ok(&["get", "nodes", "-o", "json"]);
    let nodes = json(&nodes)["items"].as_array().unwrap().clone();
    let (key, value) = nodes
        .iter()
        .find_map(|node| node["labels"].as_object()?.iter().next())
        .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
        .expect("the example labels its hosts");
    let count = |selector: &str| {
        let names = dev.ok(&["get", "nodes", "-l", selector, "-o", "name"]);
        names.lines().count()
    };
    let with = count(&format!("{key}={value}"));
    assert!(with > 0);
    assert_eq!(with + count(&format!("{key}!={value}")), nodes.len());
    let unknown = dev.sluice(&["get", "steps", "--node", "no-such-host"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.stderr.contains("there is no node"), "{unknown:?}");
}
