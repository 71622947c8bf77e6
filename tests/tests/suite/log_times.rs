//! Times of output: `logs --timestamps` and `--since`, while a step runs and after, when a writer was killed, and of output
//! whose host kept no times.

use std::fs::{self, File};
use std::path::PathBuf;
use std::thread;
use std::time::SystemTime;

use nix::sys::signal::Signal;
use sluice_common::api::{parse_timestamp, timestamp};
use sluice_common::time::{Span, Time};
use sluice_tests::{Daemon, Dev, children_of, eventually, kill};

const SECOND: Span = Span::from_secs(1);

/// A line, and two more once it is told to go on.
const SCRIPT: &str =
    "echo first; until [ -e GATE ]; do sleep 0.02; done; echo second; printf third";

/// Submits the script; returns the file that lets it go on.
fn submit(dev: &Dev, id: &str) -> PathBuf {
    let gate = dev.folder().join(format!("{id}.go"));
    let script = SCRIPT.replace("GATE", gate.to_str().unwrap());
    dev.ok(&[
        "submit", "--id", id, "--cpus", "0.1", "--", "sh", "-c", &script,
    ]);
    eventually("the first line", || {
        (dev.sluice(&["logs", id]).stdout == "first\n").then_some(())
    });
    gate
}

fn now() -> Time {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Time::from_unix_millis(u64::try_from(now.unwrap().as_millis()).unwrap())
}

/// Waits until the clock shows a later time, because times of output are known to a second.
fn two_seconds_later() -> Time {
    let end = now() + Span::from_secs(2);
    eventually("two seconds to pass", || (now() >= end).then_some(()));
    end
}

/// The lines with their times.
fn timed(text: &str) -> Vec<(Time, &str)> {
    let lines = text.lines().map(|line| {
        let (at, line) = line.split_once(' ').unwrap();
        (parse_timestamp(at).unwrap(), line)
    });
    lines.collect()
}

fn marks(dev: &Dev, id: &str) -> PathBuf {
    let attempts = dev.data().join("supervisor/attempts");
    attempts.join(format!("{id}.1")).join("dropped")
}

#[test]
fn lines_have_the_time_at_which_they_were_written_and_older_ones_can_be_left_out() {
    let dev = Dev::start();
    let before = now();
    let gate = submit(&dev, "one");
    let between = two_seconds_later();
    let follow = thread::scope(|scope| {
        let followed = scope.spawn(|| dev.ok(&["logs", "-f", "--timestamps", "one"]));
        File::create(&gate).unwrap();
        followed.join().unwrap()
    });
    dev.ok(&["wait", "one"]);
    let text = dev.ok(&["logs", "--timestamps", "one"]);
    assert_eq!(text, follow);
    let lines = timed(&text);
    let words: Vec<&str> = lines.iter().map(|(_, line)| *line).collect();
    assert_eq!(words, ["first", "second", "third"]);
    assert!(before.before(SECOND) < lines[0].0, "{before:?} {lines:?}");
    assert!(lines[0].0 < between.before(SECOND), "{between:?} {lines:?}");
    assert!(between.before(SECOND) < lines[1].0, "{between:?} {lines:?}");
    assert!(lines[1].0 <= now(), "{lines:?}");

    let since = timestamp(between).to_string();
    for at in [&*since, "10m"] {
        let expected = if at == since {
            "second\nthird"
        } else {
            "first\nsecond\nthird"
        };
        assert_eq!(dev.ok(&["logs", "--since", at, "one"]), expected);
        assert_eq!(dev.ok(&["logs", "-f", "--since", at, "one"]), expected);
    }
    let tail = dev.ok(&[
        "logs",
        "--timestamps",
        "--since",
        "10m",
        "--tail",
        "1",
        "one",
    ]);
    assert!(text.ends_with(&tail) && tail.ends_with(" third"), "{tail}");
    assert_eq!(
        dev.ok(&["logs", "--since", "2099-01-01T00:00:00Z", "one"]),
        ""
    );
    let refused = dev.sluice(&["logs", "--since", "yesterday", "one"]);
    assert!(
        refused.stderr.contains("write a duration such as `10m`"),
        "{refused:?}"
    );

    submit(&dev, "two");
    let both = dev.ok(&["logs", "--timestamps", "--since", &since, "one", "two"]);
    let steps: Vec<(&str, &str)> = both
        .lines()
        .map(|line| {
            (
                line.split_once(": ").unwrap().0,
                line.rsplit(' ').next().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        steps,
        [("one", "second"), ("one", "third"), ("two", "first")]
    );
}

#[test]
fn a_killed_writer_leaves_no_wrong_times() {
    let dev = Dev::start();
    let gate = submit(&dev, "kept");
    let between = two_seconds_later();
    let children = children_of(dev.daemon(Daemon::Supervisor).unwrap());
    let is_writer = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sluice-writer\n")
    };
    kill(
        children.into_iter().find(is_writer).unwrap(),
        Signal::SIGKILL,
    );
    File::create(&gate).unwrap();
    dev.ok(&["wait", "kept"]);
    let text = dev.ok(&["logs", "--timestamps", "kept"]);
    let lines = timed(&text);
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].0 < between.before(SECOND), "{text}");
    assert!(between.before(SECOND) < lines[1].0, "{text}");
}

#[test]
fn output_without_times_says_so_and_shows_none() {
    let dev = Dev::start();
    let gate = submit(&dev, "old");
    File::create(&gate).unwrap();
    dev.ok(&["wait", "old"]);
    // As an earlier release left it: marks of dropped output alone.
    let marks = File::options()
        .write(true)
        .open(marks(&dev, "old"))
        .unwrap();
    marks.set_len(32).unwrap();
    let ran = dev.sluice(&["logs", "--timestamps", "old"]);
    assert_eq!((ran.code, &*ran.stdout), (0, "- first\n- second\n- third"));
    let words = "the host kept no times of a part of the stdout of old: the lines with `-`";
    assert_eq!(ran.stderr.matches(words).count(), 1, "{ran:?}");
    let ran = dev.sluice(&["logs", "--since", "10m", "old"]);
    assert_eq!(ran.stdout, "");
    let words = "its host kept no times of this output: read it without `since`";
    assert!(ran.code != 0 && ran.stderr.contains(words), "{ran:?}");
    assert_eq!(dev.ok(&["logs", "old"]), "first\nsecond\nthird");
}
