//! Tests of agents that connect, are heard, fall silent and disconnect.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec;

use sluice_common::id::{ClusterId, Epoch, PoolName};
use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{FromNode, Hello};

use super::harness::*;
use crate::{Input, Record, Settings, TimerKey};

#[test]
fn the_first_start_begins_epoch_1_and_makes_the_default_pool_once() {
    let mut harness = Harness::new();
    assert_eq!(harness.core.state().epoch(), Some(&epoch(1)));
    let pools = harness.core.state().pools().keys();
    assert_eq!(
        pools.map(PoolName::as_str).collect::<vec::Vec<_>>(),
        ["default"]
    );
    let effects = harness.restart(0);
    assert_eq!(
        effects.records,
        [Record::CoordinatorStarted {
            epoch: epoch(2),
            lost_after: harness.core.settings().lost_after,
        }]
    );
}

#[test]
fn a_hello_is_welcomed_with_epoch_and_terms() {
    let mut harness = Harness::new();
    let effects = harness.hello(hello("n", 1, 4));
    assert_eq!(effects.types(), ["node_reported", "node_ready"]);
    let welcome = effects.welcome();
    assert_eq!(welcome.epoch.epoch, epoch(1));
    assert_eq!(
        (welcome.lease, welcome.stop_limit, welcome.heartbeat),
        (SETTINGS.lease, SETTINGS.stop_limit, SETTINGS.heartbeat)
    );
    assert_eq!(effects.timers.len(), 1);
    assert_eq!(harness.core.heard_at(&node("n")), Some(harness.now));
}

#[test]
fn a_second_hello_replaces_the_connection_and_reports_only_what_is_new() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    let old = harness.session("n");
    let list = || vec![status("a.1", running())];
    let effects = harness.hello(holding(hello("n", 1, 4), list()));
    assert_eq!(effects.types(), ["starting", "started"]);
    let mut newer = hello("n", 1, 4);
    newer.version = "2".to_string();
    let effects = harness.hello(holding(newer, list()));
    assert_eq!(effects.types(), ["node_reported"]);
    let stale = harness.feed(Input::FromNode {
        session: old,
        node: node("n"),
        message: FromNode::Status(status("a.1", ended(Exit::Code(0)))),
    });
    assert!(stale.records.is_empty());
    harness.feed(Input::NodeGone {
        session: old,
        node: node("n"),
    });
    assert_eq!(harness.node_state("n"), NodeState::Ready);
}

fn refused(change: impl FnOnce(&mut Hello), words: &[&str]) {
    let mut harness = Harness::new();
    let mut hello = hello("n", 1, 4);
    change(&mut hello);
    let effects = harness.hello(hello);
    let message = effects.refusal();
    for word in words {
        assert!(message.contains(word), "{message}");
    }
    assert!(effects.records.is_empty());
    assert!(harness.core.state().nodes().is_empty());
    assert!(harness.heartbeat("n").records.is_empty());
}

#[test]
fn who_does_not_belong_is_refused_with_the_way_out() {
    refused(|h| h.protocol = 9, &["protocol 9", "same release"]);
    refused(
        |h| h.pool = PoolName::new("defautl").unwrap(),
        &["`defautl`", "did you mean `default`", "agent.toml"],
    );
    let other = ClusterId::new("elsewhere").unwrap();
    let foreign = Epoch {
        cluster: other,
        counter: 1,
    };
    refused(
        |h| h.highest_epoch = Some(foreign.into()),
        &["`elsewhere`", "`c`", "state_dir"],
    );
    refused(
        |h| h.highest_epoch = Some(epoch(u64::MAX).into()),
        &["epoch 18446744073709551615", "sluice-agent forget-epoch"],
    );
}

#[test]
fn a_later_epoch_without_a_proof_keeps_out_the_host_that_claims_it_and_moves_nothing() {
    let mut harness = Harness::one_node(2, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.hello(hello("liar", 1, 4));
    harness.gone("liar");
    let before = harness.core.state().epoch().cloned();
    let mut count = 0;
    for claimed in (2..20).chain([1 << 39, 1 << 40, 1 << 53, u64::MAX]) {
        let mut lie = hello("liar", 1, 4);
        lie.highest_epoch = Some(epoch(claimed).into());
        let effects = harness.hello_with(lie, false);
        let message = effects.refusal();
        assert!(message.contains("sluice-agent forget-epoch"), "{message}");
        assert!(effects.orders.is_empty(), "{:?}", effects.orders);
        count += effects
            .types()
            .iter()
            .filter(|it| **it == "node_refused")
            .count();
        assert!(effects.types().len() <= 1, "{:?}", effects.types());
    }
    assert_eq!(count, 1, "it is an event once");
    assert!(harness.core.state().recovery().is_none());
    assert_eq!(harness.core.state().epoch().cloned(), before);
    harness.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(harness.placed("b").0, "n", "others go on");
    // The host is admitted as soon as it tells the truth.
    harness.hello_with(hello("liar", 1, 4), false).welcome();
}

#[test]
fn the_epoch_of_this_coordinator_counts_as_another_s_only_with_a_proof() {
    let mut harness = Harness::new();
    let mut same = hello("n", 1, 4);
    same.highest_epoch = Some(epoch(1).into());
    harness.hello_with(same, false).refusal();
    assert!(harness.core.state().recovery().is_none());
}

#[test]
fn an_earlier_epoch_needs_no_proof() {
    let mut harness = Harness::one_node(1, 4);
    harness.restart(harness.log.len());
    let mut earlier = hello("n", 1, 4);
    earlier.highest_epoch = Some(epoch(1).into());
    assert_eq!(
        harness.hello_with(earlier, false).welcome().epoch.epoch,
        epoch(2)
    );
}

#[test]
fn who_is_linked_is_welcomed_anew_when_the_epoch_rises() {
    let mut harness = Harness::one_node(1, 4);
    let mut later = hello("m", 1, 4);
    later.highest_epoch = Some(epoch(5).into());
    let effects = harness.hello(later);
    assert_eq!(effects.cut.len(), 1, "{:?}", effects.cut);
    assert!(effects.cut[0].contains("later epoch"), "{:?}", effects.cut);
    let mut known = hello("n", 1, 4);
    known.highest_epoch = Some(epoch(1).into());
    assert_eq!(
        harness.hello_with(known, false).welcome().epoch.epoch,
        epoch(6)
    );
}

#[test]
fn a_second_host_of_the_same_name_is_kept_out_while_the_first_is_heard() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let clone = || rebooted(hello("n", 1, 4));
    let effects = harness.hello(clone());
    let message = effects.refusal();
    for word in ["`n`", "a name and a certificate of its own", "15s"] {
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(effects.types(), ["node_refused"]);
    harness.pass(14);
    harness.heartbeat("n");
    harness.pass(14);
    assert!(harness.hello(clone()).refusal().contains("`n`"));
    assert_eq!(harness.state("a"), StepState::Running);
    // The host was no copy: the first has fallen silent, and no connection had to break for that.
    harness.pass(1);
    harness.hello(clone()).welcome();
    assert_eq!(harness.code("a"), ReasonCode::Allocated);
    assert_eq!(harness.step("a").attempts.len(), 2);
}

/// Makes the same hello from another machine with a copy of the disk.
fn cloned(mut hello: Hello) -> Hello {
    hello.inventory.machine.id = "other".to_string();
    rebooted(hello)
}

fn of_machine(mut hello: Hello) -> Hello {
    hello.inventory.machine.id = "first".to_string();
    hello
}

#[test]
fn a_clone_does_not_take_the_place_of_a_host_that_is_cut_off() {
    let mut harness = Harness::new();
    harness.hello(of_machine(hello("n", 1, 4)));
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.gone("n");
    for _ in 0..500 {
        if harness.core.state().node(&node("n")).unwrap().state == NodeState::Lost {
            break;
        }
        let effects = harness.hello(cloned(hello("n", 1, 4)));
        assert!(
            effects.refusal().contains("known from another machine"),
            "{effects:?}"
        );
        assert_eq!(harness.state("a"), StepState::Running);
        harness.pass(1);
    }
    // The attempts on the first machine have stopped by then: the other may replace it.
    assert_eq!(harness.state("a"), StepState::Queued);
    harness.hello(cloned(hello("n", 1, 4))).welcome();
}

#[test]
fn a_restart_of_the_coordinator_lets_no_clone_in_before_the_host() {
    let mut harness = Harness::new();
    harness.hello(of_machine(hello("n", 1, 4)));
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.restart(harness.log.len());
    harness.hello(cloned(hello("n", 1, 4))).refusal();
    let back = of_machine(holding(hello("n", 1, 4), vec![status("a.1", running())]));
    harness.hello(back).welcome();
    assert_eq!(harness.state("a"), StepState::Running);
}

#[test]
fn a_copy_of_the_state_directory_on_one_machine_does_not_take_the_place_of_the_first() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let mut copy = hello("n", 1, 4);
    copy.state_dir = "another".to_string();
    for _ in 0..30 {
        let effects = harness.hello(copy.clone());
        assert!(
            effects.refusal().contains("another state directory"),
            "{effects:?}"
        );
        harness.pass(1);
        harness.heartbeat("n");
    }
    assert_eq!(harness.state("a"), StepState::Running);
    // The node's own agent is admitted at once, whatever became of the connection.
    let back = holding(hello("n", 1, 4), vec![status("a.1", running())]);
    harness.hello(back).welcome();
    assert_eq!(harness.state("a"), StepState::Running);
}

#[test]
fn a_reboot_of_the_same_machine_is_let_in_at_once_when_its_link_has_broken() {
    let mut harness = Harness::new();
    harness.hello(of_machine(hello("n", 1, 4)));
    harness.gone("n");
    harness
        .hello(rebooted(of_machine(hello("n", 1, 4))))
        .welcome();
}

#[test]
fn a_host_that_was_booted_anew_is_let_in_at_once_when_its_link_has_broken() {
    let mut harness = Harness::one_node(1, 4);
    harness.gone("n");
    harness.hello(rebooted(hello("n", 1, 4))).welcome();
}

#[test]
fn a_host_that_obeyed_a_later_epoch_is_gone_above() {
    let mut harness = Harness::one_node(1, 4);
    let mut later = hello("m", 1, 4);
    later.highest_epoch = Some(epoch(5).into());
    let effects = harness.hello(later);
    assert_eq!(effects.welcome().epoch.epoch, epoch(6));
    assert_eq!(effects.types()[0], "coordinator_started");
    // Our own epoch is no sign of another coordinator.
    let mut known = hello("n", 1, 4);
    known.highest_epoch = Some(epoch(6).into());
    let effects = harness.hello(known);
    assert_eq!(effects.welcome().epoch.epoch, epoch(6));
    assert_eq!(effects.types(), ["node_ready"]);
}

#[test]
fn a_host_that_heard_our_epoch_from_another_is_gone_above() {
    let mut harness = Harness::new();
    let mut same = hello("n", 1, 4);
    same.highest_epoch = Some(epoch(1).into());
    assert_eq!(harness.hello(same).welcome().epoch.epoch, epoch(2));
}

#[test]
fn a_lost_link_makes_it_unreachable_and_what_it_runs_goes_on() {
    let mut harness = Harness::one_node(2, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    assert_eq!(harness.gone("n").types(), ["node_unreachable"]);
    harness.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(harness.state("a"), StepState::Running);
    assert_eq!(harness.code("b"), ReasonCode::NoLiveHost);
    let effects = harness.hello(holding(hello("n", 2, 4), vec![status("a.1", running())]));
    assert_eq!(effects.types(), ["node_ready", "allocated"]);
    assert_eq!(effects.orders, ["assign b.1"]);
}

#[test]
fn a_silent_node_is_unreachable_then_lost_and_its_steps_go_elsewhere() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    assert!(harness.pass(14).records.is_empty());
    assert_eq!(harness.pass(1).types(), ["node_unreachable"]);
    harness.hello(hello("m", 1, 4));
    for _ in 0..374 {
        assert!(harness.pass(1).records.is_empty());
        harness.heartbeat("m");
    }
    let effects = harness.pass(1);
    let expected = ["node_lost", "ended", "requeued", "released", "allocated"];
    assert_eq!(effects.types(), expected);
    assert_eq!(effects.orders, ["assign a.2"]);
    assert_eq!(harness.placed("a").0, "m");
    assert_eq!(harness.step("a").retries_spent, 0);
}

#[test]
fn leases_that_were_given_under_longer_terms_run_out_before_a_node_is_lost() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let shorter = Settings {
        lease: Span::from_secs(1),
        stop_limit: Span::from_secs(1),
        lost_after: Span::from_secs(20),
        ..SETTINGS
    };
    harness.restart_with(shorter, 0);
    // A second start under the shorter terms does not shorten the leases of the first coordinator.
    harness.restart_with(shorter, 0);
    assert!(harness.pass(388).records.is_empty());
    assert_eq!(harness.pass(1).types()[0], "node_lost");
}

#[test]
fn a_lost_host_s_step_waits_with_its_reason_where_there_is_no_other() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.gone("n");
    harness.pass(400);
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Queued, ReasonCode::HostLost)
    );
    let message = harness.reason("a").message;
    assert!(message.contains("`n` was silent"), "{message}");
    assert!(message.contains("`n` is lost"), "{message}");
}

#[test]
fn a_node_that_is_heard_is_never_lost_and_its_timer_keeps_watch() {
    let mut harness = Harness::one_node(1, 4);
    for _ in 0..500 {
        harness.pass(3);
        assert!(harness.heartbeat("n").records.is_empty());
    }
    assert_eq!(harness.node_state("n"), NodeState::Ready);
    assert_eq!(harness.pass(20).types(), ["node_unreachable"]);
    assert_eq!(harness.heartbeat("n").types(), ["node_ready"]);
    assert_eq!(harness.pass(20).types(), ["node_unreachable"]);
}

#[test]
fn a_late_timer_looks_at_the_time_and_not_at_the_fact() {
    let mut harness = Harness::one_node(1, 4);
    harness.now = harness.now + Span::from_secs(1000);
    harness.heartbeat("n");
    let effects = harness.feed(Input::Timer(TimerKey::NodeSilence(node("n"))));
    assert!(effects.records.is_empty());
    assert_eq!(
        effects.timers[0].1,
        harness.now + SETTINGS.unreachable_after
    );
    let unknown = harness.feed(Input::Timer(TimerKey::NodeSilence(node("x"))));
    assert_eq!(unknown, super::harness::InputEffects::default());
}

#[test]
fn a_restarted_coordinator_gives_every_node_its_whole_time_again() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.pass(10);
    let effects = harness.restart(3);
    assert_eq!(effects.types(), ["coordinator_started", "node_unreachable"]);
    assert!(harness.pass(389).records.is_empty());
    assert_eq!(harness.state("a"), StepState::Running);
    assert_eq!(harness.pass(1).types()[0], "node_lost");
}

#[test]
fn a_node_that_lists_a_gpu_twice_has_it_once_and_says_so() {
    let mut harness = Harness::new();
    let mut twice = hello("n", 2, 4);
    twice.inventory.gpus[1].uuid = "GPU-n-0".to_string();
    harness.hello(twice.clone());
    let inventory = &harness.core.state().node(&node("n")).unwrap().inventory;
    assert_eq!(inventory.gpus.len(), 1);
    assert!(
        inventory.notes[0].contains("GPU-n-0"),
        "{:?}",
        inventory.notes
    );
    let effects = harness.say("n", FromNode::Inventory(Box::new(twice.inventory)));
    assert!(effects.records.is_empty(), "nothing new");
}

#[test]
fn a_changed_inventory_lets_the_next_step_start() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.submit("b", spec(1, 1000)).unwrap();
    let effects = harness.say("n", FromNode::Inventory(Box::new(inventory("n", 2, 4))));
    assert_eq!(effects.types(), ["node_reported", "allocated"]);
}
