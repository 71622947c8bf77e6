//! Tests of which coordinators the host greets, obeys and rejects.

use agent_core::{Input, LinkId, Output};
use sluice_common::epoch::{EPOCH_SEAL_BYTES, EpochSeal, SealedEpoch};
use sluice_common::supervision::BootMillis;
use sluice_common::wire::ToNode;

use crate::harness::*;

fn dialled(link: u64) -> Input {
    Input::Dialled { link: LinkId(link) }
}

fn any_order() -> ToNode {
    ToNode::Assign(Box::new(assignment("a.1")))
}

#[test]
fn a_hello_says_all_that_the_host_knows() {
    let mut harness = Harness::running();
    harness.feed(assign("b.1"));
    harness.feed(stop("c.1", 0));
    let hello = "greet 2 epoch 5 [a.1 running, b.1 starting, c.1 released Unknown]";
    assert_eq!(harness.told(dialled(2)), hello);
}

#[test]
fn nobody_is_greeted_before_the_supervisor_has_told_what_runs() {
    let mut harness = Harness::with_epoch(Some(epoch(3)));
    assert_eq!(harness.told(dialled(1)), "");
    let told = harness.told(up(vec![running("a.1")]));
    assert_eq!(told, "greet 1 epoch 3 [a.1 running]");
}

#[test]
fn of_several_links_only_the_newest_waits_for_the_supervisor() {
    let mut harness = Harness::new();
    harness.feed(dialled(1));
    harness.feed(dialled(2));
    assert_eq!(harness.told(up(vec![])), "greet 2 epoch 0 []");
}

#[test]
fn a_supervisor_that_is_away_does_not_delay_a_hello_once_it_has_spoken() {
    let mut harness = Harness::running();
    harness.feed(down());
    assert_eq!(harness.told(dialled(2)), "greet 2 epoch 5 [a.1 running]");
    let told = harness.told(up(vec![running("a.1")]));
    assert_eq!(told, "renew 400000", "greeted once only");
}

#[test]
fn statuses_go_to_the_newest_link_and_to_none_before_its_hello() {
    let mut harness = Harness::running();
    harness.feed(dialled(2));
    let told = harness.told(Input::Attempt(gone("a.1")));
    assert_eq!(told, "2: a.1 ended Code(0); 2: a.1 released Code(0)");

    let mut waiting = Harness::new();
    waiting.feed(dialled(1));
    assert_eq!(waiting.told(Input::Attempt(gone("a.1"))), "");
}

#[test]
fn without_a_link_nothing_is_sent_and_nothing_stops() {
    let mut harness = Harness::running();
    assert_eq!(harness.told(Input::LinkLost { link: LINK }), "");
    assert_eq!(harness.phase("a.1"), "running");
    let told = harness.told(Input::Attempt(gone("a.1")));
    assert_eq!(told, "");
    let told = harness.told(dialled(2));
    assert_eq!(told, "greet 2 epoch 5 [a.1 released Code(0)]");
}

#[test]
fn words_of_a_link_that_was_replaced_or_lost_are_ignored() {
    let old = LINK;
    for event in [
        welcomed(old, 9),
        order(any_order()),
        order_as(old, epoch(9), any_order()),
        acked(100_000),
        Input::LinkLost { link: old },
    ] {
        let mut replaced = Harness::linked();
        replaced.feed(dialled(2));
        replaced.feed(welcomed(LinkId(2), 5));
        replaced.pass(1000);
        assert_eq!(replaced.told(event.clone()), "", "{event:?}");
        let repeat = order_as(LinkId(2), epoch(5), any_order());
        let told = replaced.told(repeat);
        assert_eq!(told, "2: a.1 starting; spawn a.1", "the new link stands");

        let mut lost = Harness::linked();
        lost.feed(Input::LinkLost { link: old });
        lost.pass(1000);
        assert_eq!(lost.told(event.clone()), "", "{event:?}");
    }
}

#[test]
fn a_higher_epoch_is_saved_before_anything_else() {
    let mut harness = Harness::with_epoch(Some(epoch(3)));
    harness.feed(up(vec![]));
    harness.feed(dialled(1));
    assert_eq!(harness.told(welcomed(LINK, 4)), "save 4; renew 400000");
    let raised = harness.told(order_as(LINK, epoch(4), any_order()));
    assert_eq!(raised, "1: a.1 starting; spawn a.1");
    assert_eq!(harness.core.highest_epoch(), Some(&epoch(4)));
}

#[test]
fn an_order_of_an_epoch_without_a_welcome_is_not_obeyed_nor_its_epoch_kept() {
    let mut harness = Harness::linked();
    let told = harness.told(order_as(LINK, epoch(7), any_order()));
    assert!(told.starts_with("reject 1: "), "{told}");
    assert!(told.contains("has not accepted this host"), "{told}");
    assert_eq!(harness.core.highest_epoch(), Some(&epoch(5)));
}

#[test]
fn the_seal_of_an_epoch_is_saved_with_it_and_a_new_seal_anew() {
    let sealed = |byte| SealedEpoch {
        epoch: epoch(5),
        seal: Some(EpochSeal([byte; EPOCH_SEAL_BYTES])),
    };
    let mut harness = Harness::linked();
    for (link, byte, saved) in [(2, 1, "save 5"), (3, 1, ""), (4, 2, "save 5")] {
        harness.feed(dialled(link));
        let mut welcome = welcomed(LinkId(link), 5);
        if let Input::Welcomed { welcome, .. } = &mut welcome {
            welcome.epoch = sealed(byte);
        }
        let told = harness.told(welcome);
        assert_eq!(told.split("; ").next().unwrap(), saved);
    }
    harness.feed(Input::LinkLost { link: LinkId(4) });
    let outputs = harness.feed(dialled(5));
    let [Output::Greet { highest_epoch, .. }] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    assert_eq!(*highest_epoch, Some(sealed(2)));
}

#[test]
fn the_same_epoch_is_not_saved_again() {
    let mut harness = Harness::linked();
    harness.feed(dialled(2));
    harness.pass(1);
    assert_eq!(harness.told(welcomed(LinkId(2), 5)), "");
}

#[test]
fn an_older_coordinator_or_a_foreign_one_is_rejected_and_not_heard_again() {
    for (epoch, words) in [
        (
            epoch(4),
            "epoch 4 of cluster `c`, but this host has obeyed epoch 5",
        ),
        (other_cluster(9), "speaks for cluster `other`"),
    ] {
        let mut harness = Harness::linked();
        harness.feed(dialled(2));
        let told = harness.told(welcome_as(LinkId(2), epoch.clone()));
        assert!(told.starts_with("reject 2: "), "{told}");
        assert!(told.contains(words), "{told}");
        assert_eq!(harness.core.highest_epoch(), Some(&self::epoch(5)));
        let order = order_as(LinkId(2), epoch, any_order());
        assert_eq!(harness.told(order), "", "the link is forgotten");
        assert_eq!(harness.phase("a.1"), "unknown");
    }
}

#[test]
fn an_order_of_an_older_epoch_breaks_the_link_and_does_nothing() {
    for refused in [epoch(4), other_cluster(5), other_cluster(6)] {
        for what in [
            any_order(),
            ToNode::Assign(Box::new(assignment("b.1"))),
            ToNode::Forget {
                attempt: attempt("a.1"),
            },
        ] {
            let mut harness = Harness::running();
            let outputs = harness.feed(order_as(LINK, refused.clone(), what));
            let only_rejected = matches!(&outputs[..], [Output::Reject { link: LINK, .. }]);
            assert!(only_rejected, "{outputs:?}");
            assert_eq!(harness.phase("a.1"), "running");
            assert_eq!(harness.phase("b.1"), "unknown");
        }
    }
}

#[test]
fn a_coordinator_that_speaks_out_of_turn_is_rejected() {
    let mut harness = Harness::new();
    harness.feed(dialled(1));
    let early = harness.told(welcomed(LINK, 5));
    assert_eq!(
        early,
        "reject 1: the coordinator sent a welcome before the hello that it answers"
    );

    let mut harness = Harness::new();
    harness.feed(up(vec![]));
    harness.feed(dialled(1));
    let early = harness.told(order(any_order()));
    assert_eq!(
        early,
        "reject 1: the coordinator sent an order before its welcome"
    );
    assert_eq!(harness.phase("a.1"), "unknown");
    assert_eq!(harness.core.highest_epoch(), None, "nor is its epoch taken");
}

/// An order with an explicit number on its link.
fn numbered(number: u64, heard: u64, what: ToNode) -> Input {
    let Input::Command { link, mut command } = order(what) else {
        unreachable!("an order is a command");
    };
    command.number = number;
    command.last_heard = BootMillis(heard);
    Input::Command { link, command }
}

fn resume() -> ToNode {
    let attempt = attempt("a.1");
    ToNode::Resume { attempt }
}

#[test]
fn an_order_that_was_held_back_starts_nothing() {
    let limit = ORDER_LIMIT.millis();
    for what in [any_order(), resume()] {
        for late in [limit, 87_000, 299_999] {
            let mut harness = Harness::linked();
            let heard = harness.boot;
            harness.pass(late);
            // The lease was renewed meanwhile, so nothing else forbids the start.
            harness.feed(acked(harness.boot - 1));
            let told = harness.told(numbered(1, heard, what.clone()));
            assert!(told.starts_with("reject 1: the order"), "{told}");
            assert!(told.contains("a.1"), "{told}");
            assert_eq!(harness.phase("a.1"), "unknown");
        }
    }
    let mut harness = Harness::linked();
    let heard = harness.boot;
    harness.pass(limit - 1);
    let told = harness.told(numbered(1, heard, any_order()));
    assert_eq!(told, "1: a.1 starting; spawn a.1", "a moment is left");
}

#[test]
fn an_order_that_answers_what_was_never_said_starts_nothing() {
    for ahead in [1, 1_000_000] {
        let mut harness = Harness::linked();
        let heard = harness.boot + ahead;
        let told = harness.told(numbered(1, heard, any_order()));
        assert!(told.starts_with("reject 1: "), "{told}");
        assert_eq!(harness.phase("a.1"), "unknown");
    }
}

#[test]
fn an_order_that_is_lost_repeated_or_swapped_breaks_the_link_and_does_nothing() {
    for number in [1, 3, u64::MAX] {
        let mut harness = Harness::running();
        let heard = harness.boot;
        let order = numbered(number, heard, ToNode::Assign(Box::new(assignment("b.1"))));
        let told = harness.told(order);
        assert!(told.starts_with("reject 1: order"), "{number}: {told}");
        assert_eq!(harness.phase("b.1"), "unknown");
        assert_eq!(harness.phase("a.1"), "running");
    }
}

#[test]
fn what_ends_something_is_obeyed_however_late_it_comes() {
    let mut harness = Harness::running();
    let heard = harness.boot;
    harness.pass(250_000);
    let stop = ToNode::Stop {
        attempt: attempt("a.1"),
        why: sluice_common::wire::StopReason::Superseded,
        grace: GRACE,
    };
    let told = harness.told(numbered(2, heard, stop));
    assert!(told.contains("stopping"), "{told}");
}
