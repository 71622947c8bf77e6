//! Tests of nodes whose own health check fails, and passes again.

use alloc::string::String;

use sluice_common::host_health::HostHealth;
use sluice_common::state::StepState;
use sluice_common::wire::FromNode;

use super::harness::*;
use crate::input::NodeChange;

fn unfit(why: &str) -> FromNode {
    FromNode::Health(HostHealth::Unfit(why.into()))
}

const FIT: FromNode = FromNode::Health(HostHealth::Fit);

fn closed(harness: &Harness) -> Option<String> {
    let cordon = harness
        .core
        .state()
        .node(&node("n"))
        .unwrap()
        .cordon
        .clone();
    cordon.map(|cordon| cordon.reason)
}

#[test]
fn a_host_whose_check_fails_is_cordoned_until_it_passes() {
    let mut harness = Harness::one_node(1, 8);
    assert_eq!(harness.say("n", FIT).types(), [""; 0]);
    assert_eq!(
        harness.say("n", unfit("no disk")).types(),
        ["node_cordoned"]
    );
    assert_eq!(
        closed(&harness).unwrap(),
        "closed by its health check: no disk"
    );
    assert_eq!(harness.say("n", unfit("no disk")).types(), [""; 0]);
    harness.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(harness.state("a"), StepState::Queued);
    assert_eq!(harness.say("n", unfit("no net")).types(), ["node_cordoned"]);
    harness.say("n", FIT);
    assert_eq!(closed(&harness), None);
    assert_eq!(harness.state("a"), StepState::Allocated);
}

#[test]
fn what_an_admin_closed_or_opened_is_the_admin_s() {
    let by_hand = || NodeChange::Cordon {
        reason: Some("new fan".into()),
    };
    let drain = || NodeChange::Drain {
        reason: None,
        deadline: None,
    };
    let mut harness = Harness::one_node(1, 8);
    harness.change("n", by_hand());
    harness.say("n", unfit("no disk"));
    harness.say("n", FIT);
    assert_eq!(closed(&harness).unwrap(), "new fan");
    harness.change("n", NodeChange::Uncordon);
    harness.say("n", unfit("no disk"));
    harness.change("n", drain());
    assert_eq!(
        harness.say("n", FIT).types(),
        [""; 0],
        "it is drained as well"
    );
    harness.change("n", NodeChange::Uncordon);
    assert_eq!(closed(&harness), None);
}
