//! Tests of pools that require capabilities of their nodes.

use crate::record;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use sluice_common::pool::PoolSpec;

use sluice_common::id::PoolName;
use sluice_common::inventory::{Capability, Inventory, Mechanism};
use sluice_common::processors::CpuMode;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::supervision::Exit;
use sluice_common::wire::{FromNode, Hello, ToNode};

use super::harness::*;
use crate::input::DesiredPool;
use crate::input::{Input, NewStep, ReplyId};
use crate::{Desired, Enforcement, Record};

/// The report of `n` with these enforcement mechanisms.
fn held_by(capabilities: &[(Capability, Mechanism)]) -> Inventory {
    Inventory {
        capabilities: capabilities.iter().copied().collect(),
        ..inventory("n", 2, 8)
    }
}

fn harness(capabilities: &[(Capability, Mechanism)]) -> Harness {
    let mut harness = Harness::one_node(2, 8);
    harness.hello(Hello {
        inventory: held_by(capabilities),
        ..hello("n", 2, 8)
    });
    harness
}

fn require(harness: &mut Harness, capabilities: &[Capability]) -> InputEffects {
    harness.apply(vec![Desired::Pool {
        pool: PoolName::new("default").unwrap(),
        terms: alloc::boxed::Box::new(DesiredPool::from(PoolSpec {
            require: capabilities.iter().copied().collect(),
            ..PoolSpec::default()
        })),
    }])
}

#[test]
fn a_node_that_lacks_what_is_required_gets_nothing_and_keeps_what_it_has() {
    let mut harness = harness(&[
        (Capability::Kill, Mechanism::Cgroup2),
        (Capability::Devices, Mechanism::None),
    ]);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let effects = require(&mut harness, &[Capability::Kill, Capability::Devices]);
    assert_eq!(effects.types(), ["pool_put"]);
    harness.submit("b", spec(1, 1000)).unwrap();
    let states = (harness.state("a"), harness.state("b"));
    assert_eq!(states, (StepState::Running, StepState::Queued));
    let reason = harness.reason("b");
    assert_eq!(reason.code, ReasonCode::NoLiveHost);
    let expected = "`n` lacks capability devices, which the pool requires";
    assert!(reason.message.ends_with(expected), "{reason:?}");

    let report = held_by(&[
        (Capability::Kill, Mechanism::ProcessGroup),
        (Capability::Devices, Mechanism::Cgroup1),
    ]);
    let effects = harness.say("n", FromNode::Inventory(report.into()));
    assert_eq!(effects.orders, ["assign b.1"]);
}

#[test]
fn what_is_required_no_longer_lets_those_who_wait_start() {
    let mut harness = harness(&[]);
    require(&mut harness, &[Capability::Pids, Capability::Memory]);
    harness.submit("a", spec(1, 1000)).unwrap();
    let message = harness.reason("a").message;
    let expected = "`n` lacks capabilities memory, pids, which the pool requires";
    assert!(message.ends_with(expected), "{message}");
    assert_eq!(require(&mut harness, &[]).orders, ["assign a.1"]);
}

#[test]
fn the_requirement_outlives_a_restart_with_and_without_a_snapshot() {
    let mut harness = harness(&[]);
    require(&mut harness, &[Capability::Freeze]);
    for snapshot_at in [0, harness.log.len()] {
        harness.restart(snapshot_at);
        harness.hello(hello("n", 2, 8));
        let state = harness.core.state();
        let node = state.node(&node("n")).unwrap();
        assert!(node.is_open() && !state.takes_work(node));
        assert_eq!(
            state.missing_capabilities(node),
            [Capability::Freeze].into()
        );
    }
}

#[test]
fn a_log_of_before_there_were_requirements_requires_nothing() {
    let text = r#"{"type": "pool_put", "pool": "p", "description": ""}"#;
    let record: Record = serde_json::from_str(text).unwrap();
    assert!(
        matches!(record, Record::PoolPut(record::PoolPut { spec, .. }) if spec.require.is_empty())
    );
}

#[test]
fn processors_of_its_own_are_had_only_where_every_host_can_give_them() {
    let mut harness = harness(&[(Capability::Cpuset, Mechanism::Cgroup1)]);
    let mut pinned = spec(0, 1000);
    pinned.cpu_mode = CpuMode::Pinned;
    harness.submit("a", pinned.clone()).unwrap();
    assert_eq!(harness.state("a"), StepState::Rejected);
    let reason = harness.reason("a");
    assert_eq!(reason.code, ReasonCode::CpuModeNotAllowed);
    let expected = "write `require: [cpuset]` for this one";
    assert!(reason.message.ends_with(expected), "{reason:?}");

    require(&mut harness, &[Capability::Cpuset]);
    let effects = harness.feed(Input::Submit {
        reply: ReplyId(7),
        steps: vec![NewStep::new(step("b"), pinned)],
    });
    let [ToNode::Assign(assignment)] = &effects.sent[..] else {
        panic!("{:?}", effects.sent)
    };
    assert_eq!(assignment.cpu_mode, CpuMode::Pinned);
}

fn warnings(harness: &Harness, id: &str) -> Vec<String> {
    let found = harness.step(id);
    let unenforced = Enforcement::new(&harness.core).warnings(found);
    unenforced.iter().map(ToString::to_string).collect()
}

#[test]
fn an_amount_that_no_host_limits_is_warned_of_until_the_step_has_ended() {
    let mut harness = harness(&[
        (Capability::Cpu, Mechanism::Cgroup2),
        (Capability::Memory, Mechanism::None),
    ]);
    harness
        .submit("a", with_memory(spec(1, 1000), 1000))
        .unwrap();
    let warned = warnings(&harness, "a");
    let [warned] = &warned[..] else {
        panic!("{warned:?}")
    };
    assert!(
        warned.starts_with("host `n` does not limit memory"),
        "{warned}"
    );
    assert!(warned.contains("`require: [memory]`"), "{warned}");
    harness.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(warnings(&harness, "b"), [""; 0], "it asks for no memory");
    harness.status("n", "a.1", released(Exit::Code(0)));
    assert!(harness.state("a").is_terminal());
    assert_eq!(warnings(&harness, "a"), [""; 0], "it has ended");
}

#[test]
fn a_pool_that_requires_memory_keeps_steps_from_hosts_that_do_not_limit_it() {
    let mut harness = harness(&[(Capability::Memory, Mechanism::None)]);
    harness.hello(Hello {
        inventory: Inventory {
            capabilities: [
                (Capability::Memory, Mechanism::Cgroup1),
                (Capability::Cpu, Mechanism::Cgroup1),
            ]
            .into(),
            ..inventory("m", 2, 8)
        },
        ..hello("m", 2, 8)
    });
    harness.submit("full", spec(2, 8000)).unwrap();
    harness.submit("both", spec(2, 8000)).unwrap();
    harness
        .submit("waits", with_memory(spec(1, 1000), 1000))
        .unwrap();
    let warned = warnings(&harness, "waits");
    let [memory, cpu] = &warned[..] else {
        panic!("{warned:?}")
    };
    assert!(
        memory.starts_with("1 of 2 hosts (such as `n`) do not limit memory"),
        "{memory}"
    );
    assert!(
        cpu.starts_with("1 of 2 hosts (such as `n`) do not limit processor time"),
        "{cpu}"
    );
    require(&mut harness, &[Capability::Memory]);
    assert_eq!(
        warnings(&harness, "waits"),
        [""; 0],
        "it comes to no such host"
    );
}

#[test]
fn a_step_that_only_hosts_without_the_limit_could_hold_waits_and_is_told_why() {
    let mut harness = harness(&[(Capability::Memory, Mechanism::None)]);
    require(&mut harness, &[Capability::Memory]);
    harness
        .submit("a", with_memory(spec(1, 1000), 1000))
        .unwrap();
    assert_eq!(harness.state("a"), StepState::Queued);
    let reason = harness.reason("a");
    let expected = "`n` lacks capability memory, which the pool requires";
    assert!(reason.message.ends_with(expected), "{reason:?}");
}
