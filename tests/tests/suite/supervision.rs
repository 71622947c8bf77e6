//! The supervisor's own work in a whole cluster: it enforces leases while the agent is stopped, and is upgraded without
//! the steps noticing.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{
    Daemon, Dev, DevOptions, children_of, eventually, is_alive, kill, processes_of_attempt,
};

fn pid_of(dev: &Dev, step: &str, attempt: u32) -> u32 {
    eventually("the step's process", || pid_now(dev, step, attempt))
}

fn pid_now(dev: &Dev, step: &str, attempt: u32) -> Option<u32> {
    let pids = processes_of_attempt(dev.folder(), step, attempt);
    pids.first().copied()
}

/// Waits for a running attempt after `attempt`; returns its number and process: on a busy machine a short lease may
/// expire by itself.
fn attempt_after(dev: &Dev, step: &str, attempt: u32) -> (u32, u32) {
    let later = attempt + 1..attempt + 20;
    eventually("a later attempt's process", || {
        let mut found = later.clone().map(|n| (n, pid_now(dev, step, n)));
        found.find_map(|(n, pid)| Some((n, pid?)))
    })
}

#[test]
fn a_step_whose_agent_stands_still_is_stopped_when_its_lease_passes() {
    let terms = [
        ("SLUICE_LEASE", "2s"),
        ("SLUICE_STOP_LIMIT", "1s"),
        ("SLUICE_HEARTBEAT", "300ms"),
        ("SLUICE_UNREACHABLE_AFTER", "2s"),
        ("SLUICE_LOST_AFTER", "60s"),
    ];
    let dev = Dev::with(DevOptions {
        variables: terms.map(|(name, value)| (name, value.to_owned())).into(),
        ..DevOptions::default()
    });
    dev.ok(&["submit", "--id", "leased", "--", "sleep", "1000"]);
    let (attempt, first) = attempt_after(&dev, "leased", 0);
    let agent = dev.daemon(Daemon::Agent).unwrap();
    kill(agent, Signal::SIGSTOP);
    // Only the supervisor is there to do it, long before the coordinator declares the host lost.
    eventually("the lease to pass", || (!is_alive(first)).then_some(()));
    let (_, node) = dev.call("GET", "/v1/nodes", None);
    assert_ne!(node["items"][0]["state"], "lost");
    kill(agent, Signal::SIGCONT);
    let (_, second) = attempt_after(&dev, "leased", attempt);
    assert_ne!(first, second);
    let step = dev.step_in("leased", &["running"]);
    let ended = &step["attempts"][attempt as usize - 1];
    let told = ended["exit"]["message"].as_str().unwrap();
    assert!(told.contains("its lease expired"), "{step}");
    dev.ok(&["cancel", "leased"]);
}

#[test]
fn a_supervisor_that_upgrades_itself_loses_no_step_no_code_and_no_output() {
    let dev = Dev::start();
    let gate = dev.folder().join("go");
    let script = format!(
        "i=0; while [ ! -e {} ]; do i=$((i+1)); echo $i; sleep 0.02; done; echo last; exit 7",
        gate.display()
    );
    dev.ok(&["submit", "--id", "kept", "--", "sh", "-c", &script]);
    let pid = pid_of(&dev, "kept", 1);
    let supervisor = dev.daemon(Daemon::Supervisor).unwrap();
    let log = dev.data().join("logs/supervisor.log");
    for n in 1..=3 {
        kill(supervisor, Signal::SIGHUP);
        eventually("the upgrade", || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            (log.matches("upgraded=true").count() == n).then_some(())
        });
        assert_eq!(dev.daemon(Daemon::Supervisor), Some(supervisor));
        assert!(is_alive(pid));
        // The agent has reconnected to it.
        dev.ok(&["run", "--", "true"]);
    }
    fs::write(&gate, "").unwrap();
    let step = dev.step_in("kept", &["failed"]);
    assert_eq!(
        (&step["exit"]["code"], &step["attempt"]),
        (&Value::from(7), &Value::from(1)),
        "{step}"
    );
    let output = dev.ok(&["logs", "kept"]);
    let lines: Vec<&str> = output.lines().collect();
    let (last, counted) = lines.split_last().unwrap();
    assert_eq!(*last, "last");
    let wanted: Vec<String> = (1..=counted.len()).map(|n| n.to_string()).collect();
    assert_eq!(counted, wanted);
    let (status, log) = dev.stop();
    assert!(status.success() || status.code() == Some(130), "{log}");
    assert!(!is_alive(supervisor));
}

#[test]
fn steps_of_dev_run_as_whoever_started_it_with_its_home() {
    for ordinary_user in [false, true] {
        if ordinary_user && !sluice_tests::needs_root() {
            // Only root can start it as another user.
            return;
        }
        let dev = Dev::with(DevOptions {
            ordinary_user,
            ..DevOptions::default()
        });
        let uid = if ordinary_user {
            nix::unistd::Uid::from_raw(65534)
        } else {
            nix::unistd::geteuid()
        };
        let said = dev.ok(&["run", "--", "sh", "-c", "id -u; echo $HOME; echo $USER"]);
        let known = nix::unistd::User::from_uid(uid).unwrap();
        let (home, name) = known.map_or_else(Default::default, |user| {
            (user.dir.display().to_string(), user.name)
        });
        assert_eq!(said, format!("{uid}\n{home}\n{name}\n"));
    }
}

const TWO_HOSTS: &str =
    "kind: host\nname: left\nmcpu: 2000\n---\nkind: host\nname: right\nmcpu: 2000\n";

/// Returns a daemon of one host of `dev`, by its directory.
fn daemon_of(dev: &Dev, program: &str, host: &str) -> u32 {
    let dir = format!("/{host}/");
    let is_its = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(program) && line.contains(&dir)
    };
    eventually(program, || children_of(dev.pid()).into_iter().find(is_its))
}

fn node_is(dev: &Dev, name: &str, state: &str) -> Value {
    eventually(&format!("{name} to be {state}"), || {
        let (_, node) = dev.try_call("GET", &format!("/v1/nodes/{name}"), None)?;
        (node["state"] == state).then_some(node)
    })
}

#[test]
fn a_host_whose_supervisor_stands_still_says_so_and_its_steps_wait_or_go_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.yaml");
    fs::write(&file, TWO_HOSTS).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    });
    dev.ok(&[
        "submit", "--id", "kept", "--cpus", "1", "--", "sleep", "1000",
    ]);
    let kept = dev.step_in("kept", &["running"]);
    let host = kept["placements"][0]["node"].as_str().unwrap();
    let other = if host == "left" { "right" } else { "left" };
    let supervisor = daemon_of(&dev, "sluice-supervisor", host);
    kill(supervisor, Signal::SIGSTOP);

    let node = node_is(&dev, host, "unsupervised");
    let why = node["unsupervised"].as_str().unwrap();
    assert!(
        why.contains("does not answer") && why.contains("sluice doctor"),
        "{why}"
    );
    let shown = dev.ok(&["describe", "node", host]);
    assert!(shown.contains("No supervisor"), "{shown}");
    for id in ["next", "after"] {
        dev.ok(&["submit", "--id", id, "--cpus", "1", "--", "sleep", "1000"]);
        let next = dev.step_in(id, &["running"]);
        assert_eq!(next["placements"][0]["node"], other, "{next}");
    }
    // Its process may run, so it is not reported as ended; the explanation says what it waits for.
    dev.ok(&["cancel", "kept"]);
    let step = dev.step_in("kept", &["stopping"]);
    let why = step["reason"]["message"].as_str().unwrap();
    assert!(why.contains("has no supervisor"), "{why}");
    // A new agent does not know what the host runs, and does not report that it is nothing.
    kill(daemon_of(&dev, "sluice-agent", host), Signal::SIGKILL);
    eventually("an agent that has not heard its supervisor", || {
        let (_, node) = dev.call("GET", &format!("/v1/nodes/{host}"), None);
        let log = fs::read_to_string(dev.data().join("logs/coordinator.log")).ok()?;
        (node["state"] == "unsupervised" && log.matches("node has no supervisor").count() == 2)
            .then_some(())
    });
    assert_eq!(dev.step_in("kept", &["stopping"])["attempt"], 1);

    kill(supervisor, Signal::SIGCONT);
    node_is(&dev, host, "ready");
    dev.step_in("kept", &["cancelled"]);
    dev.ok(&["cancel", "next", "after"]);
}
