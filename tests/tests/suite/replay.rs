//! `sluice replay` as a program, over the directory of a cluster in which one step preempted another: the API's answers
//! of that time, each change with its event, nothing written, and damage named. And the examples of `docs/replay.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use sluice_tests::{Dev, DevOptions, binaries, eventually};

const PAGE: &str = include_str!("../../../docs/replay.md");

/// Returns the lines between one that begins with `begin` and the end of its block of the page.
fn shown(begin: &str) -> Vec<&'static str> {
    let lines = PAGE.lines().skip_while(|line| !line.starts_with(begin));
    let lines: Vec<&str> = lines.skip(1).take_while(|line| *line != "```").collect();
    assert!(!lines.is_empty(), "the page shows nothing for {begin}");
    lines
}

/// A data directory that a cluster left.
struct LeftDirectory {
    _folder: tempfile::TempDir,
    data: PathBuf,
    /// Last event before the last look.
    seq: u64,
    /// Answers of the API at that time.
    said: ClusterAnswers,
}

#[derive(Debug, PartialEq)]
struct ClusterAnswers {
    pools: Value,
    policies: Vec<Value>,
    nodes: Value,
    steps: Vec<Value>,
}

fn last_event(dev: &Dev) -> u64 {
    let (status, page) = dev.call("GET", "/v1/events?limit=1000", None);
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().unwrap().last().unwrap()["seq"]
        .as_u64()
        .unwrap()
}

fn items(dev: &Dev, path: &str) -> Value {
    let (status, page) = dev.call("GET", path, None);
    assert_eq!(status, 200, "{page}");
    page["items"].clone()
}

fn said(dev: &Dev) -> ClusterAnswers {
    let pools = items(dev, "/v1/pools");
    let policies = pools.as_array().unwrap().iter().flat_map(|pool| {
        let name = pool["name"].as_str().unwrap();
        let all = items(dev, &format!("/v1/pools/{name}/policies"));
        all.as_array().unwrap().clone()
    });
    let policies = policies.collect();
    let steps = ["low", "high", "gone"].map(|id| {
        let (_, mut step) = dev.call("GET", &format!("/v1/steps/{id}"), None);
        // Origins of values are shown of one step, and not of many.
        step.as_object_mut().unwrap().remove("merged");
        step
    });
    ClusterAnswers {
        pools,
        policies,
        nodes: deaf(items(dev, "/v1/nodes")),
        steps: steps.into(),
    }
}

/// Heartbeats and sensor readings are in no record.
fn deaf(mut nodes: Value) -> Value {
    for node in nodes.as_array_mut().unwrap() {
        node["heard_at"] = Value::Null;
    }
    nodes
}

/// Runs the cluster of the page, in which `high` preempts `low`, and stops it with SIGTERM.
fn lived() -> LeftDirectory {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    fs::write(&file, shown("```yaml").join("\n")).unwrap();
    let data = folder.path().join("cluster");
    let dev = Dev::with(DevOptions {
        data: Some(data.clone()),
        files: vec![file],
        ..DevOptions::default()
    });
    let start = "sluice dev --data ./cluster --file cluster.yaml";
    for line in shown(start) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], "sluice", "{line}");
        dev.ok(&words[1..]);
    }
    let running = replay(&data, &[]);
    assert_eq!(running.status.code(), Some(1));
    let refused = stderr(&running);
    assert!(refused.contains("a coordinator runs in"), "{refused}");
    let (seq, said) = eventually("a moment in which nothing happens", || {
        let before = last_event(&dev);
        let said = said(&dev);
        (last_event(&dev) == before).then_some((before, said))
    });
    let named = dev.ok(&["get", "events", "--step", "low"]);
    assert!(named.contains("by=high why=preempted"), "{named}");
    let on_host = dev.ok(&["get", "events", "--node", "h1", "-o", "json"]);
    let on_host: Value = serde_json::from_str(&on_host).unwrap();
    let types: Vec<&str> = on_host["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["type"].as_str().unwrap())
        .collect();
    assert_eq!(&types[..2], ["node_reported", "node_ready"]);
    assert!(
        types.contains(&"nominated") && !types.contains(&"step_queued"),
        "{types:?}"
    );
    let (status, log) = dev.stop();
    assert!(status.success(), "{log}");
    LeftDirectory {
        _folder: folder,
        data,
        seq,
        said,
    }
}

fn replay(data: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(binaries().join("sluice"));
    command.env_remove("SLUICE_CONTEXT").arg("replay").arg(data);
    command.args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(data: &Path, args: &[&str]) -> String {
    let output = replay(data, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn json_of(data: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&stdout(data, &[args, &["-o", "json"]].concat())).unwrap()
}

/// Reads every file of the coordinator's part.
fn files(data: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(data.join("coordinator")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.is_file());
    files
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[test]
fn the_past_is_what_the_api_said_then_and_stays_as_it_is() {
    let left = lived();
    let before = files(&left.data);
    assert!(before.len() > 1, "{:?}", before.keys());
    let at = left.seq.to_string();
    let then = json_of(&left.data, &["--at", &at]);
    let told = ClusterAnswers {
        pools: then["pools"].clone(),
        policies: then["policies"].as_array().unwrap().clone(),
        nodes: deaf(then["nodes"].clone()),
        steps: then["steps"].as_array().unwrap().clone(),
    };
    assert_eq!(told, left.said);
    let last = then["last"].as_u64().unwrap();
    assert_eq!(
        (then["first"].as_u64(), then["seq"].as_u64()),
        (Some(0), Some(left.seq))
    );
    assert!(last >= left.seq);
    for seq in 0..=last {
        let seq = seq.to_string();
        let once = stdout(&left.data, &["--at", &seq]);
        assert_eq!(once, stdout(&left.data, &["--at", &seq]), "record {seq}");
    }
    for args in [&[][..], &["--diff", "0", &at], &["-o", "yaml"]] {
        assert_eq!(
            stdout(&left.data, args),
            stdout(&left.data, args),
            "{args:?}"
        );
    }
    assert!(files(&left.data) == before, "it was written to");
    for (args, expected) in [
        (
            &["--at", "9999"][..],
            "error: record 9999 has not happened: the last is",
        ),
        (
            &["--diff", "3", "2"],
            "error: record 3 comes after record 2",
        ),
        (
            &["--at", "1", "--step", "low"],
            "error: there is no step `low` at record 1",
        ),
    ] {
        let refused = replay(&left.data, args);
        assert_eq!(refused.status.code(), Some(1), "{args:?}");
        assert!(
            stderr(&refused).starts_with(expected),
            "{}",
            stderr(&refused)
        );
    }
    damage_is_named(&left);
}

fn damage_is_named(left: &LeftDirectory) {
    let changes = json_of(&left.data, &["--diff", "0", &left.seq.to_string()]);
    let changes = changes["changes"].as_array().unwrap();
    let stopping = changes.iter().find(|change| change["type"] == "stopping");
    let stopping = stopping.unwrap()["seq"].as_u64().unwrap();
    let file = left.data.join("coordinator/store.redb");
    let mut bytes = fs::read(&file).unwrap();
    let word = format!(r#"{{"seq":{stopping},"#).into_bytes();
    let places = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&word));
    let places: Vec<usize> = places.collect();
    assert!(!places.is_empty(), "the record is in the file");
    for place in places {
        bytes[place + 2] ^= 1;
    }
    fs::write(&file, bytes).unwrap();
    let refused = replay(&left.data, &[]);
    assert_eq!(refused.status.code(), Some(1));
    let words = stderr(&refused);
    let record = format!("table `log`, record {stopping}: the checksum says");
    for part in ["coordinator/store.redb", &*record] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let before = json_of(&left.data, &["--at", &(stopping - 1).to_string()]);
    let low = before["steps"]
        .as_array()
        .unwrap()
        .iter()
        .find(|step| step["id"] == "low");
    assert_eq!(low.unwrap()["state"], json!("running"));
}

/// Returns the words of a line without the number and the time before them.
fn change(line: &str) -> Vec<&str> {
    line.split_whitespace().skip(2).collect()
}

/// Returns the words of a line without ages, such as `3s`.
fn ageless(line: &str) -> Vec<&str> {
    let is_age = |word: &str| {
        let number = word.strip_suffix(['s', 'm']);
        number.is_some_and(|number| number.parse::<u64>().is_ok())
    };
    let words = line.split_whitespace();
    words.filter(|word| !is_age(word)).collect()
}

#[test]
fn what_the_documentation_shows_is_what_comes_out() {
    let left = lived();
    let to = left.seq.to_string();
    for step in ["low", "high"] {
        let text = stdout(&left.data, &["--diff", "0", &to, "--step", step]);
        let page = shown(&format!(
            "$ sluice replay ./cluster --diff 0 23 --step {step}"
        ));
        let told: Vec<Vec<&str>> = text.lines().map(change).collect();
        let page: Vec<Vec<&str>> = page.into_iter().map(change).collect();
        assert_eq!(told, page, "{text}");
    }
    let text = stdout(&left.data, &["--at", &to]);
    let page = shown("$ sluice replay ./cluster --at 23");
    // The first line differs from run to run: the cluster's id and the time.
    let told: Vec<Vec<&str>> = text.lines().skip(1).map(ageless).collect();
    let page: Vec<Vec<&str>> = page.into_iter().skip(1).map(ageless).collect();
    assert_eq!(told, page, "{text}");
}
