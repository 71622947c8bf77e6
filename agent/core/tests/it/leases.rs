//! From when a lease counts, and what its expiry forbids.

use agent_core::{Input, LinkId};
use sluice_common::supervision::BootMillis;

use crate::harness::*;

#[test]
fn a_welcome_answers_the_hello_so_the_first_lease_runs_from_there() {
    let mut harness = Harness::new();
    harness.feed(Input::Dialled { link: LINK });
    harness.pass(2000);
    harness.feed(up(vec![]));
    harness.pass(5000);
    assert_eq!(harness.told(welcomed(LINK, 5)), "save 5; renew 402000");
}

#[test]
fn an_acknowledged_heartbeat_renews_from_its_sending() {
    let mut harness = Harness::linked();
    harness.pass(10_000);
    assert_eq!(harness.told(acked(108_000)), "renew 408000");
    let outputs = harness.feed(assign("a.1"));
    assert_eq!(spawn_of(&outputs).lease_until, Some(BootMillis(408_000)));
}

#[test]
fn a_lease_never_goes_back() {
    let mut harness = Harness::linked();
    harness.pass(10_000);
    harness.feed(acked(108_000));
    for sent in [108_000, 107_000, 0] {
        assert_eq!(harness.told(acked(sent)), "", "{sent}");
    }
}

#[test]
fn a_heartbeat_from_the_future_counts_from_now() {
    let mut harness = Harness::linked();
    harness.pass(1000);
    assert_eq!(harness.told(acked(u64::MAX)), "renew 401000");
}

#[test]
fn a_coordinator_that_did_not_let_the_node_in_renews_nothing() {
    let mut harness = Harness::new();
    harness.feed(up(vec![]));
    harness.feed(Input::Dialled { link: LINK });
    harness.pass(1000);
    assert_eq!(harness.told(acked(100_500)), "");

    let mut rejected = Harness::linked();
    rejected.feed(Input::Dialled { link: LinkId(2) });
    rejected.feed(welcomed(LinkId(2), 4));
    rejected.pass(1000);
    let sent = BootMillis(100_500);
    let ack = Input::HeartbeatAcked {
        link: LinkId(2),
        sent,
    };
    assert_eq!(rejected.told(ack), "");
}

#[test]
fn nothing_is_started_when_the_lease_has_passed() {
    let mut harness = Harness::linked();
    harness.pass(299_999);
    let told = harness.told(assign("a.1"));
    assert_eq!(told, "1: a.1 starting; spawn a.1", "a moment is left");
    harness.pass(1);
    let given_back =
        "1: b.1 released NotBegun(\"its lease had expired when it was about to start\")";
    assert_eq!(harness.told(assign("b.1")), given_back);
    harness.feed(acked(399_000));
    assert_eq!(harness.told(assign("b.1")), given_back, "it was given up");
    assert_eq!(harness.told(assign("b.2")), "1: b.2 starting; spawn b.2");
}

#[test]
fn a_start_that_waits_for_the_supervisor_is_given_up_when_its_lease_passes() {
    for (millis, told_when_up) in [
        (1000, "renew 400000; spawn a.1"),
        (
            300_000,
            "renew 400000; 1: a.1 released NotBegun(\"its lease had expired when it was about to start\")",
        ),
    ] {
        let mut harness = Harness::linked();
        harness.feed(down());
        assert_eq!(harness.told(assign("a.1")), "1: a.1 starting");
        harness.pass(millis);
        assert_eq!(harness.told(up(vec![])), told_when_up);
    }
}

#[test]
fn a_renewal_reaches_a_supervisor_that_was_away() {
    let mut harness = Harness::running();
    harness.feed(down());
    harness.pass(5000);
    assert_eq!(harness.told(acked(104_000)), "");
    assert_eq!(harness.told(up(vec![running("a.1")])), "renew 404000");
}
