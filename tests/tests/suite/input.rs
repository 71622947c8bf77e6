//! Standard input of steps: what `sluice run` passes on arrives once and whole, whatever dies meanwhile, or the command
//! says why it cannot.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use sluice_tests::{Daemon, Dev, eventually, kill};

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

fn assert_printed(output: &Output, what: &str, printed: &[u8]) {
    assert_eq!(output.status.code(), Some(0), "{what}: {output:?}");
    assert!(output.stdout == printed, "{what}: {output:?}");
}

/// The numbers from 1 on, one a line.
fn numbers(to: u32) -> Vec<u8> {
    let mut text = String::new();
    for number in 1..=to {
        writeln!(text, "{number}").unwrap();
    }
    text.into_bytes()
}

/// Writes input until the step takes no more; counts what was written.
fn write_forever(mut stdin: ChildStdin, piece: Vec<u8>) -> Arc<AtomicU64> {
    let written = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&written);
    std::thread::spawn(move || {
        while stdin.write_all(&piece).is_ok() {
            count.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
    });
    written
}

/// Waits until a number has stood still for a while; returns it.
fn settled(number: &AtomicU64) -> u64 {
    let mut last = (u64::MAX, std::time::Instant::now());
    eventually("the input to be held up", || {
        let now = number.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, std::time::Instant::now());
        }
        (last.1.elapsed() > Duration::from_millis(700)).then_some(now)
    })
}

#[test]
fn a_pipe_a_file_and_a_socket_arrive_and_end() {
    let dev = Dev::start();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"hi\n").unwrap();
    drop(writer);
    assert_printed(&run(&dev, reader, "pipe", &["cat"]), "a pipe", b"hi\n");
    let path = dev.folder().join("words");
    std::fs::write(&path, "some words\n").unwrap();
    let mut file = File::open(&path).unwrap();
    file.read_exact(&mut [0; 5]).unwrap();
    assert_printed(&run(&dev, file, "file", &["cat"]), "a file", b"words\n");
    let (socket, mut writer) = UnixStream::pair().unwrap();
    writer.write_all(b"hi\n").unwrap();
    drop(writer);
    let socket = std::os::fd::OwnedFd::from(socket);
    assert_printed(&run(&dev, socket, "socket", &["cat"]), "a socket", b"hi\n");
    // `submit` leaves its input to other readers, and its step has none.
    let submit = ["submit", "--id", "kept", "--", "cat"];
    let file = File::open(&path).unwrap();
    let submit = dev.command(&submit).stdin(file).output().unwrap();
    assert_eq!(submit.status.code(), Some(0), "{submit:?}");
    dev.step_in("kept", &["succeeded"]);
    assert_eq!(dev.ok(&["logs", "kept"]), "");
}

#[test]
fn input_without_data_and_a_step_that_reads_none_end_as_they_should() {
    let dev = Dev::start();
    let (ended, writer) = std::io::pipe().unwrap();
    drop(writer);
    let (silent, _open) = std::io::pipe().unwrap();
    let (socket, _peer) = UnixStream::pair().unwrap();
    let empty = dev.folder().join("empty");
    std::fs::write(&empty, "").unwrap();
    let full = dev.folder().join("full");
    std::fs::write(&full, numbers(1000)).unwrap();
    let inputs: [(&str, Stdio); 6] = [
        ("null", Stdio::null()),
        ("ended", ended.into()),
        ("silent", silent.into()),
        ("socket", std::os::fd::OwnedFd::from(socket).into()),
        ("empty", File::open(&empty).unwrap().into()),
        ("full", File::open(&full).unwrap().into()),
    ];
    for (id, input) in inputs {
        let output = run(&dev, input, id, &["echo", "done"]);
        assert_printed(&output, id, b"done\n");
        assert!(output.stderr.is_empty(), "{id}: {output:?}");
    }
    // Nothing passes input on to a step that has ended.
    let helpers = || sluice_tests::pids_with_environ("SLUICE_STEP_ID=full").len();
    eventually("the helper to end", || (helpers() == 0).then_some(()));
}

#[test]
fn every_byte_arrives_once_though_daemons_die_meanwhile() {
    let dev = Dev::start();
    let sent = numbers(3_000_000);
    let path = dev.folder().join("numbers");
    std::fs::write(&path, &sent).unwrap();
    // Slow enough for every death to hit it in the middle.
    let slowly = "while dd bs=1M count=1 iflag=fullblock status=none of=piece && [ -s piece ]; \
                  do cat piece; sleep 0.4; done";
    let child = start(
        &dev,
        File::open(&path).unwrap(),
        &["--id", "a", "--workdir", "none", "--", "sh", "-c", slowly],
    );
    dev.step_in("a", &["running"]);
    for daemon in [
        Daemon::Supervisor,
        Daemon::Agent,
        Daemon::Coordinator,
        Daemon::Agent,
    ] {
        dev.kill(daemon);
        eventually("the daemon to come back", || dev.daemon(daemon));
    }
    let output = child.wait_with_output().unwrap();
    // Nobody learns the exit code of a process whose supervisor has died; its output is whole all the same.
    let (came, left) = (output.stdout.len(), sent.len());
    assert!(output.stdout == sent, "{came} bytes of {left} came");
}

#[test]
fn a_step_that_waits_to_read_holds_its_input_up_and_nothing_grows() {
    let dev = Dev::start();
    let go = dev.folder().join("go");
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.05; done; head -c 3000000 | wc -c",
        go.display()
    );
    let mut child = start(
        &dev,
        Stdio::piped(),
        &["--id", "a", "--", "sh", "-c", &script],
    );
    let written = write_forever(child.stdin.take().unwrap(), vec![b'x'; 10_000]);
    dev.step_in("a", &["running"]);
    // The window of `run`, the sockets and pipes on the way: no more, however long it waits.
    let held = settled(&written);
    assert!(
        held < 4_000_000,
        "{held} bytes were read before the step reads"
    );
    std::fs::write(&go, "").unwrap();
    assert_printed(&child.wait_with_output().unwrap(), "a", b"3000000\n");
}

#[test]
fn a_requeued_step_gets_its_input_again_while_it_is_kept_and_else_the_command_says_so() {
    let dev = Dev::start();
    let ran = |id: &str| dev.folder().join(format!("{id}-ran"));
    let script = |id: &str| {
        let ran = ran(id).display().to_string();
        format!("cat; if [ ! -e {ran} ]; then touch {ran}; exit 9; fi")
    };
    let mut child = start(
        &dev,
        Stdio::piped(),
        &[
            "--id",
            "few",
            "--retries",
            "1",
            "--",
            "sh",
            "-c",
            &script("few"),
        ],
    );
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    // Both attempts print it.
    assert_printed(&child.wait_with_output().unwrap(), "few", b"hello\nhello\n");
    let path = dev.folder().join("many");
    std::fs::write(&path, numbers(500_000)).unwrap();
    let args = [
        "--id",
        "many",
        "--retries",
        "1",
        "--",
        "sh",
        "-c",
        &script("many"),
    ];
    let output = start(&dev, File::open(&path).unwrap(), &args)
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125), "{:?}", output.status);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("needs its input from the beginning"),
        "{stderr}"
    );
    dev.step_in("many", &["cancelled"]);
}

#[test]
fn a_file_of_the_host_is_read_by_each_attempt_and_a_missing_one_fails_the_start() {
    let dev = Dev::start();
    let path = dev.folder().join("words");
    std::fs::write(&path, "words\n").unwrap();
    let path = path.to_str().unwrap();
    dev.ok(&["submit", "--id", "a", "--stdin", path, "--", "cat"]);
    dev.step_in("a", &["succeeded"]);
    assert_eq!(dev.ok(&["logs", "a"]), "words\n");
    let missing = dev.sluice(&["run", "--stdin", "/no/such/file", "--", "cat"]);
    assert_eq!(missing.code, 125, "{missing:?}");
    assert!(
        missing
            .stderr
            .contains("`/no/such/file` does not exist on this host"),
        "{missing:?}"
    );
    // The command makes a path absolute, below its own directory.
    dev.ok(&["submit", "--id", "b", "--stdin", "words", "--", "cat"]);
    dev.step_in("b", &["succeeded"]);
    assert_eq!(dev.ok(&["logs", "b"]), "words\n");
    let body = r#"{"command": ["cat"], "stdin": "words"}"#;
    let (status, relative) = dev.call("POST", "/v1/steps", Some(body));
    let message = relative["error"]["message"].as_str().unwrap();
    assert_eq!(status, 400, "{message}");
    assert!(message.contains("begin with `/`"), "{message}");
}

#[test]
fn only_a_step_that_takes_input_has_a_way_in() {
    let dev = Dev::start();
    dev.ok(&["submit", "--id", "a", "--", "sleep", "1000"]);
    dev.step_in("a", &["running"]);
    let (status, body) = dev.call("GET", "/v1/steps/a/input", None);
    assert_eq!(
        (status, &body["error"]["detail"]["parameter"]),
        (400, &"Upgrade".into()),
        "{body}"
    );
    let attached = dev.sluice(&["attach", "-it", "a"]);
    assert_eq!(attached.code, 2, "{attached:?}");
    assert!(attached.stderr.contains("is for terminals"), "{attached:?}");
    // The end of the command that sends its input is no end of the input.
    let mut child = start(&dev, Stdio::piped(), &["--id", "b", "--", "cat"]);
    dev.step_in("b", &["running"]);
    kill(child.id(), Signal::SIGKILL);
    child.wait().unwrap();
    dev.step_in("b", &["running"]);
}
