//! Standard input of `sluice run`: input that would be lost is refused, and an empty one passes.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Child, Output, Stdio};

use sluice_tests::{Dev, eventually};

const WORDS: &str = "standard input holds data";

fn run(dev: &Dev, input: impl Into<Stdio>, id: &str, command: &[&str]) -> Output {
    start(dev, input, &[&["--id", id, "--"], command].concat())
        .wait_with_output()
        .unwrap()
}

fn start(dev: &Dev, input: impl Into<Stdio>, args: &[&str]) -> Child {
    dev.command(&[&["run"], args].concat())
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Checks that it was refused: the code, and the message on stderr.
fn assert_refused(output: &Output, what: &str) {
    assert_eq!(output.status.code(), Some(2), "{what}: {output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(WORDS), "{what}: {stderr}");
    assert!(stderr.contains("</dev/null"), "{what}: {stderr}");
}

fn is_known(dev: &Dev, id: &str) -> bool {
    dev.call("GET", &format!("/v1/steps/{id}"), None).0 == 200
}

#[test]
fn data_on_stdin_is_refused_before_anything_is_submitted() {
    let dev = Dev::start();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"hi\n").unwrap();
    assert_refused(&run(&dev, reader, "pipe", &["cat"]), "a pipe");
    let path = dev.folder().join("words");
    std::fs::write(&path, "hi\n").unwrap();
    let file = File::open(&path).unwrap();
    assert_refused(&run(&dev, file, "file", &["cat"]), "a file");
    let (socket, mut writer) = UnixStream::pair().unwrap();
    writer.write_all(b"hi\n").unwrap();
    let socket = std::os::fd::OwnedFd::from(socket);
    assert_refused(&run(&dev, socket, "socket", &["cat"]), "a socket");
    for id in ["pipe", "file", "socket"] {
        assert!(!is_known(&dev, id), "{id} was submitted");
    }
    // `submit` leaves its input to other readers.
    let submit = ["submit", "--id", "kept", "--", "true"];
    let file = File::open(&path).unwrap();
    let submit = dev.command(&submit).stdin(file).output().unwrap();
    assert_eq!(submit.status.code(), Some(0), "{submit:?}");
}

#[test]
fn input_without_data_stops_nobody() {
    let dev = Dev::start();
    let (ended, writer) = std::io::pipe().unwrap();
    drop(writer);
    let (silent, _open) = std::io::pipe().unwrap();
    let (socket, _peer) = UnixStream::pair().unwrap();
    let empty = dev.folder().join("empty");
    std::fs::write(&empty, "").unwrap();
    let inputs: [(&str, Stdio); 5] = [
        ("null", Stdio::null()),
        ("ended", ended.into()),
        ("silent", silent.into()),
        ("socket", std::os::fd::OwnedFd::from(socket).into()),
        ("empty", File::open(&empty).unwrap().into()),
    ];
    for (id, input) in inputs {
        let output = run(&dev, input, id, &["echo", "done"]);
        assert_eq!(output.status.code(), Some(0), "{id}: {output:?}");
        assert_eq!(output.stdout, b"done\n", "{id}: {output:?}");
        assert!(output.stderr.is_empty(), "{id}: {output:?}");
    }
}

#[test]
fn data_that_comes_while_a_step_runs_makes_no_success() {
    let dev = Dev::start();
    for (id, command, code) in [("good", "cat; exit 0", 2), ("bad", "cat; exit 7", 7)] {
        let go = dev.folder().join(id);
        let (reader, mut writer) = std::io::pipe().unwrap();
        let script = format!(
            "while [ ! -e {} ]; do sleep 0.05; done; {command}",
            go.display()
        );
        let child = start(&dev, reader, &["--id", id, "--", "sh", "-c", &script]);
        dev.step_in(id, &["running"]);
        writer.write_all(b"late\n").unwrap();
        std::fs::write(&go, "").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{id}: {output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(WORDS), "{id}: {stderr}");
    }
}

#[test]
fn data_that_comes_while_a_step_waits_cancels_it() {
    let dev = Dev::start();
    dev.ok(&["cordon", &nodes(&dev)[0]]);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let child = start(&dev, reader, &["--id", "waits", "--", "cat"]);
    dev.step_in("waits", &["queued"]);
    writer.write_all(b"late\n").unwrap();
    assert_refused(&child.wait_with_output().unwrap(), "a step that waits");
    dev.step_in("waits", &["cancelled"]);
}

fn nodes(dev: &Dev) -> Vec<String> {
    eventually("a node", || {
        let names = dev.ok(&["get", "nodes", "-o", "name"]);
        let names: Vec<String> = names.lines().map(str::to_owned).collect();
        (!names.is_empty()).then_some(names)
    })
}
