//! Scenarios, live: each is played in a `sluice dev` of its own with declared hosts and real processes, and must reach
//! the expected end, which is also the scheduler's end on paper. All published cases are played, and some of our own
//! about what those leave out.
//!
//! `SLUICE_SCENARIOS=FILE` plays the cases of a file of your own instead.

mod live;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use sluice_simulator::scenario::{Case, End};

/// Cases that are played at one time: each has a coordinator, and two daemons for each of its hosts.
const AT_ONCE: usize = 2;
/// On paper time passes only if a case says so. Live delays up to this make no difference: lost work counts in whole
/// seconds.
const INSTANT: Duration = Duration::from_secs(1);
/// Number of tries of a case whose events took longer than that, because the machine was busy.
const TRIES: usize = 5;

/// Result of a case.
enum CaseOutcome {
    Ok,
    Skipped(String),
    Wrong(String),
}

fn files() -> Vec<PathBuf> {
    let own = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("scenarios")
            .join(name)
    };
    match std::env::var_os("SLUICE_SCENARIOS") {
        Some(file) => vec![file.into()],
        None => vec![
            own("published.json"),
            own("live.json"),
            own("suspend.json"),
            own("corners.json"),
            own("fair.json"),
            own("topology.json"),
            own("limits.json"),
            own("placement.json"),
            own("slices.json"),
        ],
    }
}

/// Returns all cases, those that wait for a host's loss first: the others are played meanwhile.
fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        // As for `sluice simulate`, a file holds a list of cases or one alone.
        let read = match text.trim_start().starts_with('[') {
            true => serde_json::from_str(&text),
            false => serde_json::from_str(&text).map(|case| vec![case]),
        };
        cases.extend(read.unwrap_or_else(|error| panic!("{}: {error}", file.display())));
    }
    assert!(!cases.is_empty(), "no case was given");
    cases.sort_by_key(|case| !live::loses_a_host(case));
    cases
}

fn judge(case: &Case) -> CaseOutcome {
    if let Some(why) = live::obstacle(case) {
        return CaseOutcome::Skipped(why);
    }
    let mut tries = 0;
    loop {
        let (end, took) = live::play(case);
        let wrong = differences(case, &end);
        tries += 1;
        if wrong.is_empty() {
            return CaseOutcome::Ok;
        }
        if took < INSTANT || tries == TRIES {
            let words = wrong.join("; ");
            return CaseOutcome::Wrong(format!("{} ({took:?} at try {tries}): {words}", case.id));
        }
    }
}

/// Returns the differences of an end from the expected one, and from the end on paper.
fn differences(case: &Case, end: &End) -> Vec<String> {
    let differences = case.differences(end);
    let mut wrong: Vec<String> = differences
        .iter()
        .map(|it| {
            format!(
                "{:?}: expected {:?}, got {:?}",
                it.list, it.expected, it.got
            )
        })
        .collect();
    let (paper, live) = (comparable(&case.play().unwrap()), comparable(end));
    if paper != live {
        wrong.push(format!("on paper {paper:?}, live {live:?}"));
    }
    wrong
}

/// Removes what may differ between paper and reality: the wording of why a policy is refused.
fn comparable(end: &End) -> End {
    let mut end = end.clone();
    let refused = &end.policy_refused;
    end.reasons.retain(|name, _| !refused.contains(name));
    end
}

/// Returns each case with its result and duration.
fn judge_all(cases: &[Case]) -> Vec<(&Case, CaseOutcome, Duration)> {
    let waiting = Mutex::new(cases.iter().collect::<VecDeque<_>>());
    let judged = Mutex::new(Vec::new());
    let judge_next = || {
        loop {
            let next = waiting.lock().unwrap().pop_front();
            let Some(case) = next else { return };
            let begun = Instant::now();
            let verdict = judge(case);
            let took = begun.elapsed();
            judged.lock().unwrap().push((case, verdict, took));
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(judge_next);
        }
    });
    judged.into_inner().unwrap()
}

#[test]
fn every_scenario_ends_live_as_it_is_written() {
    let cases = cases();
    let judged = judge_all(&cases);
    assert_eq!(judged.len(), cases.len());
    let mut wrong = Vec::new();
    for (case, verdict, took) in judged {
        match verdict {
            CaseOutcome::Ok => eprintln!("ok       {} ({:.1} s)", case.id, took.as_secs_f64()),
            CaseOutcome::Skipped(why) => eprintln!("skipped  {}: {why}", case.id),
            CaseOutcome::Wrong(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
