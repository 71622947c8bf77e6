//! Processors of steps' own: no two that run have the same, whatever was frozen, forgotten or restarted meanwhile.

use agent_core::Input;
use sluice_common::amount::{Amounts, MCPU};
use sluice_common::processors::CpuMode;
use sluice_common::supervision::{AttemptView, FreezerState, HostPhase};
use sluice_common::wire::ToNode;

use crate::bench::*;

fn pinned(id: &str, processors: u64) -> Input {
    let mut assignment = assignment(id);
    assignment.cpu_mode = CpuMode::Pinned;
    assignment.resources = Amounts::new().with(MCPU, processors * 1000);
    order(ToNode::Assign(Box::new(assignment)))
}

/// Begins one; its processors, as the supervisor is told.
fn begun(bench: &mut Bench, id: &str, processors: u64) -> String {
    let outputs = bench.feed(pinned(id, processors));
    let spec = spawn_of(&outputs);
    assert_eq!(spec.processors.own, spec.launch_record.processors);
    assert_eq!(spec.processors.mode, CpuMode::Pinned);
    let own = spec.processors.own.to_string();
    bench.feed(Input::Attempt(shown(id, &own, FreezerState::Thawed)));
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

fn suspended(bench: &mut Bench, id: &str, processors: &str) {
    bench.feed(order(ToNode::Suspend {
        attempt: attempt(id),
        room_mb: 0,
    }));
    bench.feed(seen_as(id, processors, FreezerState::Frozen));
    assert!(
        bench.phase(id).starts_with("suspended"),
        "{}",
        bench.phase(id)
    );
}

fn resume(id: &str) -> Input {
    order(ToNode::Resume {
        attempt: attempt(id),
    })
}

#[test]
fn each_has_its_own_and_too_few_are_refused_in_words() {
    let mut bench = Bench::linked();
    assert_eq!(begun(&mut bench, "a.1", 2), "0-1");
    assert_eq!(begun(&mut bench, "b.1", 3), "2-4");
    let told = bench.told(pinned("c.1", 2));
    let said = "it is to have 2 processors of its own (`cpu_mode: pinned`), and of the 6 of this host that steps may use 5 \
                are other pinned steps' own";
    assert!(told.contains(said), "{told}");
    // What is over has none, though the coordinator has not heard of it yet.
    bench.feed(Input::Attempt(gone("a.1")));
    assert_eq!(begun(&mut bench, "d.1", 3), "0-1,5");
}

#[test]
fn one_that_is_not_pinned_has_none() {
    let mut bench = Bench::linked();
    let outputs = bench.feed(assign("a.1"));
    assert!(spawn_of(&outputs).processors.own.is_empty());
    assert_eq!(begun(&mut bench, "b.1", 6), "0-5");
}

#[test]
fn what_is_frozen_has_none_and_is_given_others_where_its_own_are_another_s() {
    let mut bench = Bench::linked();
    assert_eq!(begun(&mut bench, "a.1", 2), "0-1");
    suspended(&mut bench, "a.1", "0-1");
    assert_eq!(begun(&mut bench, "b.1", 1), "0");
    let told = bench.told(resume("a.1"));
    assert!(told.contains("pin a.1 to 1-2; thaw a.1"), "{told}");
    bench.feed(seen_as("a.1", "1-2", FreezerState::Thawed));
    assert_eq!(begun(&mut bench, "c.1", 3), "3-5");

    let mut bench = Bench::linked();
    begun(&mut bench, "a.1", 2);
    suspended(&mut bench, "a.1", "0-1");
    let told = bench.told(resume("a.1"));
    assert!(!told.contains("pin") && told.contains("thaw"), "{told}");
}

#[test]
fn a_supervisor_that_was_away_is_told_anew() {
    let mut bench = Bench::linked();
    begun(&mut bench, "a.1", 2);
    suspended(&mut bench, "a.1", "0-1");
    begun(&mut bench, "b.1", 1);
    bench.feed(down());
    let told = bench.told(resume("a.1"));
    assert!(!told.contains("pin"), "nobody is there: {told}");
    let told = bench.told(up(vec![
        shown("a.1", "0-1", FreezerState::Frozen),
        shown("b.1", "0", FreezerState::Thawed),
    ]));
    assert!(told.contains("pin a.1 to 1-2; thaw a.1"), "{told}");
}

#[test]
fn a_new_agent_has_it_from_the_supervisor() {
    let mut bench = Bench::new();
    let mut over = shown("c.1", "4-5", FreezerState::Thawed);
    let HostPhase::Gone(end) = gone("c.1").phase else {
        panic!("it is gone");
    };
    over.phase = HostPhase::Gone(end);
    bench.feed(up(vec![
        shown("a.1", "0,2", FreezerState::Thawed),
        shown("b.1", "1", FreezerState::Frozen),
        over,
    ]));
    bench.feed(Input::Dialled { link: LINK });
    bench.feed(welcomed(LINK, 5));
    assert_eq!(begun(&mut bench, "d.1", 4), "1,3-5");
}
