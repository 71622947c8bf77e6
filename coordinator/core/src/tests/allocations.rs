//! Tests of allocations: steps without a program, which their holders renew.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::allocation::HolderState;
use sluice_common::id::{NodeName, PoolName};
use sluice_common::pool::{PolicySpec, PoolSpec};
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{AttemptEnd, AttemptPhase, StopReason};

use super::harness::*;
use crate::{Desired, NodeChange, RecoveryCause, Refusal, StepAction};

/// An allocation of GPUs that must be renewed every 60 seconds.
fn allocation(gpus: u64) -> StepSpec {
    StepSpec {
        lease: Some(Span::from_secs(60)),
        command: Vec::new(),
        timeout: None,
        on_preempt: OnPreempt::Fail,
        ..spec(gpus, 1000)
    }
}

/// A host of one GPU, which the allocation `a` has.
fn allocated() -> Harness {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", allocation(1)).unwrap();
    harness.run("a.1");
    harness
}

#[test]
fn it_lasts_as_long_as_it_is_renewed() {
    let mut harness = allocated();
    for _ in 0..5 {
        harness.pass(50);
        harness
            .renew("a", None, Some(HolderState::Running))
            .unwrap();
    }
    assert_eq!(harness.state("a"), StepState::Running);
    let lease = harness.step("a").lease.unwrap();
    assert_eq!(lease.holder, Some(HolderState::Running));
    harness.pass(59);
    assert_eq!(harness.state("a"), StepState::Running);
    harness.pass(1);
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Stopping, ReasonCode::NotRenewed)
    );
    harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::NotRenewed));
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Cancelled, ReasonCode::NotRenewed)
    );
}

#[test]
fn a_renewal_may_be_longer_and_keeps_what_the_holder_said() {
    let mut harness = allocated();
    harness
        .renew("a", Some(3600), Some(HolderState::Submitted))
        .unwrap();
    harness.renew("a", Some(200), None).unwrap();
    let lease = harness.step("a").lease.unwrap();
    assert_eq!(lease.holder, Some(HolderState::Submitted));
    harness.pass(199);
    assert_eq!(harness.state("a"), StepState::Running);
    harness.pass(1);
    assert_eq!(harness.state("a"), StepState::Stopping);
}

#[test]
fn one_that_waits_expires_too_and_starts_no_more() {
    let mut harness = allocated();
    harness.submit("b", allocation(1)).unwrap();
    harness.pass(40);
    harness.renew("a", Some(600), None).unwrap();
    harness.pass(20);
    assert_eq!(
        (harness.state("b"), harness.code("b")),
        (StepState::Cancelled, ReasonCode::NotRenewed)
    );
    assert_eq!(harness.state("a"), StepState::Running);
}

#[test]
fn only_open_allocations_are_renewed() {
    let mut harness = allocated();
    harness.submit("b", spec(0, 1000)).unwrap();
    let step = harness.step("b").id.clone();
    assert_eq!(
        harness.renew("b", None, None),
        Err(Refusal::NotAnAllocation { step })
    );
    harness.pass(60);
    harness.renew("a", None, None).unwrap();
    harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::NotRenewed));
    let refused = harness.renew("a", None, None).unwrap_err();
    assert!(matches!(refused, Refusal::StepOver { .. }));
    assert_eq!(
        refused.to_string(),
        "the allocation `a` has ended (its holder did not renew it before its lease was over): ask for another with `sluice allocate`"
    );
}

#[test]
fn one_that_waits_for_longer_than_it_said_fails_with_the_numbers() {
    let mut harness = allocated();
    let waits = StepSpec {
        queue_timeout: Some(Span::from_secs(20)),
        ..StepSpec::clone(&harness.step("a").spec)
    };
    harness.submit("b", waits).unwrap();
    harness.pass(19);
    harness.renew("a", None, None).unwrap();
    harness.renew("b", None, None).unwrap();
    assert_eq!(harness.state("b"), StepState::Queued);
    harness.pass(1);
    assert_eq!(harness.code("b"), ReasonCode::QueueTimeout);
    assert_eq!(harness.state("a"), StepState::Running);
}

#[test]
fn time_in_which_no_coordinator_ran_is_not_held_against_holders() {
    let mut harness = allocated();
    harness.pass(50);
    harness.restart(0);
    harness.pass(55);
    assert_eq!(harness.step("a").state, StepState::Running);
    harness.renew("a", None, None).unwrap();
    harness.restart_ahead(Span::from_secs(7200));
    harness.pass(59);
    assert_eq!(harness.step("a").state, StepState::Running);
}

#[test]
fn one_that_gives_way_has_its_grace_and_is_over() {
    let mut harness = allocated();
    let policy = PolicySpec {
        reserved: [amount("gpu", 1)].into_iter().collect(),
        ..PolicySpec::default()
    };
    harness.put_policy("default", "t", policy);
    let mut claim = spec(1, 1000);
    claim.subject = sluice_common::id::Subject::new("t").unwrap();
    claim.preemptible = false;
    harness.submit("b", claim).unwrap();
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Stopping, ReasonCode::Preempted)
    );
    // Its holder may say more, and need not.
    harness.renew("a", None, Some(HolderState::Idle)).unwrap();
    harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::Preempted));
    assert_eq!(harness.state("a"), StepState::Preempted);
    assert_eq!(harness.state("b"), StepState::Allocated);
}

#[test]
fn what_a_pool_allows_after_a_preemption_is_for_programs() {
    let mut harness = Harness::one_node(1, 4);
    let terms = PoolSpec {
        on_preempt_allowed: [OnPreempt::Requeue].into(),
        ..PoolSpec::default()
    };
    harness.apply(vec![Desired::Pool {
        pool: PoolName::new("default").unwrap(),
        terms: Box::new(terms.into()),
    }]);
    harness.submit("a", allocation(1)).unwrap();
    assert_eq!(harness.state("a"), StepState::Allocated);
    let program = StepSpec {
        lease: None,
        command: vec!["train".into()],
        ..allocation(0)
    };
    harness.submit("b", program).unwrap();
    assert_eq!(harness.code("b"), ReasonCode::OnPreemptNotAllowed);
}

#[test]
fn it_is_queued_again_only_if_its_holder_has_not_had_it() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", allocation(1)).unwrap();
    let never = Exit::NotBegun("the supervisor was away".into());
    let never = AttemptEnd {
        started: None,
        ..end(never, None)
    };
    harness.status("n", "a.1", AttemptPhase::Released(never));
    assert_eq!(harness.state("a"), StepState::Allocated);
    harness.run("a.2");
    let failed = Exit::HostFailed("no space".into());
    harness.status("n", "a.2", released(failed));
    assert_eq!(harness.state("a"), StepState::Failed);
}

#[test]
fn it_is_neither_suspended_nor_queued_again_by_request() {
    let mut harness = allocated();
    for action in [StepAction::Suspend, StepAction::Requeue] {
        harness.action("a", action);
        assert_eq!(harness.state("a"), StepState::Running);
    }
    let node = NodeName::new("n").unwrap();
    harness.change(node.as_str(), NodeChange::Uncordon);
    harness.cancel_within("a", Some(0));
    harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::Cancelled));
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Cancelled, ReasonCode::Cancelled)
    );
}

#[test]
fn one_that_its_host_does_not_know_after_a_restore_is_lost() {
    let mut harness = allocated();
    let backup = harness.log.len();
    harness.restore(backup, RecoveryCause::Restored);
    harness.hello(holding(hello("n", 1, 4), Vec::new()));
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Failed, ReasonCode::HostLost)
    );
}

#[test]
fn one_that_is_adopted_after_a_restore_still_ends_without_renewals() {
    let mut harness = Harness::one_node(1, 4);
    let backup = harness.log.len();
    harness.submit("a", allocation(1)).unwrap();
    harness.run("a.1");
    let warrant = harness.warrant("a.1");
    harness.restore(backup, RecoveryCause::Restored);
    harness.hello(holding(hello("n", 1, 4), vec![status("a.1", running())]));
    harness.show("n", "a.1", Some(&warrant));
    assert_eq!(harness.state("a"), StepState::Running);
    harness.pass(60);
    assert_eq!(harness.code("a"), ReasonCode::NotRenewed);
}

/// An allocation on two hosts, of which the second could not begin and the first is being stopped.
fn half_begun() -> Harness {
    let mut harness = Harness::one_node(1, 4);
    harness.hello(hello("m", 1, 4));
    let spec = StepSpec {
        nodes: 2,
        ..allocation(1)
    };
    harness.submit("a", spec).unwrap();
    let never = AttemptEnd {
        started: None,
        ..end(Exit::NotBegun("the supervisor was away".into()), None)
    };
    harness.status("m", "a.1", AttemptPhase::Released(never));
    assert_eq!(harness.state("a"), StepState::Stopping);
    harness
}

/// Ends the part of the first host, which never ran.
fn end_first(harness: &mut Harness) {
    let never = AttemptEnd {
        started: None,
        ..end(Exit::Signal(9), Some(StopReason::PeerEnded))
    };
    harness.status("n", "a.1", AttemptPhase::Released(never));
}

#[test]
fn a_lease_that_is_over_while_a_gang_is_stopped_ends_it_when_it_would_wait_again() {
    let mut harness = half_begun();
    harness.pass(70);
    end_first(&mut harness);
    harness.pass(0);
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Cancelled, ReasonCode::NotRenewed)
    );
}

#[test]
fn a_release_is_kept_while_a_gang_is_stopped_for_another_reason() {
    let mut harness = half_begun();
    harness.cancel_within("a", Some(0));
    end_first(&mut harness);
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Cancelled, ReasonCode::Cancelled)
    );
}

#[test]
fn a_gang_waits_again_until_all_of_its_hosts_have_it() {
    let mut harness = half_begun();
    end_first(&mut harness);
    assert_eq!(
        harness.step("a").attempts.len(),
        2,
        "{:?}",
        harness.reason("a")
    );
    assert_eq!(harness.state("a"), StepState::Allocated);
}

#[test]
fn renewals_that_add_little_are_not_written_down() {
    let mut harness = allocated();
    harness
        .renew("a", None, Some(HolderState::Running))
        .unwrap();
    let records = harness.log.len();
    for _ in 0..5 {
        harness.pass(1);
        harness
            .renew("a", None, Some(HolderState::Running))
            .unwrap();
    }
    assert_eq!(harness.log.len(), records);
    harness.renew("a", None, Some(HolderState::Idle)).unwrap();
    harness.renew("a", Some(6), None).unwrap();
    assert_eq!(harness.log.len(), records + 2);
}

#[test]
fn a_longer_lease_of_a_renewal_holds_after_a_restart_too() {
    let mut harness = allocated();
    harness.renew("a", Some(200), None).unwrap();
    harness.pass(190);
    harness.restart(0);
    harness.pass(190);
    assert_eq!(harness.state("a"), StepState::Running);
}
