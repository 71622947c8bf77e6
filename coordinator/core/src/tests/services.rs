//! Services: the number of replicas, failures with pauses, lost hosts, changes of version and deletion.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use sluice_common::id::ServiceName;
use sluice_common::pool::{HostPlacement, PolicySpec};
use sluice_common::service::{RolloutSpec, ScaleSpec, ServiceSpec};
use sluice_common::state::StepState;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::StopReason;

use super::harness::*;
use crate::{
    Answer, Input, Refusal, ReplicaPhase, ReplyId, RolloutPhase, Service, ServiceChange, StepAction,
};

pub(super) fn web() -> ServiceName {
    ServiceName::new("web").unwrap()
}

pub(super) fn service(scale: ScaleSpec) -> ServiceSpec {
    let mut replica = spec(0, 1000);
    replica.timeout = None;
    ServiceSpec {
        scale,
        rollout: RolloutSpec {
            drain_timeout: Span::from_secs(5),
            ..RolloutSpec::default()
        },
        placement: HostPlacement::of_services(),
        replica,
    }
}

/// A version of the service that differs from the others.
fn version(number: u32, scale: ScaleSpec) -> ServiceSpec {
    let mut spec = service(scale);
    spec.replica.command.push(format!("v{number}"));
    spec
}

pub(super) fn range(min: u32, max: u32) -> ScaleSpec {
    ScaleSpec {
        min,
        max,
        fixed: false,
        ..ScaleSpec::fixed(min)
    }
}

pub(super) fn change(harness: &mut Harness, change: ServiceChange) -> Result<(), Refusal> {
    change_if(harness, change, None)
}

fn change_if(
    harness: &mut Harness,
    change: ServiceChange,
    version: Option<u64>,
) -> Result<(), Refusal> {
    let effects = harness.feed(Input::ChangeService {
        reply: ReplyId(7),
        service: web(),
        change,
        version,
    });
    match &effects.answers[..] {
        [Answer::Changed(answer)] => answer.clone(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn put(harness: &mut Harness, spec: ServiceSpec) {
    change(harness, ServiceChange::Put(Box::new(spec))).unwrap();
}

pub(super) fn known(harness: &Harness) -> &Service {
    &harness.core.state().services()[&web()]
}

/// The replicas by number, each with a letter for its phase.
pub(super) fn phases(harness: &Harness) -> String {
    let replicas = known(harness).replicas.iter();
    let phases = replicas.map(|(number, replica)| {
        let phase = match replica.phase {
            ReplicaPhase::Starting => "starts",
            ReplicaPhase::Serving { .. } => "serves",
            ReplicaPhase::Draining { .. } => "drains",
        };
        format!("{number} {phase}")
    });
    phases.collect::<Vec<_>>().join(", ")
}

/// Lets the host say that the processes of all replicas that were granted resources run.
pub(super) fn run_all(harness: &mut Harness) {
    let granted = harness.core.state().steps().values();
    let granted = granted.filter(|step| step.state == StepState::Allocated);
    let granted = granted.filter_map(|step| Some(step.attempt_id(step.live()?.number).to_string()));
    for attempt in granted.collect::<Vec<_>>() {
        let id = super::harness::attempt(&attempt).step;
        let on = harness.placed(id.as_str()).0;
        harness.status(&on, &attempt, running());
    }
}

/// Lets the hosts end everything that is being stopped.
pub(super) fn stop_all(harness: &mut Harness) {
    let stopping = harness.core.state().steps().values();
    let stopping = stopping.filter(|step| step.state == StepState::Stopping);
    let stopping =
        stopping.filter_map(|step| Some(step.attempt_id(step.live()?.number).to_string()));
    for attempt in stopping.collect::<Vec<_>>() {
        let id = super::harness::attempt(&attempt).step;
        let on = harness.placed(id.as_str()).0;
        harness.status(&on, &attempt, gone(Exit::Signal(15), StopReason::Cancelled));
    }
}

/// Lets time pass while the host is heard.
fn pass_heard(harness: &mut Harness, secs: u64) {
    for passed in (0..secs).step_by(10) {
        harness.pass((secs - passed).min(10));
        harness.heartbeat("n");
    }
}

fn served(scale: ScaleSpec) -> Harness {
    let mut harness = Harness::one_node(4, 16);
    put(&mut harness, service(scale));
    run_all(&mut harness);
    harness.pass(2);
    harness
}

#[test]
fn replicas_are_steps_and_serve_when_they_run() {
    let mut harness = Harness::one_node(0, 16);
    put(&mut harness, service(ScaleSpec::fixed(2)));
    assert_eq!(phases(&harness), "1 starts, 2 starts");
    assert_eq!(harness.state("web-1"), StepState::Allocated);
    harness.run("web-2.1");
    assert_eq!(phases(&harness), "1 starts, 2 serves");
    assert_eq!(known(&harness).rollout.phase, RolloutPhase::Rolling);
    run_all(&mut harness);
    assert_eq!(phases(&harness), "1 serves, 2 serves");
    assert_eq!(known(&harness).rollout.phase, RolloutPhase::Rolling);
    harness.pass(2);
    assert_eq!(known(&harness).rollout.phase, RolloutPhase::Complete);
    assert_eq!(
        harness.step("web-1").spec.service.as_ref().unwrap().number,
        1
    );
    // To apply the same again changes nothing.
    let version = known(&harness).version;
    put(&mut harness, service(ScaleSpec::fixed(2)));
    assert_eq!(known(&harness).version, version);
    harness.restart(0);
    assert_eq!(phases(&harness), "1 serves, 2 serves");
}

#[test]
fn a_service_is_scaled_up_and_down() {
    let mut harness = served(ScaleSpec::fixed(1));
    change(&mut harness, ServiceChange::Scale(3)).unwrap();
    run_all(&mut harness);
    assert_eq!(phases(&harness), "1 serves, 2 serves, 3 serves");
    change(&mut harness, ServiceChange::Scale(1)).unwrap();
    assert_eq!(phases(&harness), "1 serves, 2 drains, 3 drains");
    assert_eq!(
        harness.state("web-3"),
        StepState::Running,
        "it ends its requests"
    );
    harness.pass(5);
    assert_eq!(harness.state("web-3"), StepState::Stopping);
    stop_all(&mut harness);
    assert_eq!(phases(&harness), "1 serves");
    change(&mut harness, ServiceChange::Scale(2)).unwrap();
    assert_eq!(
        phases(&harness),
        "1 serves, 4 starts",
        "no number is used again"
    );
}

#[test]
fn a_range_bounds_what_may_be_asked_for() {
    let mut harness = served(range(1, 3));
    assert_eq!(known(&harness).count, 1);
    change(&mut harness, ServiceChange::Scale(3)).unwrap();
    let refusal = change(&mut harness, ServiceChange::Scale(4)).unwrap_err();
    assert!(
        refusal.to_string().contains("1 to 3 replicas, not 4"),
        "{refusal}"
    );
    put(&mut harness, service(range(0, 2)));
    assert_eq!(
        known(&harness).count,
        2,
        "it keeps its number within the range"
    );
}

#[test]
fn what_others_read_is_not_overwritten() {
    let mut harness = served(ScaleSpec::fixed(1));
    let version = known(&harness).version;
    let scale = || ServiceChange::Scale(2);
    change_if(&mut harness, scale(), Some(version - 1)).unwrap_err();
    change_if(&mut harness, scale(), Some(version)).unwrap();
    let mut other = service(ScaleSpec::fixed(1));
    other.replica.subject = "t".parse().unwrap();
    let refusal = change(&mut harness, ServiceChange::Put(Box::new(other))).unwrap_err();
    assert!(
        refusal.to_string().contains("belongs to subject `s`"),
        "{refusal}"
    );
}

#[test]
fn a_replica_that_ends_is_replaced_after_a_pause_that_doubles() {
    let mut harness = served(ScaleSpec::fixed(1));
    for (number, pause) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
        harness.status("n", &format!("web-{number}.1"), released(Exit::Code(1)));
        assert_eq!(phases(&harness), "", "{number}");
        pass_heard(&mut harness, pause - 1);
        assert_eq!(phases(&harness), "", "{number}");
        harness.pass(1);
        assert_eq!(phases(&harness), format!("{} starts", number + 1));
        run_all(&mut harness);
    }
    assert_eq!(known(&harness).backoff.failures, 4);
    let last = known(&harness).backoff.last.clone().unwrap();
    assert!(last.end.message().contains("code 1"), "{last:?}");
    pass_heard(&mut harness, 61);
    assert_eq!(
        known(&harness).backoff.failures,
        0,
        "it has been ready for a while"
    );
    harness.status("n", "web-5.1", released(Exit::Code(0)));
    harness.pass(1);
    assert_eq!(phases(&harness), "6 starts", "also one that succeeds");
}

#[test]
fn replicas_that_fail_at_once_count_once() {
    let mut harness = served(ScaleSpec::fixed(3));
    for number in 1..=3 {
        harness.status("n", &format!("web-{number}.1"), released(Exit::Signal(11)));
    }
    assert_eq!(known(&harness).backoff.failures, 1);
    harness.pass(1);
    assert_eq!(phases(&harness), "4 starts, 5 starts, 6 starts");
}

#[test]
fn a_replica_that_somebody_cancels_is_replaced_at_once() {
    let mut harness = served(ScaleSpec::fixed(1));
    harness.cancel("web-1");
    assert_eq!(phases(&harness), "1 starts", "it gets no requests any more");
    stop_all(&mut harness);
    assert_eq!(phases(&harness), "2 starts");
    harness.cancel("web-2");
    stop_all(&mut harness);
    harness.status(
        "n",
        "web-2.1",
        gone(Exit::Signal(15), StopReason::Cancelled),
    );
    harness.action("web-2", StepAction::Delete);
    assert_eq!(phases(&harness), "3 starts");
}

#[test]
fn ids_that_others_took_are_passed_over() {
    let mut harness = Harness::one_node(0, 16);
    harness.submit("web-1", spec(0, 1000)).unwrap();
    put(&mut harness, service(ScaleSpec::fixed(1)));
    assert_eq!(phases(&harness), "2 starts");
    assert_eq!(harness.step("web-1").spec.service, None);
}

#[test]
fn a_replica_of_a_lost_host_starts_elsewhere_once() {
    let mut harness = served(ScaleSpec::fixed(1));
    harness.hello(hello("m", 0, 16));
    harness.gone("n");
    harness.pass(16);
    assert_eq!(
        phases(&harness),
        "1 starts",
        "a silent host gets no requests"
    );
    assert_eq!(
        harness.step("web-1").attempts.len(),
        1,
        "it may still run there"
    );
    harness.heartbeat("m");
    for _ in 0..60 {
        harness.pass(10);
        harness.heartbeat("m");
    }
    assert_eq!(harness.step("web-1").attempts.len(), 2);
    assert_eq!(harness.placed("web-1").0, "m");
    run_all(&mut harness);
    assert_eq!(
        phases(&harness),
        "1 serves",
        "and no other replica was added"
    );
}

#[test]
fn endpoints_survive_a_restart_while_hosts_come_back() {
    let mut harness = served(ScaleSpec::fixed(1));
    harness.restart(0);
    assert_eq!(phases(&harness), "1 serves");
    harness.pass(10);
    assert_eq!(phases(&harness), "1 serves");
    harness.pass(10);
    assert_eq!(phases(&harness), "1 starts", "the host is not heard");
    harness.hello(holding(
        hello("n", 4, 16),
        vec![status("web-1.1", running())],
    ));
    assert_eq!(phases(&harness), "1 serves");
}

#[test]
fn a_new_version_starts_beside_the_old_one() {
    let mut harness = served(ScaleSpec::fixed(2));
    put(&mut harness, version(2, ScaleSpec::fixed(2)));
    assert_eq!(phases(&harness), "1 serves, 2 serves, 3 starts");
    run_all(&mut harness);
    assert_eq!(phases(&harness), "1 serves, 2 serves, 3 serves");
    harness.pass(2);
    assert_eq!(phases(&harness), "1 drains, 2 serves, 3 serves");
    harness.pass(5);
    stop_all(&mut harness);
    assert_eq!(phases(&harness), "2 serves, 3 serves, 4 starts");
    run_all(&mut harness);
    pass_heard(&mut harness, 8);
    stop_all(&mut harness);
    assert_eq!(phases(&harness), "3 serves, 4 serves");
    assert_eq!(known(&harness).rollout.phase, RolloutPhase::Complete);
    assert_eq!(harness.step("web-4").spec.command.last().unwrap(), "v2");
    change(&mut harness, ServiceChange::Undo(None)).unwrap();
    assert_eq!(known(&harness).revision, 3);
    assert_eq!(harness.step("web-5").spec.command, ["train"]);
}

#[test]
fn with_no_room_beyond_the_number_one_is_missing_meanwhile() {
    let mut harness = served(ScaleSpec::fixed(2));
    let mut next = version(2, ScaleSpec::fixed(2));
    (next.rollout.max_surge, next.rollout.max_unavailable) = (0, 1);
    put(&mut harness, next);
    assert_eq!(phases(&harness), "1 drains, 2 serves");
    harness.pass(5);
    stop_all(&mut harness);
    assert_eq!(phases(&harness), "2 serves, 3 starts");
}

#[test]
fn a_program_that_ends_at_once_takes_no_place_of_an_old_one() {
    let mut harness = served(ScaleSpec::fixed(2));
    put(&mut harness, version(2, ScaleSpec::fixed(2)));
    for number in 3..6 {
        harness.run(&format!("web-{number}.1"));
        harness.pass(1);
        harness.status("n", &format!("web-{number}.1"), released(Exit::Code(7)));
        pass_heard(&mut harness, 1 << (number - 3));
        assert!(phases(&harness).starts_with("1 serves, 2 serves"));
    }
    let stable = known(&harness).rollout.stable;
    assert_eq!(
        (stable, known(&harness).rollout.phase.clone()),
        (Some(1), RolloutPhase::Rolling)
    );
}

#[test]
fn a_version_that_does_not_become_ready_is_rolled_back() {
    let mut harness = served(ScaleSpec::fixed(2));
    let mut bad = version(2, ScaleSpec::fixed(2));
    bad.rollout.progress_deadline = Span::from_secs(30);
    put(&mut harness, bad);
    for number in 3..8 {
        harness.status("n", &format!("web-{number}.1"), released(Exit::Code(3)));
        pass_heard(&mut harness, 1 << (number - 3));
    }
    harness.pass(5);
    let service = known(&harness);
    let back = service.rollout.rolled_back.clone().unwrap();
    assert_eq!((back.revision, service.revision), (2, 3));
    assert!(
        back.why
            .contains("no replica of version 2 became ready within 30s"),
        "{}",
        back.why
    );
    assert!(back.why.contains("code 3"), "{}", back.why);
    stop_all(&mut harness);
    assert_eq!(
        phases(&harness),
        "1 serves, 2 serves",
        "the old replicas were left alone"
    );
    assert_eq!(known(&harness).rollout.phase, RolloutPhase::Complete);
}

#[test]
fn a_version_has_its_whole_time_again_after_the_coordinator_was_away() {
    let mut harness = Harness::new();
    let mut first = service(ScaleSpec::fixed(1));
    first.rollout.progress_deadline = Span::from_secs(30);
    put(&mut harness, first);
    harness.now = harness.now + Span::from_secs(700);
    harness.restart(0);
    let phase = &known(&harness).rollout.phase;
    assert_eq!(*phase, RolloutPhase::Rolling, "nobody could become ready");
    harness.pass(31);
    let phase = &known(&harness).rollout.phase;
    assert!(matches!(phase, RolloutPhase::Stalled { .. }), "{phase:?}");
}

#[test]
fn a_first_version_that_does_not_become_ready_stalls_and_says_why() {
    let mut harness = Harness::new();
    harness.hello(hello("n", 0, 2));
    put(&mut harness, service(ScaleSpec::fixed(3)));
    run_all(&mut harness);
    pass_heard(&mut harness, 590);
    assert_eq!(known(&harness).rollout.phase, RolloutPhase::Rolling);
    pass_heard(&mut harness, 11);
    let RolloutPhase::Stalled { why } = &known(&harness).rollout.phase else {
        panic!("{:?}", known(&harness).rollout);
    };
    assert!(why.contains("`web-3` is queued"), "{why}");
}

#[test]
fn a_deleted_service_drains_and_is_gone_also_while_it_changes() {
    let mut harness = served(ScaleSpec::fixed(2));
    put(&mut harness, version(2, ScaleSpec::fixed(2)));
    change(&mut harness, ServiceChange::Delete).unwrap();
    assert_eq!(phases(&harness), "1 drains, 2 drains, 3 drains");
    assert_eq!(
        harness.state("web-3"),
        StepState::Stopping,
        "it never served"
    );
    let again = change(
        &mut harness,
        ServiceChange::Put(Box::new(service(ScaleSpec::fixed(1)))),
    );
    assert!(matches!(again, Err(Refusal::ServiceDeleting { .. })));
    change(&mut harness, ServiceChange::Delete).unwrap();
    harness.pass(5);
    stop_all(&mut harness);
    assert!(harness.core.state().services().is_empty());
    put(&mut harness, service(ScaleSpec::fixed(1)));
    assert_eq!(phases(&harness), "4 starts", "no number is used again");
    assert_eq!(known(&harness).revision, 3);
    assert!(matches!(
        harness
            .feed(Input::ChangeService {
                reply: ReplyId(7),
                service: ServiceName::new("other").unwrap(),
                change: ServiceChange::Delete,
                version: None,
            })
            .answers[..],
        [Answer::Changed(Err(Refusal::UnknownService { .. }))]
    ));
}

#[test]
fn a_replica_that_no_pool_takes_says_so() {
    let mut harness = Harness::one_node(0, 4);
    let mut wide = service(ScaleSpec::fixed(1));
    wide.replica = spec(0, 64_000);
    put(&mut harness, wide);
    let last = known(&harness).backoff.last.clone().unwrap();
    assert!(
        last.end.message().contains("64 cores"),
        "{}",
        last.end.message()
    );
    assert_eq!(phases(&harness), "");
    harness.hello(hello("m", 0, 64));
    harness.pass(1);
    assert_eq!(phases(&harness), "2 starts");
}

#[test]
fn the_first_replicas_are_in_the_reserved_share() {
    let mut harness = Harness::one_node(4, 16);
    harness.put_policy(
        "default",
        "s",
        PolicySpec {
            reserved: [amount("gpu", 2)].into(),
            ..PolicySpec::default()
        },
    );
    let mut firm = service(range(1, 4));
    firm.replica = spec(1, 1000);
    firm.replica.preemptible = false;
    put(&mut harness, firm.clone());
    change(&mut harness, ServiceChange::Scale(3)).unwrap();
    let preemptible = |harness: &Harness| -> Vec<bool> {
        let replicas = known(harness).replicas.values();
        replicas
            .map(|replica| harness.step(replica.step.as_str()).spec.preemptible)
            .collect()
    };
    assert_eq!(preemptible(&harness), [false, true, true]);
    // The policy reserves no more than two.
    firm.scale = range(4, 4);
    put(&mut harness, firm);
    assert_eq!(preemptible(&harness), [false, true, true, false]);
    run_all(&mut harness);
    change(&mut harness, ServiceChange::Scale(4)).unwrap();
}

#[test]
fn adopted_replicas_belong_to_their_service_again() {
    let mut harness = served(ScaleSpec::fixed(1));
    let before = harness.log.len();
    change(&mut harness, ServiceChange::Scale(2)).unwrap();
    run_all(&mut harness);
    let warrant = harness.warrant("web-2.1");
    harness.restore(before, crate::RecoveryCause::Restored);
    let held = vec![status("web-1.1", running()), status("web-2.1", running())];
    harness.hello(holding(hello("n", 4, 16), held));
    harness.show("n", "web-2.1", Some(&warrant));
    harness.feed(Input::EndRecovery { reply: ReplyId(6) });
    assert_eq!(phases(&harness), "1 serves, 2 drains", "one is wanted");
    change(&mut harness, ServiceChange::Scale(2)).unwrap();
    harness.pass(6);
    stop_all(&mut harness);
    assert_eq!(
        phases(&harness),
        "1 serves, 1002 starts",
        "lost numbers are passed over"
    );
}
