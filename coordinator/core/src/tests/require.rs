//! Pools that require capabilities of their nodes.

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

use super::rig::*;
use crate::input::WantedPool;
use crate::input::{Input, NewStep, ReplyId};
use crate::{Enforcement, Record, Wanted};

/// What `n` reports when it is held by these means.
fn held_by(capabilities: &[(Capability, Mechanism)]) -> Inventory {
    Inventory {
        capabilities: capabilities.iter().copied().collect(),
        ..inventory("n", 2, 8)
    }
}

fn rig(capabilities: &[(Capability, Mechanism)]) -> Rig {
    let mut rig = Rig::one_node(2, 8);
    rig.hello(Hello {
        inventory: held_by(capabilities),
        ..hello("n", 2, 8)
    });
    rig
}

fn require(rig: &mut Rig, capabilities: &[Capability]) -> Fed {
    rig.apply(vec![Wanted::Pool {
        pool: PoolName::new("default").unwrap(),
        terms: alloc::boxed::Box::new(WantedPool::from(PoolSpec {
            require: capabilities.iter().copied().collect(),
            ..PoolSpec::default()
        })),
    }])
}

#[test]
fn a_node_that_lacks_what_is_required_gets_nothing_and_keeps_what_it_has() {
    let mut rig = rig(&[
        (Capability::Kill, Mechanism::Cgroup2),
        (Capability::Devices, Mechanism::None),
    ]);
    rig.submit("a", spec(1, 1000)).unwrap();
    rig.run("a.1");
    let fed = require(&mut rig, &[Capability::Kill, Capability::Devices]);
    assert_eq!(fed.types(), ["pool_put"]);
    rig.submit("b", spec(1, 1000)).unwrap();
    let states = (rig.state("a"), rig.state("b"));
    assert_eq!(states, (StepState::Running, StepState::Queued));
    let reason = rig.reason("b");
    assert_eq!(reason.code, ReasonCode::NoLiveHost);
    let said = "`n` lacks capability devices, which the pool requires";
    assert!(reason.message.ends_with(said), "{reason:?}");

    let report = held_by(&[
        (Capability::Kill, Mechanism::ProcessGroup),
        (Capability::Devices, Mechanism::Cgroup1),
    ]);
    let fed = rig.say("n", FromNode::Inventory(report.into()));
    assert_eq!(fed.orders, ["assign b.1"]);
}

#[test]
fn what_is_required_no_longer_lets_those_who_wait_start() {
    let mut rig = rig(&[]);
    require(&mut rig, &[Capability::Pids, Capability::Memory]);
    rig.submit("a", spec(1, 1000)).unwrap();
    let message = rig.reason("a").message;
    let said = "`n` lacks capabilities memory, pids, which the pool requires";
    assert!(message.ends_with(said), "{message}");
    assert_eq!(require(&mut rig, &[]).orders, ["assign a.1"]);
}

#[test]
fn the_requirement_outlives_a_restart_with_and_without_a_snapshot() {
    let mut rig = rig(&[]);
    require(&mut rig, &[Capability::Freeze]);
    for snapshot_at in [0, rig.log.len()] {
        rig.restart(snapshot_at);
        rig.hello(hello("n", 2, 8));
        let state = rig.core.state();
        let node = state.node(&node("n")).unwrap();
        assert!(node.is_open() && !state.takes_work(node));
        assert_eq!(state.lacking(node), [Capability::Freeze].into());
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
    let mut rig = rig(&[(Capability::Cpuset, Mechanism::Cgroup1)]);
    let mut pinned = spec(0, 1000);
    pinned.cpu_mode = CpuMode::Pinned;
    rig.submit("a", pinned.clone()).unwrap();
    assert_eq!(rig.state("a"), StepState::Rejected);
    let reason = rig.reason("a");
    assert_eq!(reason.code, ReasonCode::CpuModeNotAllowed);
    let said = "write `require: [cpuset]` for this one";
    assert!(reason.message.ends_with(said), "{reason:?}");

    require(&mut rig, &[Capability::Cpuset]);
    let fed = rig.feed(Input::Submit {
        reply: ReplyId(7),
        steps: vec![NewStep::new(step("b"), pinned)],
    });
    let [ToNode::Assign(assignment)] = &fed.sent[..] else {
        panic!("{:?}", fed.sent)
    };
    assert_eq!(assignment.cpu_mode, CpuMode::Pinned);
}

fn warnings(rig: &Rig, id: &str) -> Vec<String> {
    let found = rig.step(id);
    let unenforced = Enforcement::new(&rig.core).warnings(found);
    unenforced.iter().map(ToString::to_string).collect()
}

#[test]
fn an_amount_that_no_host_limits_is_warned_of_until_the_step_has_ended() {
    let mut rig = rig(&[
        (Capability::Cpu, Mechanism::Cgroup2),
        (Capability::Memory, Mechanism::None),
    ]);
    rig.submit("a", with_memory(spec(1, 1000), 1000)).unwrap();
    let told = warnings(&rig, "a");
    let [told] = &told[..] else {
        panic!("{told:?}")
    };
    assert!(told.starts_with("host `n` does not limit memory"), "{told}");
    assert!(told.contains("`require: [memory]`"), "{told}");
    rig.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(warnings(&rig, "b"), [""; 0], "it asks for no memory");
    rig.status("n", "a.1", released(Exit::Code(0)));
    assert!(rig.state("a").is_terminal());
    assert_eq!(warnings(&rig, "a"), [""; 0], "it has ended");
}

#[test]
fn a_pool_that_requires_memory_keeps_steps_from_hosts_that_do_not_limit_it() {
    let mut rig = rig(&[(Capability::Memory, Mechanism::None)]);
    rig.hello(Hello {
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
    rig.submit("full", spec(2, 8000)).unwrap();
    rig.submit("both", spec(2, 8000)).unwrap();
    rig.submit("waits", with_memory(spec(1, 1000), 1000))
        .unwrap();
    let told = warnings(&rig, "waits");
    let [memory, cpu] = &told[..] else {
        panic!("{told:?}")
    };
    assert!(
        memory.starts_with("1 of 2 hosts (such as `n`) do not limit memory"),
        "{memory}"
    );
    assert!(
        cpu.starts_with("1 of 2 hosts (such as `n`) do not limit processor time"),
        "{cpu}"
    );
    require(&mut rig, &[Capability::Memory]);
    assert_eq!(warnings(&rig, "waits"), [""; 0], "it comes to no such host");
}

#[test]
fn a_step_that_only_hosts_without_the_limit_could_hold_waits_and_is_told_why() {
    let mut rig = rig(&[(Capability::Memory, Mechanism::None)]);
    require(&mut rig, &[Capability::Memory]);
    rig.submit("a", with_memory(spec(1, 1000), 1000)).unwrap();
    assert_eq!(rig.state("a"), StepState::Queued);
    let reason = rig.reason("a");
    let said = "`n` lacks capability memory, which the pool requires";
    assert!(reason.message.ends_with(said), "{reason:?}");
}
