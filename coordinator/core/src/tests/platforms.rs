//! Which GPUs a step is given of a host that has several models, and what is said of platforms that are not there.

use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;

use super::rig::*;

/// A host with three A100 before three H100.
fn mixed() -> Rig {
    let mut rig = Rig::new();
    let mut hello = hello("n", 6, 8);
    for gpu in &mut hello.inventory.gpus {
        gpu.platform = if gpu.index < 3 { "a100" } else { "h100" }.into();
    }
    rig.hello(hello);
    rig
}

fn on(gpus: u64, platform: &str) -> StepSpec {
    StepSpec {
        platform: Some(platform.into()),
        ..spec(gpus, 0)
    }
}

#[test]
fn of_a_host_with_two_models_a_step_is_given_gpus_of_its_platform() {
    let mut rig = mixed();
    rig.submit("h", on(2, "h100")).unwrap();
    assert_eq!(rig.placed("h").1, ["GPU-n-3", "GPU-n-4"]);
    rig.submit("more", on(2, "h100")).unwrap();
    let reason = rig.reason("more");
    assert_eq!(reason.code, ReasonCode::WaitingForUnits);
    assert!(
        reason.message.contains("on one host of platform `h100`"),
        "{reason:?}"
    );
    rig.submit("either", on(2, "h100, a100")).unwrap();
    assert_eq!(rig.placed("either").1, ["GPU-n-0", "GPU-n-1"]);
    rig.status("n", "h.1", ended(Exit::Code(0)));
    rig.status("n", "h.1", released(Exit::Code(0)));
    assert_eq!(rig.placed("more").1, ["GPU-n-3", "GPU-n-4"]);
}

#[test]
fn who_takes_any_gets_gpus_of_one_model_where_one_has_enough() {
    let mut rig = mixed();
    rig.submit("a", on(1, "a100")).unwrap();
    rig.submit("h", on(1, "h100")).unwrap();
    rig.submit("h2", on(1, "h100")).unwrap();
    rig.submit("two", on(2, "any")).unwrap();
    assert_eq!(rig.placed("two").1, ["GPU-n-1", "GPU-n-2"]);
    rig.submit("one", spec(1, 0)).unwrap();
    assert_eq!(rig.placed("one").1, ["GPU-n-5"]);
}

#[test]
fn more_of_a_model_than_any_host_has_is_rejected_and_the_rest_of_it_is_not_counted() {
    let mut rig = mixed();
    rig.submit("four", on(4, "h100")).unwrap();
    let reason = rig.reason("four");
    assert_eq!(reason.code, ReasonCode::NoHostFits, "{reason:?}");
    assert!(reason.message.contains("has 3"), "{reason:?}");
    rig.submit("any", spec(4, 0)).unwrap();
    assert_eq!(rig.placed("any").1.len(), 4);
    rig.submit("none", on(1, "l40s")).unwrap();
    let reason = rig.reason("none");
    assert!(
        reason
            .message
            .contains("is of platform `l40s`: ask for `a100`, `h100` or `any`"),
        "{reason:?}"
    );
    let pending = StepSpec {
        allow_pending: true,
        ..on(1, "l40s")
    };
    rig.submit("pending", pending).unwrap();
    assert_eq!(rig.state("pending"), StepState::Queued);
}

#[test]
fn a_restart_knows_what_is_granted_of_each_model() {
    let mut rig = mixed();
    rig.submit("any", spec(4, 0)).unwrap();
    rig.submit("h", on(2, "h100")).unwrap();
    assert_eq!(rig.state("any"), StepState::Allocated);
    let granted: usize = rig.placed("any").1.len();
    let waits = rig.state("h");
    rig.restart(3);
    assert_eq!((granted, rig.state("h")), (4, waits));
    assert_eq!(waits, StepState::Allocated);
}
