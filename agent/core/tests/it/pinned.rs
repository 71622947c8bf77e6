//! Processors of pinned steps: no two running steps share one, whatever was suspended, forgotten or
//! restarted.

use agent_core::Input;
use sluice_common::amount::{Amounts, MCPU};
use sluice_common::processors::CpuMode;
use sluice_common::supervision::{AttemptView, FreezerState, HostPhase};
use sluice_common::wire::ToNode;

use crate::harness::*;

fn pinned(id: &str, processors: u64) -> Input {
    let mut assignment = assignment(id);
    assignment.cpu_mode = CpuMode::Pinned;
    assignment.resources = Amounts::new().with(MCPU, processors * 1000);
    order(ToNode::Assign(Box::new(assignment)))
}

/// Starts a pinned step; returns its processors from the start order.
fn begun(harness: &mut Harness, id: &str, processors: u64) -> String {
    let outputs = harness.feed(pinned(id, processors));
    let spec = spawn_of(&outputs);
    assert_eq!(spec.processors.own, spec.launch_record.processors);
    assert_eq!(spec.processors.mode, CpuMode::Pinned);
    let own = spec.processors.own.to_string();
    harness.feed(Input::Attempt(shown(id, &own, FreezerState::Thawed)));
    own
}

fn shown(id: &str, processors: &str, freezer: FreezerState) -> AttemptView {
    let mut view = running(id);
    view.launch_record.processors = processors.parse().expect("a list of processors");
    view.freezer = freezer;
    view
}

fn seen_as(id: &str, processors: &str, freezer: FreezerState) -> Input {
    Input::Attempt(shown(id, processors, freezer))
}

fn suspended(harness: &mut Harness, id: &str, processors: &str) {
    harness.feed(order(ToNode::Suspend {
        attempt: attempt(id),
        room_mb: 0,
    }));
    harness.feed(seen_as(id, processors, FreezerState::Frozen));
    assert!(
        harness.phase(id).starts_with("suspended"),
        "{}",
        harness.phase(id)
    );
}

fn resume(id: &str) -> Input {
    order(ToNode::Resume {
        attempt: attempt(id),
    })
}

#[test]
fn each_has_its_own_and_too_few_are_refused_in_words() {
    let mut harness = Harness::linked();
    assert_eq!(begun(&mut harness, "a.1", 2), "0-1");
    assert_eq!(begun(&mut harness, "b.1", 3), "2-4");
    let told = harness.told(pinned("c.1", 2));
    let said = "it asks for 2 processors of its own (`cpu_mode: pinned`), and of the 6 of this host that steps may use, 5 \
                belong to other pinned steps";
    assert!(told.contains(said), "{told}");
    // An ended attempt has no processors, even before the coordinator knows of the end.
    harness.feed(Input::Attempt(gone("a.1")));
    assert_eq!(begun(&mut harness, "d.1", 3), "0-1,5");
}

#[test]
fn one_that_is_not_pinned_has_none() {
    let mut harness = Harness::linked();
    let outputs = harness.feed(assign("a.1"));
    assert!(spawn_of(&outputs).processors.own.is_empty());
    assert_eq!(begun(&mut harness, "b.1", 6), "0-5");
}

#[test]
fn what_is_frozen_has_none_and_is_given_others_where_its_own_are_another_s() {
    let mut harness = Harness::linked();
    assert_eq!(begun(&mut harness, "a.1", 2), "0-1");
    suspended(&mut harness, "a.1", "0-1");
    assert_eq!(begun(&mut harness, "b.1", 1), "0");
    let told = harness.told(resume("a.1"));
    assert!(told.contains("pin a.1 to 1-2; thaw a.1"), "{told}");
    harness.feed(seen_as("a.1", "1-2", FreezerState::Thawed));
    assert_eq!(begun(&mut harness, "c.1", 3), "3-5");

    let mut harness = Harness::linked();
    begun(&mut harness, "a.1", 2);
    suspended(&mut harness, "a.1", "0-1");
    let told = harness.told(resume("a.1"));
    assert!(!told.contains("pin") && told.contains("thaw"), "{told}");
}

#[test]
fn a_supervisor_that_was_away_is_told_anew() {
    let mut harness = Harness::linked();
    begun(&mut harness, "a.1", 2);
    suspended(&mut harness, "a.1", "0-1");
    begun(&mut harness, "b.1", 1);
    harness.feed(down());
    let told = harness.told(resume("a.1"));
    assert!(!told.contains("pin"), "nobody is there: {told}");
    let told = harness.told(up(vec![
        shown("a.1", "0-1", FreezerState::Frozen),
        shown("b.1", "0", FreezerState::Thawed),
    ]));
    assert!(told.contains("pin a.1 to 1-2; thaw a.1"), "{told}");
}

#[test]
fn a_new_agent_has_it_from_the_supervisor() {
    let mut harness = Harness::new();
    let mut over = shown("c.1", "4-5", FreezerState::Thawed);
    let HostPhase::Gone(end) = gone("c.1").phase else {
        panic!("it is gone");
    };
    over.phase = HostPhase::Gone(end);
    harness.feed(up(vec![
        shown("a.1", "0,2", FreezerState::Thawed),
        shown("b.1", "1", FreezerState::Frozen),
        over,
    ]));
    harness.feed(Input::Dialled { link: LINK });
    harness.feed(welcomed(LINK, 5));
    assert_eq!(begun(&mut harness, "d.1", 4), "1,3-5");
}
