//! Measures the time from submit to the step's first instruction, and its lower bounds in the same run: one durable
//! append and one spawn of `/bin/true`. `cargo bench -p sluice-tests` after `cargo build --release`; prints medians of
//! 100.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot measure has nothing to say"
)]

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sluice_tests::{Dev, eventually, median, report, say};

const ROUNDS: usize = 100;

fn main() {
    let dev = Dev::start();
    let folder = dev.folder().to_owned();
    let mut submits = Vec::new();
    let mut commits = Vec::new();
    let mut spawns = Vec::new();
    let mut file = File::create(folder.join("floor")).unwrap();
    for round in 0..ROUNDS {
        submits.push(first_instruction(&dev, round));
        commits.push(timed(|| {
            file.write_all(&[7; 200]).unwrap();
            file.sync_data().unwrap();
        }));
        spawns.push(timed(|| {
            assert!(Command::new("/bin/true").status().unwrap().success());
        }));
    }
    let (submit, commit, spawn) = (median(submits), median(commits), median(spawns));
    let floor = commit + spawn;
    report("submit to first instruction", submit);
    report("one append and fdatasync of 200 bytes", commit);
    report("one spawn and wait of /bin/true", spawn);
    say(&format!(
        "submit / (append + spawn): {:.1}",
        submit.as_secs_f64() / floor.as_secs_f64()
    ));
}

/// The step notes the time first; the clock is the same on both sides.
fn first_instruction(dev: &Dev, round: usize) -> Duration {
    let path = dev.folder().join(format!("noted-{round}"));
    let body = format!(
        r#"{{"id":"b{round}","command":["/bin/sh","-c","date +%s%N > {0}.new; mv {0}.new {0}"]}}"#,
        path.display()
    );
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (status, answer) = dev.call("POST", "/v1/steps", Some(&body));
    assert_eq!(status, 201, "{answer}");
    let noted = eventually("the step's note", || fs::read_to_string(&path).ok());
    dev.step_in(&format!("b{round}"), &["succeeded"]);
    let after = Duration::from_nanos(noted.trim().parse().unwrap());
    after.saturating_sub(before)
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}
