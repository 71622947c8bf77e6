//! The admin's prolog and epilog.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_tests::{Daemon, Dev, DevOptions, eventually, is_alive, kill};

/// A folder with hooks, and the files that they and the steps write.
struct HookDir(tempfile::TempDir);

impl HookDir {
    fn new(prolog: &str, epilog: &str, more: &str) -> Self {
        let hooks = Self(tempfile::tempdir().unwrap());
        let [prolog, epilog] = [("prolog", prolog), ("epilog", epilog)].map(|(name, text)| {
            let path = hooks.path(name);
            hooks.write(&path, text);
            path.display().to_string()
        });
        let config = format!(
            "{}[hooks]\nprolog = {prolog:?}\nepilog = {epilog:?}\n{more}",
            sluice_tests::as_starter()
        );
        fs::write(hooks.path("supervisor.toml"), config).unwrap();
        hooks
    }

    fn write(&self, path: &Path, text: &str) {
        let text = format!("#!/bin/sh\ncd {}\n{text}\n", self.0.path().display());
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn dev(&self) -> Dev {
        self.dev_of(Vec::new())
    }

    fn dev_of(&self, files: Vec<PathBuf>) -> Dev {
        let config = self.path("supervisor.toml").display().to_string();
        Dev::with(DevOptions {
            variables: vec![("SLUICE_SUPERVISOR_CONFIG", config)],
            files,
            ..DevOptions::default()
        })
    }
}

fn submit(dev: &Dev, id: &str, command: &str) {
    let body =
        json!({"id": id, "grace_period": "1s", "command": ["sh", "-c", command]}).to_string();
    let (status, answer) = dev.call("POST", "/v1/steps", Some(&body));
    assert_eq!(status, 201, "{answer}");
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn hooks_run_around_a_step_and_its_units_are_free_after_them() {
    let hooks = HookDir::new(
        "echo prolog $SLUICE_HOOK_STEP_ID.$SLUICE_HOOK_ATTEMPT $SLUICE_HOOK_SUBJECT >> log; echo not for the step",
        "echo epilog $SLUICE_HOOK_STEP_ID.$SLUICE_HOOK_ATTEMPT >> log; while [ ! -e go ]; do sleep 0.02; done",
        "",
    );
    let dev = hooks.dev();
    let log = hooks.path("log");
    submit(&dev, "a", &format!("echo step >> {}", log.display()));
    dev.step_in("a", &["succeeded"]);
    let all = eventually("the epilog to begin", || {
        let lines = lines(&log);
        (lines.len() == 3).then_some(lines)
    });
    assert_eq!(all, ["prolog a.1 default", "step", "epilog a.1"]);
    let released = || dev.call("GET", "/v1/steps/a", None).1["attempts"][0]["released_at"].clone();
    assert_eq!(released(), Value::Null, "the epilog runs");
    assert_eq!(dev.ok(&["logs", "a"]), "");
    // Other steps start meanwhile: only its own attempt waits for a hook.
    submit(&dev, "b", "echo b");
    dev.step_in("b", &["succeeded"]);
    fs::write(hooks.path("go"), "").unwrap();
    eventually("its units to be free", || {
        (!released().is_null()).then_some(())
    });
}

#[test]
fn a_step_whose_prolog_fails_waits_and_its_host_is_closed_after_some_in_a_row() {
    let hooks = HookDir::new(
        "[ ! -e bad ] || { echo the disk is gone; exit 3; }",
        "true",
        "prolog_failures_max = 2\n",
    );
    fs::write(hooks.path("bad"), "").unwrap();
    let dev = hooks.dev();
    submit(&dev, "a", "echo fine");
    let node = eventually("the host to be closed", || {
        let (_, nodes) = dev.call("GET", "/v1/nodes", None);
        let node = nodes["items"][0].clone();
        node.to_string().contains("2 in a row").then_some(node)
    });
    assert!(node.to_string().contains("the disk is gone"), "{node}");
    let (_, events) = dev.call("GET", "/v1/events?step=a", None);
    assert!(events.to_string().contains("\"prolog_failed\""), "{events}");
    let (_, step) = dev.call("GET", "/v1/steps/a", None);
    assert_eq!(step["state"], "queued", "{step}");
    fs::remove_file(hooks.path("bad")).unwrap();
    dev.ok(&["uncordon", node["name"].as_str().unwrap()]);
    let step = dev.step_in("a", &["succeeded"]);
    assert_eq!(step["attempts"].as_array().unwrap().len(), 3, "{step}");
}

#[test]
fn a_step_whose_prolog_fails_on_one_host_runs_on_another() {
    let hooks = HookDir::new(
        "echo $SLUICE_HOOK_NODE >> tried; [ \"$(head -1 tried)\" != $SLUICE_HOOK_NODE ]",
        "true",
        "prolog_failures_max = 9\n",
    );
    let hosts = hooks.path("hosts.yaml");
    let two = "{kind: host, name: h1, pool: p}\n---\n{kind: host, name: h2, pool: p}\n---\n\
               {kind: policy, pool: p, subject: default}\n";
    fs::write(&hosts, two).unwrap();
    let dev = hooks.dev_of(vec![hosts]);
    submit(&dev, "a", "echo $SLUICE_NODE");
    let step = dev.step_in("a", &["succeeded", "failed"]);
    assert_eq!(step["state"], "succeeded", "{step}");
    let tried = lines(&hooks.path("tried"));
    assert_eq!(tried.len(), 2, "one attempt on each: {tried:?}");
    assert_eq!(dev.ok(&["logs", "a"]).trim(), tried[1]);
}

/// Waits for the pid in this file.
fn pid_in(path: &Path) -> u32 {
    eventually("a process id to be written", || {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.ends_with('\n').then(|| text.trim().parse().unwrap())
    })
}

#[test]
fn a_prolog_runs_outside_of_the_step_s_groups_and_is_killed_with_the_step() {
    let hooks = HookDir::new(
        "trap '' TERM; echo $$ > pid; cat /proc/self/cgroup > groups; [ -e go ] || while :; do sleep 0.02; done",
        "true",
        "",
    );
    let dev = hooks.dev();
    submit(&dev, "a", "true");
    let prolog = pid_in(&hooks.path("pid"));
    let supervisor = dev.daemon(Daemon::Supervisor).unwrap();
    let own = fs::read_to_string(format!("/proc/{supervisor}/cgroup")).unwrap();
    let groups = eventually("the prolog's groups", || {
        let groups = fs::read_to_string(hooks.path("groups")).ok()?;
        (groups.lines().count() == own.lines().count()).then_some(groups)
    });
    assert_eq!(groups, own, "it is the supervisor's, not the step's");
    let (status, answer) = dev.call("POST", "/v1/steps/a:cancel", None);
    assert_eq!(status, 200, "{answer}");
    dev.step_in("a", &["cancelled"]);
    eventually("the prolog to be killed", || {
        (!is_alive(prolog)).then_some(())
    });
    fs::write(hooks.path("go"), "").unwrap();
    let mine = hooks.path("mine").display().to_string();
    submit(&dev, "b", &format!("cat /proc/self/cgroup > {mine}"));
    dev.step_in("b", &["succeeded"]);
    let step_s = fs::read_to_string(&mine).unwrap();
    let grouped = step_s.contains("b.1");
    assert_eq!(
        step_s != own,
        grouped,
        "the step itself is in its groups, where the host has any"
    );
}

#[test]
fn hooks_that_run_while_the_supervisor_upgrades_itself_go_on_and_run_once() {
    let wait_for = |file: &str| format!("while [ ! -e {file} ]; do sleep 0.02; done");
    let hooks = HookDir::new(
        &format!(
            "echo prolog $SLUICE_HOOK_STEP_ID >> log; {}",
            wait_for("prolog-may-end")
        ),
        &format!(
            "echo epilog $SLUICE_HOOK_STEP_ID >> log; {}; echo end >> log",
            wait_for("epilog-may-end")
        ),
        "",
    );
    let dev = hooks.dev();
    let log = hooks.path("log");
    let told = dev.data().join("logs/supervisor.log");
    let upgraded = |n: usize| {
        kill(dev.daemon(Daemon::Supervisor).unwrap(), Signal::SIGHUP);
        eventually("the upgrade", || {
            let text = fs::read_to_string(&told).unwrap_or_default();
            (text.matches("upgraded=true").count() == n).then_some(())
        });
    };
    let logged = |n: usize| eventually("hooks to run", || (lines(&log).len() >= n).then_some(()));
    submit(&dev, "a", "true");
    logged(1);
    upgraded(1);
    fs::write(hooks.path("prolog-may-end"), "").unwrap();
    dev.step_in("a", &["succeeded"]);
    logged(2);
    upgraded(2);
    let released = || dev.call("GET", "/v1/steps/a", None).1["attempts"][0]["released_at"].clone();
    assert_eq!(released(), Value::Null, "the epilog runs");
    fs::write(hooks.path("epilog-may-end"), "").unwrap();
    eventually("its units to be free", || {
        (!released().is_null()).then_some(())
    });
    assert_eq!(lines(&log), ["prolog a", "epilog a", "end"]);
}

#[test]
fn a_host_whose_health_check_fails_is_closed_until_it_passes() {
    let hooks = HookDir::new("true", "true", "");
    let check = hooks.path("check");
    let text = "[ ! -e ill ] || { echo the disk is gone; echo and more; exit 1; }";
    hooks.write(&check, text);
    let more =
        format!("health_check = {check:?}\nhealth_interval = \"1s\"\nhealth_failures_max = 2\n");
    let config = hooks.path("supervisor.toml");
    let config_was = fs::read_to_string(&config).unwrap();
    fs::write(&config, config_was + &more).unwrap();
    let dev = hooks.dev();
    submit(&dev, "a", "true");
    dev.step_in("a", &["succeeded"]);
    fs::write(hooks.path("ill"), "").unwrap();
    let node = || dev.call("GET", "/v1/nodes", None).1["items"][0].clone();
    let reason = |node: &Value| {
        node["cordon"]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let closed = eventually("the host to be closed", || {
        Some(node()).filter(|node| !reason(node).is_empty())
    });
    assert_eq!(
        reason(&closed),
        "closed by its health check: the disk is gone",
        "{closed}"
    );
    submit(&dev, "b", "true");
    // A restarted supervisor does not know how the hook ended: the host stays closed meanwhile.
    dev.kill(Daemon::Supervisor);
    let (_, b) = dev.call("GET", "/v1/steps/b", None);
    assert_eq!(b["state"], "queued", "{b}");
    fs::remove_file(hooks.path("ill")).unwrap();
    dev.step_in("b", &["succeeded"]);
    assert_eq!(reason(&node()), "");
}

#[test]
fn an_epilog_whose_supervisor_dies_is_ended_and_run_once_more() {
    let hooks = HookDir::new(
        "true",
        "echo $$ >> log; while [ ! -e go ]; do sleep 0.02; done",
        "",
    );
    let dev = hooks.dev();
    let log = hooks.path("log");
    submit(&dev, "a", "true");
    let first = eventually("the epilog to begin", || lines(&log).first()?.parse().ok());
    dev.kill(Daemon::Supervisor);
    eventually("the epilog to end with its supervisor", || {
        (!is_alive(first)).then_some(())
    });
    eventually("the next one to begin", || {
        (lines(&log).len() == 2).then_some(())
    });
    let released = || dev.call("GET", "/v1/steps/a", None).1["attempts"][0]["released_at"].clone();
    assert_eq!(released(), Value::Null, "the epilog runs");
    fs::write(hooks.path("go"), "").unwrap();
    eventually("its units to be free", || {
        (!released().is_null()).then_some(())
    });
    assert_eq!(lines(&log).len(), 2);
}
