//! Programs beside running steps: what they see, how they end, and what they leave.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::Value;
use sluice_tests::{
    CommandOutput, Daemon, Dev, DevOptions, eventually, is_alive, kill, pids_with_environ,
};

/// Returns a mark that no other process of this machine has.
fn mark(dev: &Dev, id: &str) -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    format!("{}/{id}/{number}", dev.folder().display())
}

fn marked(what: &str, mark: &str) -> u32 {
    eventually(what, || pids_with_environ(mark).first().copied())
}

/// Submits a step that sleeps, with a known directory and variable; returns its process.
fn submit_sleeper(dev: &Dev, id: &str) -> u32 {
    let mark = format!("MAIN={}", mark(dev, id));
    let step = ["submit", "--id", id, "--env", "COLOUR=blue", "--env", &mark];
    let runs = ["--workdir", "/tmp", "--grace", "1s", "--", "sleep", "1000"];
    dev.ok(&[&step[..], &runs].concat());
    dev.step_in(id, &["running"]);
    marked("the step's process", &mark)
}

fn exec(dev: &Dev, id: &str, command: &str) -> CommandOutput {
    dev.sluice(&["exec", id, "--", "sh", "-c", command])
}

/// Runs a program that outlives this call; returns its pid on the host.
fn exec_and_stay(dev: &Dev, id: &str) -> (Child, u32) {
    let mark = format!("STAYS={}", mark(dev, id));
    let command = format!("export {mark}; exec sleep 1001");
    let mut exec = dev.command(&["exec", id, "--", "sh", "-c", &command]);
    exec.stdin(Stdio::piped()).stderr(Stdio::null());
    let child = exec.spawn().unwrap();
    (child, marked("the program beside the step", &mark))
}

fn is_gone(what: &str, pid: u32) {
    eventually(what, || (!is_alive(pid)).then_some(()));
}

#[test]
fn it_stands_where_the_step_stands_and_its_streams_and_its_end_are_its_own() {
    let dev = Dev::start();
    let main = submit_sleeper(&dev, "a");
    let ran = exec(
        &dev,
        "a",
        "echo $COLOUR $SLUICE_STEP_ID $PWD; echo err >&2; exit 7",
    );
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (7, "blue a /tmp\n"),
        "{ran:?}"
    );
    assert_eq!(ran.stderr, "err\n", "{ran:?}");
    let cgroups = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let ran = exec(&dev, "a", "cat /proc/self/cgroup");
    assert_eq!(ran.stdout, cgroups(&main.to_string()), "{ran:?}");
    let ran = exec(&dev, "a", "id -u; grep NoNewPrivs /proc/self/status");
    let whole = format!("/proc/{main}/status");
    let status = std::fs::read_to_string(whole).unwrap();
    let line = |name: &str| status.lines().find(|l| l.starts_with(name)).unwrap();
    let uid = line("Uid:").split_whitespace().nth(1).unwrap();
    assert_eq!(
        ran.stdout,
        format!("{uid}\n{}\n", line("NoNewPrivs")),
        "{ran:?}"
    );
    let ran = exec(&dev, "a", "kill -9 $$");
    assert_eq!(ran.code, 128 + 9, "{ran:?}");
    let ran = dev.sluice(&["exec", "a", "--", "/no/such/program"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.stderr.contains("/no/such/program"), "{ran:?}");
    // The step and its directory are unchanged.
    assert_eq!(dev.step_in("a", &["running"])["attempt"], 1);
    assert_eq!(exec_dirs(&dev), 0, "its pipes were left behind");
}

/// Counts the directories of programs beside steps.
fn exec_dirs(dev: &Dev) -> usize {
    fn below(dir: &std::path::Path) -> usize {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .map(|entry| {
                let is_one = entry.file_name().to_string_lossy().starts_with("exec-");
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => usize::from(is_one) + below(&entry.path()),
                    _ => 0,
                }
            })
            .sum()
    }
    below(dev.data())
}

#[test]
fn what_goes_in_comes_out_however_much_and_its_end_is_told() {
    let dev = Dev::start();
    submit_sleeper(&dev, "a");
    let mut cat = dev.command(&["exec", "a", "--", "cat"]);
    let mut child = cat
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let whole = sent.clone();
    let feeder = std::thread::spawn(move || stdin.write_all(&whole));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(
        output.stdout == sent,
        "{} bytes came back",
        output.stdout.len()
    );
    // A program that reads nothing ends all the same.
    let mut small = dev.command(&["exec", "a", "--", "true"]);
    let mut child = small.stdin(Stdio::piped()).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn it_ends_with_its_step() {
    let dev = Dev::start();
    let main = submit_sleeper(&dev, "a");
    let (mut child, pid) = exec_and_stay(&dev, "a");
    dev.ok(&["cancel", "a"]);
    dev.step_in("a", &["cancelled"]);
    is_gone("the program to end with its step", pid);
    assert_ne!(child.wait().unwrap().code(), Some(0));
    assert!(!is_alive(main));
    // Also if the main process ends by itself.
    let main = submit_sleeper(&dev, "b");
    let (mut child, pid) = exec_and_stay(&dev, "b");
    kill(main, nix::sys::signal::Signal::SIGKILL);
    dev.step_in("b", &["failed"]);
    is_gone("the program to end with its step", pid);
    assert_ne!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_caller_who_goes_away_leaves_nothing_behind() {
    let dev = Dev::start();
    submit_sleeper(&dev, "a");
    let (mut child, pid) = exec_and_stay(&dev, "a");
    kill(child.id(), nix::sys::signal::Signal::SIGINT);
    child.wait().unwrap();
    is_gone("the program of a caller who went", pid);
    // If a daemon on the way dies, the program is killed.
    for daemon in [Daemon::Coordinator, Daemon::Agent] {
        let (mut child, pid) = exec_and_stay(&dev, "a");
        dev.kill(daemon);
        assert_eq!(child.wait().unwrap().code(), Some(125), "{daemon:?}");
        is_gone("the program that nobody hears", pid);
        eventually("its host to be back", || {
            let (status, nodes) = dev.try_call("GET", "/v1/nodes", None)?;
            let is_back = status == 200 && nodes["items"][0]["state"] == "ready";
            (is_back && exec(&dev, "a", "exit 3").code == 3).then_some(())
        });
    }
    assert_eq!(dev.step_in("a", &["running"])["attempt"], 1);
    eventually("its pipes to be removed", || {
        (exec_dirs(&dev) == 0).then_some(())
    });
}

fn refusal(dev: &Dev, id: &str) -> (u16, Value) {
    let path = format!("/v1/steps/{id}/exec");
    let (status, body) = dev.call("GET", &path, None);
    (status, body["error"]["code"].clone())
}

#[test]
fn what_does_not_run_is_refused_with_the_way_out() {
    let dev = Dev::start();
    dev.ok(&["submit", "--id", "over", "--", "true"]);
    dev.step_in("over", &["succeeded"]);
    submit_sleeper(&dev, "held");
    dev.ok(&["suspend", "held"]);
    let held = dev.step_in("held", &["suspended", "queued"]);
    let way_out = match held["state"] == "suspended" {
        true => "sluice resume",
        false => "sluice wait",
    };
    let waits = r#"{"id": "waits", "command": ["true"], "allow_pending": true, "resources": {"cpu_count": 100000}}"#;
    assert_eq!(dev.call("POST", "/v1/steps", Some(waits)).0, 201);
    dev.step_in("waits", &["queued"]);
    for (id, way_out) in [
        ("over", "sluice logs"),
        ("held", way_out),
        ("waits", "sluice wait"),
    ] {
        let ran = exec(&dev, id, "true");
        assert_eq!(ran.code, 125, "{id}: {ran:?}");
        assert!(ran.stderr.contains(way_out), "{id}: {ran:?}");
        assert_eq!(refusal(&dev, id), (409, "not_running".into()), "{id}");
    }
    assert_eq!(refusal(&dev, "nobody"), (404, "unknown_step".into()));
    submit_sleeper(&dev, "a");
    let ran = dev.sluice(&["exec", "a", "--rank", "3", "--", "true"]);
    assert!(
        ran.stderr.contains("the ranks of `a` are 0 to 0"),
        "{ran:?}"
    );
    assert_eq!(refusal(&dev, "a"), (400, "invalid_parameter".into()));
}

#[test]
fn no_more_run_beside_a_step_than_may() {
    let dev = Dev::start();
    submit_sleeper(&dev, "a");
    let stays: Vec<(Child, u32)> = (0..16).map(|_| exec_and_stay(&dev, "a")).collect();
    let most = eventually("all of them to run", || {
        let ran = exec(&dev, "a", "true");
        (ran.code == 125).then_some(ran)
    });
    assert!(most.stderr.contains("16 programs"), "{most:?}");
    for (mut child, _) in stays {
        kill(child.id(), nix::sys::signal::Signal::SIGTERM);
        child.wait().unwrap();
    }
    eventually("room for another", || {
        (exec(&dev, "a", "true").code == 0).then_some(())
    });
}

/// Makes a device node, which only root can, and returns a shell command that tries to open it.
fn device(folder: &Path, name: &str, minor: u64) -> String {
    let path = folder.join(name);
    let mode = Mode::from_bits_truncate(0o666);
    mknod(&path, SFlag::S_IFCHR, mode, makedev(1, minor)).unwrap();
    path.display().to_string()
}

#[test]
fn of_a_gang_it_runs_on_the_host_of_its_rank_and_opens_the_gpu_of_that_part_alone() {
    if !sluice_tests::needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The numbers of /dev/zero, /dev/full and /dev/urandom.
    let nodes = [("gpu0", 5), ("gpu1", 7), ("gpu2", 9)];
    let [a, b, c] = nodes.map(|(name, minor)| device(folder.path(), name, minor));
    let file = folder.path().join("hosts.yaml");
    let text = format!(
        "{{kind: host, name: h1, gpus: 1, gpu_model: H100, gpu_devices: [{a}]}}\n---\n\
         {{kind: host, name: h2, gpus: 2, gpu_model: H100, gpu_devices: [{b}, {c}]}}\n"
    );
    std::fs::write(&file, text).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    });
    let gang = ["submit", "--id", "g", "--gpus", "1", "--nodes", "2", "--"];
    dev.ok(&[&gang[..], &["sleep", "1000"]].concat());
    let step = dev.step_in("g", &["running"]);
    let script = format!(
        "unset CUDA_VISIBLE_DEVICES; echo $SLUICE_NODE; cd {}; for node in gpu1 gpu2; do \
           (exec 3<$node) 2>&1 | grep -q 'not permitted' || echo $node; done",
        folder.path().display()
    );
    let at = |rank: &str| {
        let said = dev.ok(&["exec", "g", "--rank", rank, "--", "sh", "-c", &script]);
        said.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    assert_eq!(at("0")[0], "h1");
    let second = at("1");
    let granted = step["placements"][1]["gpus"][0].as_str().unwrap();
    let nodes = dev.call("GET", "/v1/nodes", None).1;
    let nodes = nodes["items"].as_array().unwrap();
    let h2 = nodes.iter().find(|node| node["name"] == "h2").unwrap();
    let gpus = h2["inventory"]["gpus"].as_array().unwrap();
    let index = gpus.iter().position(|gpu| gpu["uuid"] == granted).unwrap();
    assert_eq!(second, ["h2".to_owned(), format!("gpu{}", index + 1)]);
}

#[test]
fn it_counts_against_the_limits_of_the_step() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("supervisor.toml");
    let config = format!("{}pids_max = 20\n", sluice_tests::as_starter());
    std::fs::write(&file, config).unwrap();
    let dev = Dev::with(DevOptions {
        variables: vec![("SLUICE_SUPERVISOR_CONFIG", file.display().to_string())],
        ..DevOptions::default()
    });
    let node = dev.call("GET", "/v1/nodes", None).1["items"][0].clone();
    if node["inventory"]["capabilities"]["pids"] == "none" {
        return;
    }
    submit_sleeper(&dev, "a");
    let few = "for i in 1 2 3 4 5; do sleep 1002 & done; kill $(jobs -p); echo all";
    assert_eq!(exec(&dev, "a", few).stdout, "all\n");
    let many = "for i in $(seq 40); do sleep 1003 & done; echo all";
    let ran = exec(&dev, "a", many);
    assert!(ran.code != 0 && !ran.stdout.contains("all"), "{ran:?}");
    assert!(ran.stderr.contains("fork"), "{ran:?}");
    // The step lives, and there is room again when those are gone.
    assert_eq!(dev.step_in("a", &["running"])["attempt"], 1);
    eventually("room for another", || {
        (exec(&dev, "a", "true").code == 0).then_some(())
    });
}
