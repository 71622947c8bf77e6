//! Declared hosts: pools of several hosts on this machine, each step a real process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_tests::{Dev, DevOptions, children_of, eventually, is_alive};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../packaging/examples")
        .join(name)
}

fn with_file(file: PathBuf) -> Dev {
    Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    })
}

/// Starts a `dev` with the hosts, pools and policies in `text`.
fn with(text: &str) -> (Dev, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.yaml");
    fs::write(&file, text).unwrap();
    // The file must not be needed: a `dev` of another user could not read it.
    (with_file(file), folder)
}

fn submit(dev: &Dev, id: &str, subject: &str, gpus: u32) {
    let gpus = gpus.to_string();
    let what = ["submit", "--id", id, "--subject", subject, "--gpus", &gpus];
    dev.ok(&[&what[..], &["--", "sleep", "1000"]].concat());
}

fn state(dev: &Dev, id: &str) -> String {
    let (_, step) = dev.call("GET", &format!("/v1/steps/{id}"), None);
    step["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_pool_of_three_hosts_is_filled_and_never_overfilled() {
    let dev = with_file(example("three-hosts.yaml"));
    let (_, pool) = dev.call("GET", "/v1/pools/training", None);
    assert_eq!(
        (&pool["nodes_ready"], &pool["capacity"]["gpu"]),
        (&3.into(), &12.into())
    );
    for n in 0..7 {
        submit(&dev, &format!("s{n}"), "dev", 2);
    }
    for n in 0..6 {
        dev.step_in(&format!("s{n}"), &["running"]);
    }
    assert_eq!(state(&dev, "s6"), "queued");
    let mut given: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for n in 0..6 {
        let (_, step) = dev.call("GET", &format!("/v1/steps/s{n}"), None);
        let placement = &step["placements"][0];
        let node = placement["node"].as_str().unwrap().to_owned();
        for gpu in placement["gpus"].as_array().unwrap() {
            let first = given
                .entry(node.clone())
                .or_default()
                .insert(gpu.to_string());
            assert!(first, "{gpu} of {node} is given twice");
        }
    }
    let counts: Vec<(&str, usize)> = given
        .iter()
        .map(|(node, gpus)| (&**node, gpus.len()))
        .collect();
    assert_eq!(counts, [("ada-1", 4), ("hopper-1", 8)]);
    let script = "echo $SLUICE_NODE [$CUDA_VISIBLE_DEVICES]";
    let output = dev.ok(&["run", "--cpus", "40", "--", "sh", "-c", script]);
    assert!(
        ["cpu-1 []\n", "hopper-1 []\n"].contains(&&*output),
        "{output}"
    );
    dev.ok(&["cancel", "s0"]);
    dev.step_in("s6", &["running"]);
}

const TWO_TEAMS: &str = "
kind: pool
name: shared
---
{kind: policy, pool: shared, subject: red, priority: 10, reserved: {gpu: 4}}
---
{kind: policy, pool: shared, subject: blue, priority: 10, reserved: {gpu: 4}}
---
{kind: host, name: h1, pool: shared, gpus: 4, gpu_model: H100}
---
{kind: host, name: h2, pool: shared, gpus: 4, gpu_model: H100}
";

#[test]
fn an_owner_takes_back_its_share_and_the_borrower_waits_again_in_its_place() {
    let (dev, _folder) = with(TWO_TEAMS);
    // Non-preemptible steps fill the share and the first host; borrowed resources are on the second.
    for id in ["r1", "r2"] {
        let what = ["submit", "--id", id, "--subject", "red", "--gpus", "2"];
        let rest = ["--non-preemptible", "--", "sleep", "1000"];
        dev.ok(&[&what[..], &rest].concat());
        dev.step_in(id, &["running"]);
    }
    submit(&dev, "r3", "red", 2);
    dev.step_in("r3", &["running"]);
    submit(&dev, "b1", "blue", 2);
    dev.step_in("b1", &["running"]);
    submit(&dev, "b2", "blue", 2);
    dev.step_in("b2", &["running"]);
    let lost = dev.step_in("r3", &["queued"]);
    assert_eq!(lost["reason"]["code"], "preempted", "{lost}");
    assert_eq!(lost["preempted_by"], "b2", "{lost}");
    assert_eq!(lost["attempts"][0]["exit"]["signal"], 15, "{lost}");
    for id in ["r1", "r2"] {
        assert_eq!(state(&dev, id), "running");
    }
    dev.ok(&["cancel", "b1"]);
    let again = dev.step_in("r3", &["running"]);
    assert_eq!(again["attempt"], 2, "{again}");
}

/// Returns events in order, each as its type and the attempt or step that it is about.
fn told(dev: &Dev, since: &str) -> Vec<(String, String, Value)> {
    let (status, page) = dev.call("GET", &format!("/v1/events?since={since}"), None);
    assert_eq!(status, 200, "{page}");
    let items = page["items"].as_array().unwrap().iter();
    let about = |event: &Value| {
        let known = event["attempt"].as_str().or(event["step"].as_str());
        known.unwrap_or_default().to_owned()
    };
    let events = items.map(|event| {
        let kind = event["type"].as_str().unwrap().to_owned();
        (kind, about(event), event.clone())
    });
    events.collect()
}

#[test]
fn a_full_pool_makes_room_for_what_is_reserved_and_one_stream_tells_how() {
    let (dev, _folder) = with(TWO_TEAMS);
    // Names by which processes are found among all of this machine.
    let [r1, r2] = [1, 2].map(|n| format!("full-{n}-{}", std::process::id()));
    let (r1, r2) = (r1.as_str(), r2.as_str());
    for id in [r1, r2] {
        submit(&dev, id, "red", 4);
        dev.step_in(id, &["running"]);
    }
    let pids = |id: &str| dev.processes(id);
    let before: BTreeMap<&str, Vec<u32>> = [r1, r2].map(|id| (id, pids(id))).into();
    assert!(before.values().all(|pids| pids.len() == 1), "{before:?}");
    let last = told(&dev, "0").last().unwrap().2["seq"].to_string();
    submit(&dev, "b", "blue", 4);
    let waiter = dev.step_in("b", &["running"]);
    assert_eq!(waiter["reason"]["code"], "running", "{waiter}");

    let (gone, stays) = match state(&dev, r1).as_str() {
        "running" => (r2, r1),
        _ => (r1, r2),
    };
    for pid in &before[gone] {
        assert!(!is_alive(*pid), "{gone} gave way and its process lives");
    }
    assert_eq!(pids(gone), Vec::<u32>::new());
    assert_eq!(
        (state(&dev, stays).as_str(), pids(stays)),
        ("running", before[stays].clone())
    );
    let victim = dev.step_in(gone, &["queued"]);
    assert_eq!(victim["preempted_by"], "b", "{victim}");
    assert_eq!(victim["reason"]["code"], "preempted", "{victim}");
    for (id, words) in [(gone, "was preempted"), ("b", "b is running")] {
        let text = dev.ok(&["explain", id]);
        assert!(text.contains(words), "{text}");
    }

    let events = told(&dev, &last);
    let at = |kind: &str, about: &str| {
        let found = events.iter().position(|it| it.0 == kind && it.1 == about);
        found.unwrap_or_else(|| panic!("no {kind} of {about}: {events:?}"))
    };
    let lost = format!("{gone}.1");
    let order = [
        at("step_queued", "b"),
        at("stopping", &lost),
        at("ended", &lost),
        at("released", &lost),
        at("allocated", "b.1"),
        at("started", "b.1"),
    ];
    assert!(order.is_sorted(), "{order:?}: {events:?}");
    let stopping = &events[order[1]].2;
    assert_eq!(
        (&stopping["why"], &stopping["by"]),
        (&"preempted".into(), &"b".into())
    );
    let stopped: Vec<&str> = events
        .iter()
        .filter(|it| it.0 == "stopping")
        .map(|it| &*it.1)
        .collect();
    assert_eq!(stopped, [lost], "nobody else was touched");
}

#[test]
fn a_gang_runs_on_all_its_hosts_or_waits_and_ends_as_one() {
    let (dev, folder) = with(TWO_TEAMS);
    submit(&dev, "r1", "red", 4);
    dev.step_in("r1", &["running"]);
    // Two whole hosts: not while one of them is in use.
    let script = format!(
        "echo $SLUICE_NODE_RANK $SLUICE_NODES $SLUICE_HOSTS $MASTER_ADDR:$MASTER_PORT > {}/$SLUICE_NODE; \
         echo rank $SLUICE_NODE_RANK; test $SLUICE_NODE_RANK = 0 && exec sleep 1000; until test -e {}/go; do sleep 0.05; done; exit 3",
        folder.path().display(),
        folder.path().display(),
    );
    let gang = [
        "submit",
        "--id",
        "g",
        "--subject",
        "blue",
        "--gpus",
        "4",
        "--nodes",
        "2",
    ];
    dev.ok(&[&gang[..], &["--", "sh", "-c", &script]].concat());
    assert_eq!(state(&dev, "g"), "queued");
    dev.ok(&["cancel", "r1"]);
    let running = dev.step_in("g", &["running"]);
    assert_eq!(running["placements"][1]["rank"], 1, "{running}");
    let told = |host: &str| {
        let file = folder.path().join(host);
        eventually("its words", || {
            fs::read_to_string(&file)
                .ok()
                .filter(|text| text.ends_with('\n'))
        })
    };
    let words = [told("h1"), told("h2")];
    assert!(
        words[0].starts_with("0 2 127.0.0.1,127.0.0.1 127.0.0.1:295"),
        "{words:?}"
    );
    assert!(words[1].starts_with("1 2 "), "{words:?}");
    assert_eq!(words[0][2..], words[1][2..], "they meet at one place");
    fs::write(folder.path().join("go"), "").unwrap();
    let failed = dev.step_in("g", &["failed"]);
    assert_eq!(failed["exit"]["code"], 3, "{failed}");
    assert_eq!(failed["reason"]["detail"]["rank"], 1, "{failed}");
    assert_eq!(failed["reason"]["detail"]["node"], "h2", "{failed}");
    assert_eq!(dev.ok(&["logs", "g"]), "rank 0\n");
    assert_eq!(dev.ok(&["logs", "g", "--rank", "1"]), "rank 1\n");
    let beyond = dev.sluice(&["logs", "g", "--rank", "2"]);
    assert!(
        beyond.stderr.contains("the ranks of `g` are 0 to 1"),
        "{beyond:?}"
    );
}

#[test]
fn mistakes_in_a_file_are_told_at_once_and_nothing_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.yaml");
    fs::write(&file, "kind: host\nname: a\ngpu: 8\n---\nkind: hosts\n").unwrap();
    let output = std::process::Command::new(sluice_tests::binaries().join("sluice"))
        .args(["dev", "--file"])
        .arg(&file)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    for part in [
        "document 1: there is no field `gpu`: did you mean `gpus`?",
        "document 2: kind",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(output.stdout.is_empty());
}

#[test]
fn every_host_ends_with_dev_and_leaves_nothing() {
    let (dev, _folder) = with(TWO_TEAMS);
    submit(&dev, "a", "red", 4);
    submit(&dev, "b", "blue", 4);
    for id in ["a", "b"] {
        dev.step_in(id, &["running"]);
    }
    let daemons = children_of(dev.pid());
    assert_eq!(daemons.len(), 5, "a coordinator, and two for each host");
    let below: Vec<u32> = daemons.iter().flat_map(|pid| children_of(*pid)).collect();
    let each = "a step for each host, a keeper, and who writes its output";
    assert_eq!(below.len(), 6, "{each}");
    let (status, log) = dev.stop();
    assert!(status.success(), "{log}");
    for pid in daemons.into_iter().chain(below) {
        eventually("its end", || (!is_alive(pid)).then_some(()));
    }
}

/// The file is an example of the documentation: what it declares must exist.
#[test]
fn the_example_is_what_it_says() {
    let dev = with_file(example("three-hosts.yaml"));
    let (_, nodes) = dev.call("GET", "/v1/nodes", None);
    let nodes: Vec<(String, u64)> = nodes["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| {
            let gpus = node["inventory"]["gpus"].as_array().map_or(0, Vec::len);
            (node["name"].as_str().unwrap().to_owned(), gpus as u64)
        })
        .collect();
    let expected = [("ada-1", 4), ("cpu-1", 0), ("hopper-1", 8)];
    assert_eq!(nodes, expected.map(|(name, gpus)| (name.to_owned(), gpus)));
    let (_, node) = dev.call("GET", "/v1/nodes/hopper-1", None);
    assert_eq!(node["labels"]["rack"], Value::from("r1"));
    assert_eq!(node["inventory"]["gpus"][0]["platform"], "h100");
}
