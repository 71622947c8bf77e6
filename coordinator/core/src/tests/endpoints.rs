//! Tests of ports and readiness: what hosts report, what is recorded of it, and who is ready.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::probe::{EndpointReport, Probe, ProbeAction, ProbeFailure, ProbeKind, Probes};
use sluice_common::reason::{Detail, ReasonCode};
use sluice_common::shared::Shared;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{AttemptPhase, FromNode, StopReason, ToNode};

use super::harness::*;

/// A step with one port and both probes.
pub(super) fn serving(spec: StepSpec) -> StepSpec {
    let probe = Probe {
        action: ProbeAction::Tcp("http".parse().unwrap()),
        period: Span::from_secs(2),
        timeout: Span::from_secs(1),
        failures: 3,
        successes: 1,
        initial_delay: Span::ZERO,
    };
    StepSpec {
        ports: vec!["http".parse().unwrap()],
        probes: Shared::from(Probes {
            readiness: Some(probe.clone()),
            liveness: Some(probe),
            metric: None,
        }),
        ..spec
    }
}

/// A report of a host; `saw` is what a failed probe saw.
pub(super) fn report(id: &str, port: u16, ready: bool, saw: Option<(ProbeKind, &str)>) -> FromNode {
    FromNode::Endpoint(Box::new(EndpointReport {
        attempt: attempt(id),
        ports: vec![port],
        ready,
        failure: saw.map(|(kind, saw)| ProbeFailure::new(kind, saw)),
    }))
}

const READINESS: Option<(ProbeKind, &str)> = Some((ProbeKind::Readiness, "nothing listens"));

fn is_ready(harness: &Harness, id: &str) -> bool {
    let step = harness.step(id);
    let attempt = step.latest().unwrap();
    harness.core.is_ready(step, attempt, &attempt.parts[0])
}

/// A step that runs and has its port.
fn running_server() -> Harness {
    let mut harness = Harness::one_node(2, 4);
    harness.submit("a", serving(spec(0, 1000))).unwrap();
    harness.run("a.1");
    let effects = harness.say("n", report("a.1", 20_000, false, None));
    assert_eq!(effects.types(), ["ports_allocated"]);
    harness
}

#[test]
fn ports_and_probes_are_sent_with_the_order_and_recorded_once() {
    let mut harness = Harness::one_node(2, 4);
    harness.submit("a", serving(spec(0, 1000))).unwrap();
    harness.submit("b", serving(spec(0, 1000))).unwrap();
    let early = harness.say("n", report("a.1", 20_000, false, None));
    assert_eq!(early.types(), Vec::<String>::new(), "nothing has begun");
    harness.run("a.1");
    harness.run("b.1");
    let said =
        |harness: &mut Harness, id, port| harness.say("n", report(id, port, false, None)).types();
    assert_eq!(said(&mut harness, "a.1", 20_000), ["ports_allocated"]);
    assert!(said(&mut harness, "a.1", 20_000).is_empty());
    assert!(said(&mut harness, "a.1", 20_001).is_empty(), "they stay");
    assert!(said(&mut harness, "b.1", 20_000).is_empty(), "it is a's");
    assert_eq!(said(&mut harness, "b.1", 20_001), ["ports_allocated"]);
    let endpoint = harness.step("a").latest().unwrap().parts[0]
        .endpoint
        .clone();
    let ports: Vec<_> = endpoint.unwrap().ports.into_iter().collect();
    assert_eq!(ports, [("http".parse().unwrap(), 20_000)]);
    let warrant = harness.warrant("a.1");
    assert_eq!(warrant.spec.ports.len(), 1);
}

#[test]
fn a_step_is_ready_when_its_host_says_so_and_says_what_its_probe_saw_before() {
    let mut harness = running_server();
    assert!(!is_ready(&harness, "a"));
    assert_eq!(harness.code("a"), ReasonCode::NotReady);
    let effects = harness.say("n", report("a.1", 20_000, false, READINESS));
    assert_eq!(effects.types(), ["readiness_changed"]);
    let reason = harness.reason("a");
    assert!(
        reason.message.ends_with("failed: nothing listens"),
        "{reason:?}"
    );
    assert_eq!(reason.detail["node"], Detail::Text("n".to_owned()));
    let effects = harness.say("n", report("a.1", 20_000, true, None));
    assert_eq!(effects.types(), ["readiness_changed"]);
    assert!(is_ready(&harness, "a"));
    assert_eq!(harness.code("a"), ReasonCode::Running);
}

#[test]
fn a_step_without_a_probe_is_ready_while_it_runs_on_a_host_that_is_there() {
    let mut harness = Harness::one_node(2, 4);
    harness.submit("a", spec(0, 1000)).unwrap();
    assert!(!is_ready(&harness, "a"));
    harness.run("a.1");
    assert!(is_ready(&harness, "a"));
    let liar = harness.say("n", report("a.1", 20_000, false, READINESS));
    assert!(liar.types().is_empty(), "it has neither ports nor probes");
    harness.gone("n");
    assert!(!is_ready(&harness, "a"), "its host cannot be reached");
}

#[test]
fn nothing_that_is_stopped_suspended_or_over_is_ready() {
    let mut harness = running_server();
    harness.say("n", report("a.1", 20_000, true, None));
    harness.status("n", "a.1", stopping(StopReason::TimedOut));
    assert!(!is_ready(&harness, "a"));
    let late = harness.say("n", report("a.1", 20_000, true, None));
    assert!(late.types().is_empty());
    harness.status("n", "a.1", released(Exit::Code(0)));
    assert!(!is_ready(&harness, "a"));
    let late = harness.say("n", report("a.1", 20_000, true, None));
    assert!(late.types().is_empty());
}

#[test]
fn a_host_that_flaps_does_not_fill_the_log_and_its_last_word_is_heard() {
    let mut harness = running_server();
    let mut records = 0;
    for second in 0..600 {
        for ready in [true, false] {
            let saw = format!("{second}");
            let saw = (!ready).then_some((ProbeKind::Readiness, saw.as_str()));
            let effects = harness.say("n", report("a.1", 20_000, ready, saw));
            records += effects.types().len();
        }
        harness.pass(1);
        harness.heartbeat("n");
    }
    // After 10, 20, ... 60 s and then each minute it may be ready, and is not at once.
    assert!((20..=40).contains(&records), "{records}");
    harness.pass(60);
    harness.heartbeat("n");
    harness.say("n", report("a.1", 20_000, true, None));
    assert!(is_ready(&harness, "a"));
}

#[test]
fn a_step_whose_liveness_probe_fails_ends_with_what_it_saw_or_is_retried() {
    for (retries, state, code) in [
        (0, StepState::Failed, ReasonCode::LivenessFailed),
        (1, StepState::Allocated, ReasonCode::Allocated),
    ] {
        let mut harness = Harness::one_node(2, 4);
        let spec = with_retries(serving(spec(0, 1000)), retries);
        harness.submit("a", spec).unwrap();
        harness.run("a.1");
        harness.say("n", report("a.1", 20_000, true, None));
        let saw = Some((ProbeKind::Liveness, "it hangs"));
        let effects = harness.say("n", report("a.1", 20_000, false, saw));
        assert_eq!(effects.types(), ["readiness_changed"]);
        harness.status("n", "a.1", stopping(StopReason::LivenessFailed));
        assert_eq!(harness.code("a"), ReasonCode::LivenessFailed);
        // However it ends: a server that is asked to end may say that all is well.
        let phase = gone(Exit::Code(0), StopReason::LivenessFailed);
        let ended = harness.status("n", "a.1", phase);
        let told: Vec<String> = ended.records.iter().map(|it| format!("{it:?}")).collect();
        assert!(told.iter().any(|it| it.contains("it hangs")), "{told:?}");
        assert_eq!((harness.state("a"), harness.code("a")), (state, code));
    }
}

#[test]
fn an_order_names_the_ports_that_its_host_is_to_choose() {
    let mut harness = Harness::one_node(2, 4);
    harness.submit("a", serving(spec(0, 1000))).unwrap();
    let effects = harness.hello(hello("n", 2, 4));
    let [ToNode::Assign(assigned)] = effects.sent.as_slice() else {
        panic!("the order is sent again: {:?}", effects.sent);
    };
    assert_eq!(assigned.ports, ["http".parse().unwrap()]);
    assert!(assigned.probes.liveness.is_some());
    harness.status("n", "a.1", AttemptPhase::Starting);
}
