//! Cordon, drain and delete of nodes through the command line, over declared hosts, each step a real process.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{Dev, DevOptions, children_of, eventually, kill};

const TWO_HOSTS: &str = "
kind: pool
name: shared
description: two hosts
capacity: {licences: 3}
---
{kind: policy, pool: shared, subject: red, reserved: {gpu: 4}}
---
{kind: host, name: h1, pool: shared, gpus: 4, gpu_model: H100, labels: {zone: a, rack: r1}}
---
{kind: host, name: h2, pool: shared, gpus: 4, gpu_model: H100, labels: {zone: b}}
";

fn two_hosts() -> (Dev, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.yaml");
    fs::write(&file, TWO_HOSTS).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    });
    (dev, folder)
}

fn submit(dev: &Dev, id: &str, flags: &[&str]) {
    let what = [
        "submit",
        "--id",
        id,
        "--name",
        id,
        "--subject",
        "red",
        "--gpus",
        "1",
    ];
    dev.ok(&[&what[..], flags, &["--", "sleep", "1000"]].concat());
}

fn node_of(step: &Value) -> &str {
    step["placements"][0]["node"].as_str().unwrap()
}

fn names(dev: &Dev, args: &[&str]) -> Vec<String> {
    let text = dev.ok(&[&["get", "nodes", "-o", "name"], args].concat());
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_cordon_keeps_steps_off_until_it_is_lifted() {
    let (dev, _folder) = two_hosts();
    let line = dev.ok(&["cordon", "h1", "--reason", "new fans"]);
    assert_eq!(line, "h1 ready,cordoned\n");
    for id in ["a", "b", "c", "d"] {
        submit(&dev, id, &[]);
        assert_eq!(node_of(&dev.step_in(id, &["running"])), "h2");
    }
    submit(&dev, "e", &[]);
    dev.step_in("e", &["queued"]);
    let text = dev.ok(&["describe", "node", "node/h1"]);
    for part in [
        "ready,cordoned",
        "new fans",
        "gpu      4         0     4",
        "zone=a",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = dev.ok(&["describe", "pool", "shared"]);
    for part in [
        "1 ready of 2",
        "licences  3         -          0",
        "h100      2      8     4     0\n",
        "Queue, in order:\n",
        "\n1      e ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(names(&dev, &["--state", "cordoned"]), ["node/h1"]);
    assert_eq!(dev.ok(&["uncordon", "h1"]), "h1 ready\n");
    assert_eq!(node_of(&dev.step_in("e", &["running"])), "h1");
    let events = dev.ok(&["get", "events"]);
    assert!(
        events.contains("node_cordoned") && events.contains("reason=new fans"),
        "{events}"
    );
}

#[test]
fn a_drain_sends_what_can_give_way_to_the_other_host_where_it_ends() {
    let (dev, folder) = two_hosts();
    dev.ok(&["cordon", "h2"]);
    submit(&dev, "firm", &["--non-preemptible"]);
    let done = folder.path().join("done");
    let script = format!("until [ -e {} ]; do sleep 0.05; done", done.display());
    let what = ["submit", "--id", "soft", "--subject", "red", "--gpus", "1"];
    dev.ok(&[&what[..], &["--", "sh", "-c", &script]].concat());
    for id in ["firm", "soft"] {
        assert_eq!(node_of(&dev.step_in(id, &["running"])), "h1");
    }
    dev.ok(&["uncordon", "h2"]);
    let drained = dev.sluice(&["drain", "h1", "--reason", "new fans"]);
    assert_eq!(drained.stdout, "h1 ready,draining\n", "{drained:?}");
    assert!(
        drained
            .stderr
            .contains("waiting for what is not preemptible running to its end: firm"),
        "{drained:?}"
    );
    // It dies at the first signal, so it may be gone when it is looked at.
    let told = ["stopping: soft", "stopped: soft", "being freed: soft"];
    let told = told.iter().any(|words| drained.stderr.contains(words));
    assert!(told, "{drained:?}");
    let again = eventually("soft on the other host", || {
        let step = dev.step_in("soft", &["running"]);
        (step["attempt"] == 2).then_some(step)
    });
    assert_eq!(node_of(&again), "h2");
    fs::write(&done, "").unwrap();
    dev.step_in("soft", &["succeeded"]);
    assert_eq!(node_of(&dev.step_in("firm", &["running"])), "h1");
    let late = dev.sluice(&["drain", "h1", "--wait", "--timeout", "1s"]);
    assert_eq!(late.code, 75, "{late:?}");
    assert!(late.stderr.contains("firm"), "{late:?}");
    let emptied = dev.sluice(&["drain", "h1", "--deadline", "0s", "--wait"]);
    assert_eq!(
        (emptied.code, emptied.stdout.as_str()),
        (0, "h1 ready,drained\n"),
        "{emptied:?}"
    );
    assert_eq!(names(&dev, &["--state", "drained"]), ["node/h1"]);
    assert_eq!(node_of(&dev.step_in("firm", &["running"])), "h2");
    assert_eq!(dev.ok(&["uncordon", "h1"]), "h1 ready\n");
}

#[test]
fn labels_of_admins_are_merged_and_filtered_by() {
    let (dev, _folder) = two_hosts();
    let line = dev.ok(&["label", "node", "h1", "team=x", "rack-"]);
    assert_eq!(line, "h1 team=x,zone=a\n");
    assert_eq!(names(&dev, &["-l", "team=x,!rack"]), ["node/h1"]);
    assert_eq!(names(&dev, &["-l", "zone=b"]), ["node/h2"]);
    let refused = dev.sluice(&["label", "node", "h1", "zone=b"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("zone=a already: --overwrite"),
        "{refused:?}"
    );
    dev.ok(&["label", "node", "h1", "zone=b", "--overwrite"]);
    assert_eq!(names(&dev, &["-l", "zone=b"]), ["node/h1", "node/h2"]);
    let described = dev.ok(&["describe", "node", "h1"]);
    for warning in [
        "label rack: its config says r1, an admin removed it",
        "label zone: its config says a, an admin set b, which counts",
    ] {
        assert!(described.contains(warning), "{described}");
    }
    for (args, code, words) in [
        (["label", "node", "h1", "a b=c"], 2, "label key `a b`"),
        (["label", "node", "h1", "zone"], 2, "KEY=VALUE"),
        (["label", "node", "hh1", "zone=a"], 1, "did you mean `h1`"),
    ] {
        let refused = dev.sluice(&args);
        assert_eq!(refused.code, code, "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
}

#[test]
fn a_deleted_node_is_forgotten_with_its_access() {
    let (dev, _folder) = two_hosts();
    let refused = dev.sluice(&["delete", "node", "h1"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("stop its agent"), "{refused:?}");
    let wrong = dev.sluice(&["delete", "node", "h11"]);
    assert!(wrong.stderr.contains("did you mean `h1`"), "{wrong:?}");
    let wrong = dev.sluice(&["drain", "h11"]);
    assert!(wrong.stderr.contains("did you mean `h1`"), "{wrong:?}");
    // `dev` restarts a daemon that died, so a stopped one stands for one that is away.
    let agents = children_of(dev.pid()).into_iter().filter(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("sluice-agent") && line.contains("h2")
    });
    let agents: Vec<u32> = agents.collect();
    assert_eq!(agents.len(), 1, "the agent of h2");
    kill(agents[0], Signal::SIGSTOP);
    let deleted = eventually("the link of h2 to be gone", || {
        let ran = dev.sluice(&["delete", "node", "h2"]);
        (ran.code == 0).then_some(ran)
    });
    assert_eq!(deleted.stdout, "h2 deleted\n");
    assert_eq!(names(&dev, &[]), ["node/h1"]);
    let text = dev.ok(&["describe", "pool", "shared"]);
    assert!(
        text.contains("gpu       -         4         0     0         0         4"),
        "{text}"
    );
    // When it is heard again, it is told to join again. A linked node can be deleted by force, which ends its link.
    kill(agents[0], Signal::SIGCONT);
    let turned_away = |node: &str| {
        let words = format!("the access of node `{node}` was ended");
        eventually("the node to be turned away", || {
            let log = fs::read_to_string(dev.folder().join("data/logs/coordinator.log"));
            log.is_ok_and(|log| log.contains(&words)).then_some(())
        });
    };
    turned_away("h2");
    assert_eq!(dev.ok(&["delete", "node", "h1", "--force"]), "h1 deleted\n");
    turned_away("h1");
    assert_eq!(names(&dev, &[]), [""; 0]);
}

#[test]
fn a_moved_host_is_emptied_first_and_then_runs_steps_of_the_other_pool() {
    let (dev, folder) = two_hosts();
    let night = folder.path().join("night.yaml");
    fs::write(
        &night,
        "{kind: pool, name: night}\n---\n{kind: policy, pool: night, subject: red, reserved: {gpu: 4}}\n",
    )
    .unwrap();
    dev.ok(&["apply", "-f", night.to_str().unwrap()]);
    dev.ok(&["cordon", "h2"]);
    submit(&dev, "firm", &["--non-preemptible"]);
    assert_eq!(node_of(&dev.step_in("firm", &["running"])), "h1");
    let moved = dev.sluice(&["move", "node", "h1", "--pool", "night"]);
    assert!(
        moved.stderr.contains("running to its end: firm"),
        "{moved:?}"
    );
    submit(&dev, "after", &["--pool", "night"]);
    dev.step_in("after", &["queued"]);
    assert_eq!(names(&dev, &["--pool", "night"]), [""; 0]);

    dev.ok(&["cancel", "firm"]);
    assert_eq!(node_of(&dev.step_in("after", &["running"])), "h1");
    assert_eq!(names(&dev, &["--pool", "night"]), ["node/h1"]);
    let told = dev.ok(&["describe", "node", "h1"]);
    assert!(
        told.contains("night (its config or certificate says shared)"),
        "{told}"
    );

    let nowhere = dev.sluice(&["move", "node", "h2", "--pool", "nowhere"]);
    assert!(nowhere.stderr.contains("nowhere"), "{nowhere:?}");
    assert_eq!(names(&dev, &["--pool", "shared"]), ["node/h2"]);
}
