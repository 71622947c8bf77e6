//! Inputs of steps: files of the caller that are in the step's own directory before its program starts, on each host and in
//! each part; what is refused; and daemons that are killed meanwhile.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ring::digest::{SHA256, digest};
use serde_json::json;
use sluice_tests::{Daemon, Dev, eventually};

/// Size of a file that takes a while.
const LARGE_BYTES: usize = 60 * 1024 * 1024;

fn sum(bytes: &[u8]) -> String {
    let digits = digest(&SHA256, bytes);
    let digits = digits.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

fn write_large(path: &Path) -> String {
    let words = (0..LARGE_BYTES as u32 / 4).map(|n| n.wrapping_mul(2_654_435_761));
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    fs::write(path, &bytes).unwrap();
    sum(&bytes)
}

#[test]
fn files_are_in_the_step_s_own_directory_before_it_starts() {
    let dev = Dev::start();
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join(name).display().to_string();
    fs::create_dir_all(here.path().join("src/deep")).unwrap();
    fs::write(at("src/deep/a.txt"), "deep").unwrap();
    fs::write(at("src/none"), "").unwrap();
    fs::write(
        at("run.sh"),
        "#!/bin/sh\ncat \"$1\" src/deep/a.txt; ls -A . src; wc -c < src/none\n",
    )
    .unwrap();
    fs::set_permissions(at("run.sh"), Permissions::from_mode(0o755)).unwrap();
    fs::write(at("data.csv"), "1,2\n").unwrap();
    let renamed = at("data.csv") + ":data/train.csv";
    let (script, src) = (at("run.sh"), at("src"));
    let shown = dev.ok(&[
        "run",
        "--id",
        "a",
        "--input",
        &script,
        "--input",
        &renamed,
        "--input",
        &src,
        "--",
        "./run.sh",
        "data/train.csv",
    ]);
    assert_eq!(
        shown,
        "1,2\ndeep.:\ndata\nrun.sh\nsrc\n\nsrc:\ndeep\nnone\n0\n"
    );
    let described = dev.ok(&["describe", "step", "a"]);
    assert!(described.contains("data/train.csv (4B)"), "{described}");
    // The coordinator has the file now, and each part of an array gets it.
    let array = [
        "submit",
        "--id",
        "b",
        "--array",
        "0-2",
        "--input",
        &renamed,
        "--",
        "sh",
        "-c",
        "cat data/train.csv; pwd",
    ];
    dev.ok(&array);
    dev.step_in("b", &["succeeded"]);
    for part in ["b.0", "b.1", "b.2"] {
        assert!(dev.ok(&["logs", part]).starts_with("1,2\n/"), "{part}");
    }
    let left = fs::read_dir(dev.data()).unwrap().count();
    assert!(left > 0);
}

#[test]
fn a_large_input_is_whole_whichever_daemon_is_killed_meanwhile() {
    let dev = Dev::start();
    let here = tempfile::tempdir().unwrap();
    let large = here.path().join("large");
    let expected = write_large(&large);
    let large = large.display().to_string();
    for (round, daemon) in [Daemon::Agent, Daemon::Coordinator, Daemon::Supervisor]
        .into_iter()
        .enumerate()
    {
        let id = format!("r{round}");
        let name = format!("{large}:d/large");
        let args = [
            "submit",
            "--id",
            &id,
            "--input",
            &name,
            "--",
            "sha256sum",
            "d/large",
        ];
        dev.ok(&args);
        dev.kill(daemon);
        dev.step_in(&id, &["succeeded"]);
        let shown = dev.ok(&["logs", &id]);
        assert_eq!(shown, format!("{expected}  d/large\n"), "{daemon:?}");
    }
    // The agent keeps no copy of what has started.
    eventually("no inputs are left", || {
        let found = walk(dev.data());
        let left = found.iter().filter(|path| path.contains("/agent/inputs/"));
        (left.count() == 0).then_some(())
    });
}

fn walk(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let Ok(entries) = fs::read_dir(&path) else {
            continue;
        };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push(entry.path()),
                Ok(_) | Err(_) => found.push(entry.path().display().to_string()),
            }
        }
    }
    found
}

#[test]
fn what_cannot_be_an_input_is_refused_with_one_error() {
    let dev = Dev::start();
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join(name).display().to_string();
    fs::write(at("a"), "a").unwrap();
    let large = File::create(at("large")).unwrap();
    large.set_len(65 * 1024 * 1024).unwrap();
    let (file, up) = (at("a"), at("a") + ":../a");
    let (absolute, renamed) = (at("a") + ":/etc/a", at("a") + ":x/a");
    for (args, words) in [
        (vec!["--input", &at("none")], "cannot be read: No such file"),
        (vec!["--input", &at("large")], "the maximum is 64MiB"),
        (vec!["--input", &up], "without `..`"),
        (vec!["--input", &absolute], "not beginning with `/`"),
        (
            vec!["--input", &file, "--input", &file],
            "`a` is there twice",
        ),
        (
            vec!["--input", &renamed, "--input", &(at("a") + ":x")],
            "a file and a directory",
        ),
        (
            vec!["--input", &file, "--workdir", "/tmp"],
            "names another: leave out one of them",
        ),
    ] {
        let typed = [&["submit"], &args[..], &["--", "true"]].concat();
        let refused = dev.sluice(&typed);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(
            refused.stderr.contains(words),
            "{words}: {}",
            refused.stderr
        );
        assert!(refused.stderr.contains("--input"), "{}", refused.stderr);
    }
    // What the caller has not uploaded is not his, whether it is there or not.
    let step = |sha256: &str, workdir: Option<&str>| {
        let inputs = json!([{"name": "a", "sha256": sha256, "size": 1}]);
        json!({"command": ["true"], "inputs": inputs, "workdir": workdir}).to_string()
    };
    for (body, code, words) in [
        (
            step(&sum(b"a"), None),
            "missing_input",
            "inputs: `a` was not uploaded",
        ),
        (
            step("zz", None),
            "invalid_body",
            "inputs[0].sha256: it is no SHA-256",
        ),
        (
            step(&sum(b"a"), Some("/tmp")),
            "contradiction",
            "leave out one of them",
        ),
    ] {
        let (_, answer) = dev.call("POST", "/v1/steps", Some(&body));
        let error = &answer["error"];
        assert_eq!(error["code"], code, "{answer}");
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{answer}"
        );
    }
    let path = format!("/v1/inputs/{}", sum(b"a"));
    assert_eq!(dev.call("GET", &path, None).0, 404);
    let (status, answer) = dev.call("PUT", &path, Some("b"));
    assert_eq!(
        (status, &answer["error"]["code"]),
        (400, &json!("invalid_body"))
    );
    assert_eq!(dev.call("PUT", &path, Some("a")).0, 200);
    let (_, found) = dev.call("GET", &path, None);
    assert_eq!(found, json!({"sha256": sum(b"a"), "size": 1}));
}
