//! Rules of the code that the compiler does not check: dependencies between crates, what each crate never uses, how
//! files begin, and names and comments.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cycles;
mod functions;
mod map;
mod messages;
mod pages;
mod privileged;
mod tree;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use tree::crates;

/// Allowed dependencies between crates of the product. `ARCHITECTURE.md` explains them.
const ARROWS: &[(&str, &[&str])] = &[
    ("sluice-common", &[]),
    ("sluice-codec", &[]),
    ("sluice-copy", &["sluice-codec", "sluice-common"]),
    ("sluice-log", &["sluice-common"]),
    ("sluice-transport", &["sluice-codec", "sluice-common"]),
    ("sluice-scheduler", &["sluice-common"]),
    ("sluice-reasons", &["sluice-common", "sluice-scheduler"]),
    (
        "coordinator-core",
        &["sluice-common", "sluice-reasons", "sluice-scheduler"],
    ),
    (
        "sluice-coordinator",
        &[
            "coordinator-core",
            "sluice-codec",
            "sluice-common",
            "sluice-log",
            "sluice-reasons",
            "sluice-scheduler",
            "sluice-transport",
        ],
    ),
    ("agent-core", &["sluice-common"]),
    ("sluice-cgroups", &["sluice-common"]),
    (
        "sluice-helper",
        &["sluice-codec", "sluice-common", "sluice-copy", "sluice-log"],
    ),
    (
        "sluice-supervisor",
        &[
            "sluice-cgroups",
            "sluice-codec",
            "sluice-common",
            "sluice-log",
        ],
    ),
    (
        "sluice-agent",
        &[
            "agent-core",
            "sluice-cgroups",
            "sluice-codec",
            "sluice-common",
            "sluice-copy",
            "sluice-log",
            "sluice-transport",
        ],
    ),
    (
        "sluice-simulator",
        &["coordinator-core", "sluice-common", "sluice-scheduler"],
    ),
    (
        "sluice",
        &["sluice-common", "sluice-copy", "sluice-simulator"],
    ),
    ("sluice-tests", &["sluice-common"]),
    ("sluice-cuda-standin", &[]),
    ("sluice-fuzz", &[]),
    ("sluice-nvml-standin", &[]),
];

/// Crates without access to clock, sockets and files: they have no `std`.
const NO_STD: &[&str] = &[
    "common",
    "coordinator/core",
    "coordinator/reasons",
    "coordinator/scheduler",
    "agent/core",
];

/// A word, the only place in which code may use it, and why.
const OWNED_WORDS: &[(&str, &str, &str)] = &[
    (
        "bincode::",
        "common/codec/src/",
        "the codec can be replaced in one place",
    ),
    (
        "redb::",
        "coordinator/src/store",
        "the store can be replaced in one place",
    ),
    (
        "quinn::",
        "common/transport/src/",
        "nobody else sees a socket of the link",
    ),
    (
        "Reason::new",
        "coordinator/reasons/src/messages/",
        "every sentence about a step is made in one room",
    ),
    (
        "nvml_wrapper::",
        "agent/src/detect/",
        "one file for each detector",
    ),
];

/// Most lines of a product file without its tests.
const MOST_LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns every Rust file of the workspace with its path from the root.
fn sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for top in ["common", "coordinator", "agent", "cli", "tests", "tools"] {
        collect(&root().join(top), &mut found);
    }
    assert!(
        found.len() > 40,
        "the walk over the sources is broken: {} files",
        found.len()
    );
    found
}

fn collect(dir: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path
                .strip_prefix(root())
                .unwrap()
                .to_string_lossy()
                .into_owned();
            found.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}

/// Fixtures, like tests, are compiled for tests alone.
fn is_product(path: &str) -> bool {
    let apart = [
        "/tests/",
        "/tests.rs",
        "/benches/",
        "/fixture/",
        "/fixture.rs",
    ];
    !path.starts_with("tests/") && !apart.iter().any(|place| path.contains(place))
}

#[test]
fn arrows_between_crates_are_those_that_were_drawn() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let ours: Vec<&str> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        ours.len(),
        ARROWS.len(),
        "a crate without a row in ARROWS: {ours:?}"
    );
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let (_, allowed) = ARROWS.iter().find(|(known, _)| *known == name).expect(name);
        let drawn = package["dependencies"].as_array().unwrap().iter();
        let drawn = drawn
            .filter(|dependency| dependency["kind"].is_null())
            .map(|d| d["name"].as_str().unwrap());
        for target in drawn.filter(|target| ours.contains(target)) {
            assert!(
                allowed.contains(&target),
                "{name} -> {target} is no arrow of the architecture"
            );
        }
    }
}

#[test]
fn nothing_that_runs_as_root_can_reach_a_network() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "-p",
            "sluice-supervisor",
            "-e",
            "normal",
            "--prefix",
            "none",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    let tree = String::from_utf8(tree.stdout).unwrap();
    assert!(
        tree.contains("sluice-codec"),
        "the walk over the tree is broken: {tree}"
    );
    for banned in [
        "tokio ",
        "quinn",
        "rustls",
        "hyper",
        "axum",
        "ureq",
        "socket2",
        "libloading",
        "sluice-helper",
        // The helper parses what people write.
        "toml",
    ] {
        assert!(
            !tree.lines().any(|line| line.starts_with(banned)),
            "the supervisor links {banned}:\n{tree}"
        );
    }
    for (path, text) in sources().iter().filter(|(path, _)| {
        let linked = ["agent/supervisor/src/", "agent/cgroups/src/"];
        linked.iter().any(|place| path.starts_with(place))
    }) {
        for banned in [
            "std::net",
            "AF_INET",
            "AddressFamily::Inet",
            "TcpStream",
            "UdpSocket",
        ] {
            assert!(!text.contains(banned), "{path} names {banned}");
        }
    }
}

#[test]
fn nothing_is_loaded_into_the_supervisor() {
    let opens = |text: &str| text.contains("dlopen") || text.contains("libloading");
    let sources = sources();
    let all = sources.iter().filter(|(path, text)| {
        path.starts_with("agent/") && !path.starts_with("agent/src/") && opens(text)
    });
    let all: Vec<&String> = all.map(|(path, _)| path).collect();
    assert_eq!(
        all,
        ["agent/helper/src/checkpoint/library.rs"],
        "libraries are opened in the helper alone, which the supervisor does not link"
    );
}

#[test]
fn cores_have_no_std() {
    for place in NO_STD {
        let text = fs::read_to_string(root().join(place).join("src/lib.rs")).unwrap();
        assert!(
            text.lines().any(|line| line == "#![no_std]"),
            "{place} is no longer no_std"
        );
        let inside = format!("{place}/src/");
        let files = crates().iter().flat_map(|it| &it.files);
        for file in files.filter(|it| it.path.starts_with(&inside)) {
            let uses = file.paths.iter().find(|path| path[0] == "std");
            assert!(uses.is_none(), "{} uses {uses:?}", file.path);
        }
    }
}

#[test]
fn each_word_is_said_in_its_place_only() {
    for (path, text) in sources().iter().filter(|(path, _)| is_product(path)) {
        for (word, place, why) in OWNED_WORDS {
            assert!(
                path.starts_with(place) || !text.contains(word),
                "{path} names {word}: {why}"
            );
        }
    }
}

#[test]
fn files_begin_by_saying_what_they_own() {
    for (path, text) in sources() {
        assert!(text.starts_with("//!"), "{path} does not begin with `//!`");
    }
}

#[test]
fn files_stay_readable() {
    for file in crates().iter().flat_map(|it| &it.files) {
        let (path, lines) = (&file.path, file.lines);
        assert!(
            lines <= MOST_LINES,
            "{path} has {lines} lines besides its tests: which of its two reasons to change moves out?"
        );
    }
}

#[test]
fn ci_runs_the_readme_s_test_command() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    let command = "tests/run.sh";
    assert!(readme.lines().any(|line| line == command));
    let runs = |line: &str| line.starts_with("exec ") && line.contains(command);
    assert!(ci.lines().any(runs));
}
