//! Nodes whose own health check fails, and passes again.

use alloc::string::String;

use sluice_common::host_health::HostHealth;
use sluice_common::state::StepState;
use sluice_common::wire::FromNode;

use super::rig::*;
use crate::input::NodeChange;

fn unfit(why: &str) -> FromNode {
    FromNode::Health(HostHealth::Unfit(why.into()))
}

const FIT: FromNode = FromNode::Health(HostHealth::Fit);

fn closed(rig: &Rig) -> Option<String> {
    let cordon = rig.core.state().node(&node("n")).unwrap().cordon.clone();
    cordon.map(|cordon| cordon.reason)
}

#[test]
fn a_host_whose_check_fails_is_cordoned_until_it_passes() {
    let mut rig = Rig::one_node(1, 8);
    assert_eq!(rig.say("n", FIT).types(), [""; 0]);
    assert_eq!(rig.say("n", unfit("no disk")).types(), ["node_cordoned"]);
    assert_eq!(closed(&rig).unwrap(), "closed by its health check: no disk");
    assert_eq!(rig.say("n", unfit("no disk")).types(), [""; 0]);
    rig.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(rig.state("a"), StepState::Queued);
    assert_eq!(rig.say("n", unfit("no net")).types(), ["node_cordoned"]);
    rig.say("n", FIT);
    assert_eq!(closed(&rig), None);
    assert_eq!(rig.state("a"), StepState::Allocated);
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
    let mut rig = Rig::one_node(1, 8);
    rig.change("n", by_hand());
    rig.say("n", unfit("no disk"));
    rig.say("n", FIT);
    assert_eq!(closed(&rig).unwrap(), "new fan");
    rig.change("n", NodeChange::Uncordon);
    rig.say("n", unfit("no disk"));
    rig.change("n", drain());
    assert_eq!(rig.say("n", FIT).types(), [""; 0], "it is drained as well");
    rig.change("n", NodeChange::Uncordon);
    assert_eq!(closed(&rig), None);
}
