//! Daemons are killed at random moments while steps run: every accepted step ends exactly once, with its full output.
//!
//! `SLUICE_CRASH_ROUNDS` sets the number of rounds (default 50), `SLUICE_CRASH_SEED` repeats a run's choices; the seed
//! is in the message of a failure.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_tests::{Daemon, Dev, eventually, eventually_within};

/// Lines that each step writes, a few milliseconds apart, so that kills fall between them.
const LINES: u32 = 40;
const STEPS_A_ROUND: u32 = 3;

/// Daemons that are killed together in one round.
const VICTIMS: [&[Daemon]; 5] = [
    &[Daemon::Coordinator],
    &[Daemon::Agent],
    &[Daemon::Coordinator, Daemon::Agent],
    &[Daemon::Agent, Daemon::Coordinator],
    &[Daemon::Supervisor],
];

/// Pseudo-random numbers of a seed, for repeatable failures: xorshift64*.
struct RandomChoices(u64);

impl RandomChoices {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Expected end of a step.
struct Expected {
    code: i64,
    /// A supervisor was killed while it may have run: its exit may be unknown.
    unseen: bool,
}

#[test]
fn every_accepted_step_ends_exactly_once_with_its_full_output() {
    let rounds = from_environment("SLUICE_CRASH_ROUNDS").unwrap_or(50);
    let seed =
        from_environment("SLUICE_CRASH_SEED").unwrap_or_else(|| getrandom::u64().unwrap() | 1);
    let dev = Dev::start();
    let starts = tempfile::tempdir().unwrap();
    let mut choices = RandomChoices(seed);
    let mut accepted: BTreeMap<String, Expected> = BTreeMap::new();
    for round in 0..rounds {
        let victims = VICTIMS[choices.below(VICTIMS.len() as u64) as usize];
        // A step that has not ended before a supervisor is killed may end unseen.
        let unseen = victims.contains(&Daemon::Supervisor);
        if unseen {
            accepted
                .values_mut()
                .for_each(|expected| expected.unseen = true);
        }
        for number in 0..STEPS_A_ROUND {
            let id = format!("r{round}-{number}");
            let code = choices.below(3) as i64;
            submit(&dev, &id, code, starts.path());
            accepted.insert(id, Expected { code, unseen });
        }
        std::thread::sleep(Duration::from_millis(choices.below(250)));
        for victim in victims {
            dev.kill(*victim);
        }
    }
    for (id, expected) in &accepted {
        judge(&dev, id, expected, seed, starts.path());
    }
    each_ended_once(&dev, accepted.keys(), seed);
}

/// Submits until it is answered: the id makes repeats harmless, and an answered submit must not be lost.
fn submit(dev: &Dev, id: &str, code: i64, starts: &Path) {
    let started = starts.join(id);
    let script = format!(
        "echo started >> {}; i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo {id} $i; echo $i >&2; sleep 0.005; done; exit {code}",
        started.display()
    );
    let body = json!({"id": id, "command": ["sh", "-c", script], "resources": {"cpu_count": 0.01}})
        .to_string();
    eventually(&format!("{id} to be accepted"), || {
        let (status, answer) = dev.try_call("POST", "/v1/steps", Some(&body))?;
        match status {
            200 | 201 => Some(()),
            503 => None,
            other => panic!("{id}: {other} {answer}"),
        }
    });
}

fn judge(dev: &Dev, id: &str, expected: &Expected, seed: u64, starts: &Path) {
    let step = eventually_within(
        Duration::from_secs(120),
        &format!("{id} to end (seed {seed})"),
        || {
            let (status, step) = dev.try_call("GET", &format!("/v1/steps/{id}"), None)?;
            assert_eq!(
                status, 200,
                "{id} was accepted and is lost (seed {seed}): {step}"
            );
            matches!(step["state"].as_str(), Some("succeeded" | "failed")).then_some(step)
        },
    );
    // An attempt of which the supervisor was never told is followed by another, and was never started.
    let attempts = step["attempts"].as_array().unwrap();
    let (_, earlier) = attempts.split_last().unwrap();
    assert!(
        earlier.iter().all(|it| it["started_at"].is_null()),
        "{id} ran twice (seed {seed}): {step}"
    );
    let started = std::fs::read_to_string(starts.join(id)).unwrap_or_default();
    assert_eq!(started, "started\n", "starts of {id} (seed {seed}): {step}");
    let seen = step["exit"]["code"].as_i64();
    let unseen = expected.unseen && step["reason"]["code"] == "exit_unknown";
    assert!(
        unseen || seen == Some(expected.code),
        "{id} (seed {seed}) wants {}: {step}",
        expected.code
    );
    let stdout: String = (1..=LINES).map(|i| format!("{id} {i}\n")).collect();
    let stderr: String = (1..=LINES).map(|i| format!("{i}\n")).collect();
    for (stream, whole) in [("stdout", stdout), ("stderr", stderr)] {
        let text = eventually(&format!("{stream} of {id} (seed {seed})"), || {
            output(dev, id, stream)
        });
        assert_eq!(text, whole, "{stream} of {id} (seed {seed})");
    }
}

/// Returns the output; `None` while the node is away.
fn output(dev: &Dev, id: &str, stream: &str) -> Option<String> {
    let (status, body) =
        dev.try_call("GET", &format!("/v1/steps/{id}/logs?stream={stream}"), None)?;
    match (status, body) {
        (200, Value::String(text)) => Some(text),
        (200, number @ Value::Number(_)) => Some(number.to_string()),
        (503, _) => None,
        (status, body) => panic!("{id}: {status} {body}"),
    }
}

fn each_ended_once<'a>(dev: &Dev, ids: impl Iterator<Item = &'a String>, seed: u64) {
    let ends = ends(dev);
    for id in ids {
        assert_eq!(ends.get(id), Some(&1), "ends of {id} (seed {seed})");
    }
}

/// Counts the end events of each step, skipping none.
pub(super) fn ends(dev: &Dev) -> BTreeMap<String, u32> {
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    let mut since = 0;
    loop {
        let (status, page) = dev.call("GET", &format!("/v1/events?since={since}"), None);
        assert_eq!(status, 200, "{page}");
        for event in page["items"].as_array().unwrap() {
            let seq = event["seq"].as_u64().unwrap();
            assert_eq!(seq, since + 1, "an event is skipped");
            since = seq;
            if event["type"] == "step_ended" {
                let step = event["step"].as_str().unwrap().to_owned();
                *ends.entry(step).or_default() += 1;
            }
        }
        if page.get("next_cursor").is_none_or(Value::is_null) {
            return ends;
        }
    }
}
