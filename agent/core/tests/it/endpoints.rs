//! Ports and probes: no port is given twice, readiness is reported, and what does not work is stopped.

use std::collections::BTreeMap;

use agent_core::{Core, Input, LinkId, Output, ProbeOutcome, StoredEndpoint, TimerKey};
use sluice_common::id::AttemptId;
use sluice_common::metric::MetricSource;
use sluice_common::probe::{Probe, ProbeAction, ProbeKind, Probes};
use sluice_common::supervision::FreezerState;
use sluice_common::time::Span;
use sluice_common::wire::ToNode;

use crate::harness::*;

fn probe() -> Probe {
    Probe {
        action: ProbeAction::Tcp("http".parse().expect("a name")),
        period: Span::from_secs(2),
        timeout: Span::from_secs(1),
        failures: 2,
        successes: 1,
        initial_delay: Span::ZERO,
    }
}

fn metric() -> MetricSource {
    MetricSource {
        name: "queue".parse().expect("a name"),
        port: "http".parse().expect("a name"),
        path: "/m".to_owned(),
    }
}

/// An order to run a step with one port, both probes and a metric.
fn serve(id: &str) -> Input {
    let mut assignment = assignment(id);
    assignment.ports = vec!["http".parse().expect("a name")];
    assignment.probes = Probes {
        readiness: Some(probe()),
        liveness: Some(probe()),
        metric: Some(metric()),
    };
    order(ToNode::Assign(Box::new(assignment)))
}

fn free(ports: &[u16]) -> Input {
    Input::FreePorts(ports.to_vec())
}

/// Starts a step if one of these ports is free; returns the outputs in words.
fn begin(harness: &mut Harness, id: &str, ports: &[u16]) -> String {
    harness.feed(free(ports));
    harness.told(serve(id))
}

/// Has a due probe answered.
fn answer(harness: &mut Harness, id: &str, kind: ProbeKind, outcome: ProbeOutcome) -> String {
    let outputs = harness.feed(Input::Timer(TimerKey::Probe(attempt(id), kind)));
    let [Output::Probe { number, .. }] = &outputs[..] else {
        panic!("{}", words(&outputs));
    };
    harness.told(Input::Probed {
        attempt: attempt(id),
        kind,
        number: *number,
        outcome,
    })
}

fn failed(saw: &str) -> ProbeOutcome {
    ProbeOutcome::Failed(saw.to_owned())
}

/// The endpoints that an agent that is killed now leaves to the next.
fn kept(outputs: &[Output]) -> BTreeMap<AttemptId, StoredEndpoint> {
    let kept = outputs.iter().filter_map(|output| match output {
        Output::KeepEndpoint { attempt, endpoint } => Some((attempt.clone(), (**endpoint).clone())),
        _ => None,
    });
    kept.collect()
}

#[test]
fn a_port_belongs_to_one_attempt_until_that_is_forgotten() {
    let mut harness = Harness::linked();
    let told = begin(&mut harness, "a.1", &[20_000, 20_001]);
    assert_eq!(
        told,
        "1: a.1 starting; keep ports 20000 of a.1; 1: a.1 [20000] not ready; report a.1 at 130000; spawn a.1"
    );
    let told = begin(&mut harness, "b.1", &[20_000, 20_001, 20_001]);
    assert!(told.contains("keep ports 20001 of b.1"), "{told}");
    // Neither those of others nor one outside the range.
    let told = begin(&mut harness, "c.1", &[20_000, 20_001, 80, 29_500]);
    assert!(
        told.contains("of 20000-29499 (`ports` in the agent's config) 2 belong"),
        "{told}"
    );
    assert!(harness.phase("c.1").starts_with("released StartFailed"));
    harness.feed(Input::Attempt(gone("a.1")));
    let told = begin(&mut harness, "d.1", &[20_000]);
    assert!(!told.contains("spawn"), "it is not forgotten: {told}");
    harness.feed(forget("a.1"));
    let told = begin(&mut harness, "e.1", &[20_000]);
    assert!(told.contains("keep ports 20000 of e.1"), "{told}");
}

#[test]
fn an_attempt_is_told_its_port_before_it_starts() {
    let mut harness = Harness::linked();
    harness.feed(free(&[20_007]));
    let outputs = harness.feed(serve("a.1"));
    let env = &spawn_of(&outputs).env;
    assert_eq!(env["SLUICE_PORT"], "20007");
    assert_eq!(env["SLUICE_PORT_HTTP"], "20007");
}

#[test]
fn readiness_is_reported_when_it_changes_and_not_while_it_is_stopped() {
    let mut harness = Harness::linked();
    begin(&mut harness, "a.1", &[20_000]);
    let told = harness.told(Input::Attempt(running("a.1")));
    let due = "readiness of a.1 at 100000; liveness of a.1 at 100000";
    assert_eq!(told, format!("1: a.1 running; {due}"));
    let kind = ProbeKind::Readiness;
    let told = answer(&mut harness, "a.1", kind, failed("it is busy"));
    assert!(
        told.contains("[20000] not ready (readiness it is busy)"),
        "{told}"
    );
    harness.pass(2000);
    let told = answer(&mut harness, "a.1", kind, ProbeOutcome::Succeeded);
    assert!(told.contains("keep ports 20000 of a.1 ready"), "{told}");
    assert!(told.contains("1: a.1 [20000] ready"), "{told}");
    harness.pass(2000);
    let told = answer(&mut harness, "a.1", kind, ProbeOutcome::Unknown);
    assert!(!told.contains("1: a.1"), "{told}");
    let told = harness.told(stop("a.1", 10));
    assert!(told.contains("1: a.1 [20000] not ready"), "{told}");
    let timer = Input::Timer(TimerKey::Probe(attempt("a.1"), kind));
    assert_eq!(harness.told(timer), "");
}

#[test]
fn a_port_is_told_by_its_name_while_its_process_runs() {
    let mut harness = Harness::linked();
    let port = |harness: &Harness, id: &str, name: &str| {
        let name = name.parse().expect("a name");
        harness.core.port_of(&attempt(id), &name)
    };
    begin(&mut harness, "a.1", &[20_000]);
    begin(&mut harness, "b.1", &[20_001]);
    assert_eq!(port(&harness, "a.1", "http"), None, "it starts");
    harness.feed(Input::Attempt(running("a.1")));
    assert_eq!(port(&harness, "a.1", "http"), Some(20_000));
    assert_eq!(port(&harness, "a.1", "metrics"), None);
    assert_eq!(port(&harness, "b.1", "http"), None);
    assert_eq!(port(&harness, "c.1", "http"), None);
    harness.feed(stop("a.1", 10));
    assert_eq!(port(&harness, "a.1", "http"), None, "it is stopped");
}

#[test]
fn the_metric_of_an_attempt_is_read_while_it_is_ready() {
    let mut harness = Harness::linked();
    let metrics = |harness: &Harness| -> Vec<(u16, String)> {
        let found = harness.core.metrics().into_iter();
        found.map(|it| (it.port, it.path)).collect()
    };
    begin(&mut harness, "a.1", &[20_000]);
    harness.feed(Input::Attempt(running("a.1")));
    assert_eq!(metrics(&harness), []);
    let kind = ProbeKind::Readiness;
    answer(&mut harness, "a.1", kind, ProbeOutcome::Succeeded);
    assert_eq!(metrics(&harness), [(20_000, "/m".to_owned())]);
    harness.feed(stop("a.1", 10));
    assert_eq!(metrics(&harness), []);
}

#[test]
fn a_replica_is_measured_also_by_an_agent_that_is_started_again() {
    let mut harness = Harness::linked();
    harness.feed(assign("b.1"));
    let mut replica = assignment("a.1");
    replica.is_measured = true;
    let outputs = harness.feed(order(ToNode::Assign(Box::new(replica))));
    let told = words(&outputs);
    assert!(!told.contains("ready"), "it has no port: {told}");
    let mut next = Harness::new();
    next.core = Core::new(settings(), None).with_endpoints(kept(&outputs));
    next.feed(up(vec![running("a.1"), running("b.1")]));
    for core in [&harness.core, &next.core] {
        assert!(core.is_measured(&attempt("a.1")));
        assert!(!core.is_measured(&attempt("b.1")));
    }
}

#[test]
fn one_that_does_not_work_is_stopped_and_the_coordinator_hears_why_first() {
    let mut harness = Harness::linked();
    begin(&mut harness, "a.1", &[20_000]);
    harness.feed(Input::Attempt(running("a.1")));
    let kind = ProbeKind::Liveness;
    answer(&mut harness, "a.1", kind, failed("it hangs"));
    harness.pass(2000);
    let told = answer(&mut harness, "a.1", kind, failed("it hangs"));
    let saw = told
        .find("not ready (liveness it hangs)")
        .expect("it is told");
    let stopping = told.find("stopping").expect("it is stopped");
    assert!(saw < stopping && told.contains("TERM a.1"), "{told}");
}

#[test]
fn a_suspended_one_is_not_ready_and_is_probed_anew_when_it_runs_again() {
    let mut harness = Harness::linked();
    begin(&mut harness, "a.1", &[20_000]);
    harness.feed(Input::Attempt(running("a.1")));
    let kind = ProbeKind::Readiness;
    answer(&mut harness, "a.1", kind, ProbeOutcome::Succeeded);
    let suspend = ToNode::Suspend {
        attempt: attempt("a.1"),
        room_mb: 0,
    };
    let told = harness.told(order(suspend));
    assert!(told.contains("1: a.1 [20000] not ready"), "{told}");
    let mut frozen = running("a.1");
    frozen.freezer = FreezerState::Frozen;
    harness.feed(Input::Attempt(frozen));
    harness.feed(order(ToNode::Resume {
        attempt: attempt("a.1"),
    }));
    let told = harness.told(Input::Attempt(running("a.1")));
    assert!(told.contains("readiness of a.1 at 100000"), "{told}");
}

#[test]
fn an_agent_that_is_started_again_knows_ports_and_what_was_ready() {
    let mut harness = Harness::linked();
    harness.feed(free(&[20_000]));
    harness.feed(serve("a.1"));
    harness.feed(Input::Attempt(running("a.1")));
    let timer = TimerKey::Probe(attempt("a.1"), ProbeKind::Readiness);
    harness.feed(Input::Timer(timer));
    let outputs = harness.feed(Input::Probed {
        attempt: attempt("a.1"),
        kind: ProbeKind::Readiness,
        number: 1,
        outcome: ProbeOutcome::Succeeded,
    });
    let mut kept = kept(&outputs);
    assert!(kept[&attempt("a.1")].is_ready);
    // The supervisor does not know this one: its order never arrived.
    kept.insert(attempt("b.1"), kept[&attempt("a.1")].clone());

    let mut next = Harness::new();
    next.core = Core::new(settings(), None).with_endpoints(kept);
    next.feed(up(vec![running("a.1")]));
    assert_eq!(next.core.ports_in_use(), [20_000].into());
    next.feed(Input::Dialled { link: LINK });
    let told = next.told(welcomed(LINK, 5));
    assert!(told.contains("1: a.1 [20000] ready"), "{told}");
    let told = begin(&mut next, "c.1", &[20_000]);
    assert!(!told.contains("spawn"), "{told}");
}

#[test]
fn a_report_is_repeated_and_one_that_waits_is_sent_when_it_may() {
    let mut harness = Harness::linked();
    begin(&mut harness, "a.1", &[20_000]);
    harness.feed(Input::Attempt(running("a.1")));
    let kind = ProbeKind::Readiness;
    answer(&mut harness, "a.1", kind, ProbeOutcome::Succeeded);
    let timer = || Input::Timer(TimerKey::Endpoint(attempt("a.1")));
    harness.pass(30_000);
    let told = harness.told(timer());
    assert_eq!(told, "1: a.1 [20000] ready; report a.1 at 160000");
    for _ in 0..2 {
        harness.pass(2000);
        answer(&mut harness, "a.1", kind, failed("busy"));
    }
    harness.pass(2000);
    let told = answer(&mut harness, "a.1", kind, ProbeOutcome::Succeeded);
    assert!(
        told.contains("1: a.1 [20000] ready"),
        "long after the first: {told}"
    );
    for _ in 0..2 {
        harness.pass(2000);
        answer(&mut harness, "a.1", kind, failed("busy"));
    }
    harness.pass(2000);
    let told = answer(&mut harness, "a.1", kind, ProbeOutcome::Succeeded);
    assert!(!told.contains("] ready"), "it flaps: {told}");
    // 20 s and a margin after the second time.
    assert!(told.contains("report a.1 at 157000"), "{told}");
    harness.pass(157_000 - harness.boot);
    let told = harness.told(timer());
    assert!(told.contains("1: a.1 [20000] ready"), "{told}");
}

#[test]
fn a_report_that_was_lost_with_its_link_is_repeated_while_the_next_one_waits() {
    let mut harness = Harness::linked();
    begin(&mut harness, "a.1", &[20_000]);
    harness.feed(Input::Attempt(running("a.1")));
    let kind = ProbeKind::Readiness;
    answer(&mut harness, "a.1", kind, ProbeOutcome::Succeeded);
    for saw in ["busy", "busy", "down"] {
        harness.pass(2000);
        answer(&mut harness, "a.1", kind, failed(saw));
    }
    harness.pass(2000);
    let told = answer(&mut harness, "a.1", kind, failed("busy again"));
    assert!(!told.contains("1: a.1"), "another failure waits: {told}");
    let next = LinkId(2);
    harness.feed(Input::Dialled { link: next });
    let told = harness.told(welcomed(next, 6));
    assert!(
        told.contains("2: a.1 [20000] not ready (readiness"),
        "{told}"
    );
}
