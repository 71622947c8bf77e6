//! Random tests: submits, cancels, hosts that join, lie, fall silent and leave, time and restarts, in any order. The
//! harness checks every invariant, every grant and the fold of the log after every event.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use sluice_common::allocation::HolderState;
use sluice_common::pool::PoolSpec;

use proptest::prelude::*;
use sluice_common::amount::ResourceKey;
use sluice_common::dependency::{Dependency, ExpectedEnd};
use sluice_common::gpu_state::{GpuFault, GpuStates};
use sluice_common::id::{
    AttemptId, NodeName, PoolName, ReporterName, ServiceName, StepId, Subject,
};
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::platform::spec::PlatformSpec;
use sluice_common::pool::{FairShare, HostPlacement, PolicySpec, ResourceTable};
use sluice_common::pool_rules::{Setting, StepMaxima};
use sluice_common::probe::ProbeKind;
use sluice_common::request::ResourceSettings;
use sluice_common::service::{RequestLoad, RolloutSpec, ScaleMetric, ScaleSpec, ServiceSpec};
use sluice_common::state::StepState;
use sluice_common::step::OnPreempt;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::topology::{DomainRequest, TopologyLevel, TopologySpec};
use sluice_common::wire::{
    AttemptPhase, AttemptStatus, FromNode, StopReason, SuspendFailure, ToNode,
};
use sluice_reasons::messages::explanation;

use super::endpoints::{report, serving};
use super::harness::*;
use crate::input::DesiredPool;
use crate::submit::as_written::as_written;
use crate::{
    Answer, Desired, Input, NodeChange, PartPhase, RecoveryCause, ReplyId, ServiceChange,
    ServiceReport, Settings, State, Step, StepAction, SuspensionPhase, TermsChange, TimerKey,
};

/// One event, in numbers that are mapped to whatever exists when it comes.
#[derive(Clone, Debug)]
enum Event {
    Submit {
        id: u8,
        gpus: u64,
        mcpu: u64,
        retries: u32,
        pending: bool,
        preemptible: bool,
        nodes: u32,
        suspends: bool,
        queue_timeout: Option<u64>,
        /// The steps on which it depends, and whether the parts of arrays are paired.
        after: BTreeMap<u8, (ExpectedEnd, bool)>,
        /// Number of parts and most at once, if it is an array.
        array: Option<(u32, u32)>,
        /// The step inside which it is to run, which may be an allocation.
        inside: Option<u8>,
    },
    Cancel {
        id: u8,
    },
    StepAction {
        id: u8,
        action: StepAction,
    },
    /// Renews an allocation.
    Renew {
        id: u8,
    },
    /// Moves a step to one of the pools.
    MoveStep {
        id: u8,
        other: bool,
    },
    /// Changes the service `web`.
    Service {
        change: u8,
        count: u32,
        bits: u8,
    },
    /// The host of a replica reports the next phase.
    Replica {
        at: prop::sample::Index,
        phase: u8,
    },
    /// Changes terms of the pool, or of the subject in it, to few GPUs.
    Terms {
        change: u8,
        gpus: u64,
        force: bool,
        dry_run: bool,
    },
    Hello {
        node: u8,
        gpus: u32,
        reboot: bool,
        honest: bool,
        lies: Vec<(u8, u8, u8)>,
    },
    Status {
        node: u8,
        id: u8,
        attempt: u8,
        phase: u8,
    },
    /// The host of a live attempt reports the next phase.
    Progress {
        id: u8,
        part: prop::sample::Index,
        phase: u8,
    },
    Inventory {
        node: u8,
        gpus: u32,
    },
    GpuStates {
        node: u8,
        bits: u8,
        drain: bool,
    },
    Heartbeat {
        node: u8,
    },
    Gone {
        node: u8,
    },
    Timer {
        node: u8,
    },
    TermsChange {
        node: u8,
        change: NodeChange,
    },
    Pass {
        secs: u64,
    },
    Restart {
        snapshot: prop::sample::Index,
    },
    /// The store is restored to an earlier time, and hosts report what they have run since; some have lost a warrant.
    Restore {
        back: prop::sample::Index,
        warrants_kept: u64,
    },
    EndRecovery,
}

fn event() -> impl Strategy<Value = Event> {
    let lie = (0u8..8, 1u8..4, 0u8..19);
    let action = prop::sample::select(vec![
        StepAction::Suspend,
        StepAction::Resume,
        StepAction::Requeue,
        StepAction::Delete,
    ]);
    let queue_timeout = prop::option::weighted(0.3, prop_oneof![Just(0u64), 1u64..400]);
    let required = prop::sample::select(ExpectedEnd::ALL.to_vec());
    let required = (required, prop::bool::weighted(0.3));
    let array = prop::option::weighted(0.3, (1u32..6, 1u32..4));
    let kind = (
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.4),
        queue_timeout,
        prop_oneof![
            2 => Just(BTreeMap::new()),
            1 => prop::collection::btree_map(0u8..8, required, 1..3),
        ],
        array,
        prop::option::weighted(0.3, prop_oneof![4 => Just(6u8), 1 => 0u8..8]),
    );
    prop_oneof![
        6 => (0u8..8, 0u64..4, 0u64..5, 0u32..3, any::<bool>(), kind, 1u32..4).prop_map(
            |(id, gpus, mcpu, retries, pending, (preemptible, suspends, queue_timeout, after, array, inside), nodes)| Event::Submit {
                id, gpus, mcpu, retries, pending, preemptible, nodes, suspends, queue_timeout, after, array, inside
            }
        ),
        2 => (0u8..32).prop_map(|id| Event::Cancel { id }),
        3 => (0u8..32, action).prop_map(|(id, action)| Event::StepAction { id, action }),
        1 => (0u8..32).prop_map(|id| Event::Renew { id }),
        3 => (0u8..16, any::<bool>()).prop_map(|(id, other)| Event::MoveStep { id, other }),
        2 => (0u8..18, 0u64..6, any::<bool>(), prop::bool::weighted(0.3)).prop_map(
            |(change, gpus, force, dry_run)| Event::Terms { change, gpus, force, dry_run }
        ),
        4 => (0u8..14, 0u32..4, 0u8..16).prop_map(
            |(change, count, bits)| Event::Service { change, count, bits }
        ),
        6 => (any::<prop::sample::Index>(), 0u8..19).prop_map(
            |(at, phase)| Event::Replica { at, phase }
        ),
        4 => (0u8..3, 0u32..4, prop::bool::weighted(0.2), prop::bool::weighted(0.7),
            prop::collection::vec(lie, 0..4)).prop_map(
            |(node, gpus, reboot, honest, lies)| Event::Hello { node, gpus, reboot, honest, lies }
        ),
        3 => (0u8..3, 0u8..8, 1u8..4, 0u8..19).prop_map(
            |(node, id, attempt, phase)| Event::Status { node, id, attempt, phase }
        ),
        14 => (0u8..32, any::<prop::sample::Index>(), 0u8..19).prop_map(
            |(id, part, phase)| Event::Progress { id, part, phase }
        ),
        1 => (0u8..3, 0u32..4).prop_map(|(node, gpus)| Event::Inventory { node, gpus }),
        3 => (0u8..3, 0u8..16, prop::bool::weighted(0.1)).prop_map(
            |(node, bits, drain)| Event::GpuStates { node, bits, drain }
        ),
        3 => (0u8..3).prop_map(|node| Event::Heartbeat { node }),
        1 => (0u8..3).prop_map(|node| Event::Gone { node }),
        1 => (0u8..3).prop_map(|node| Event::Timer { node }),
        3 => (0u8..3, change()).prop_map(|(node, change)| Event::TermsChange { node, change }),
        2 => prop_oneof![0u64..20, 300u64..500].prop_map(|secs| Event::Pass { secs }),
        1 => any::<prop::sample::Index>().prop_map(|snapshot| Event::Restart { snapshot }),
        1 => (any::<prop::sample::Index>(), any::<u64>())
            .prop_map(|(back, warrants_kept)| Event::Restore { back, warrants_kept }),
        1 => Just(Event::EndRecovery),
    ]
}

fn change() -> impl Strategy<Value = NodeChange> {
    let reason = || prop::option::of(prop::sample::select(vec!["", "fans"]).prop_map(String::from));
    let deadline = prop::option::of((0u64..600).prop_map(Span::from_secs));
    let key =
        prop::sample::select(vec!["zone", "rack"]).prop_map(|key| LabelKey::new(key).unwrap());
    let value =
        prop::sample::select(vec!["", "a"]).prop_map(|value| LabelValue::new(value).unwrap());
    prop_oneof![
        2 => reason().prop_map(|reason| NodeChange::Cordon { reason }),
        3 => Just(NodeChange::Uncordon),
        3 => (reason(), deadline).prop_map(|(reason, deadline)| NodeChange::Drain { reason, deadline }),
        1 => prop::collection::btree_map(key, prop::option::of(value), 0..3).prop_map(NodeChange::Label),
        2 => any::<bool>().prop_map(|force| NodeChange::Delete { force }),
        2 => gpu().prop_map(|gpu| NodeChange::CordonGpu { gpu, reason: None }),
        2 => gpu().prop_map(|gpu| NodeChange::UncordonGpu { gpu }),
    ]
}

fn gpu() -> impl Strategy<Value = String> {
    (0u32..4).prop_map(|index| format!("{index}"))
}

/// Marks some of a node's GPUs as unfit, by the bits of a number.
fn gpu_states(name: &str, bits: u8, drain: bool) -> GpuStates {
    let bad = (0..4).filter(|index| bits >> index & 1 == 1);
    GpuStates {
        faults: bad
            .map(|index| (format!("GPU-{name}-{index}"), GpuFault::Lost))
            .collect(),
        drain: drain.then(|| "XID 79".into()),
    }
}

fn phase(number: u8) -> AttemptPhase {
    match number {
        0 => AttemptPhase::Starting,
        1 | 2 => running(),
        3 => stopping(StopReason::TimedOut),
        4 => stopping(StopReason::Superseded),
        5 => ended(Exit::Code(0)),
        6 => ended(Exit::Code(1)),
        7 => AttemptPhase::Ended(end(Exit::Signal(15), Some(StopReason::Cancelled))),
        8 => released(Exit::LeaseExpired),
        9 => released(Exit::Unknown),
        10 => released(Exit::StartFailed(String::from("no"))),
        11 => released(Exit::HostFailed(String::from("no"))),
        12 => AttemptPhase::Suspending(process()),
        13 | 14 => AttemptPhase::Suspended {
            started: process(),
            moved_mb: 0,
        },
        15 => AttemptPhase::Resuming(process()),
        16 => AttemptPhase::NotSuspended {
            started: process(),
            why: SuspendFailure::TimedOut,
        },
        17 => ended(Exit::PrologFailed(String::from("no"))),
        _ => released(Exit::Code(0)),
    }
}

/// The id of a step, or of one of the first parts of an array.
fn step_name(id: u8) -> String {
    match id.checked_sub(8) {
        None => format!("s{id}"),
        Some(part) => format!("s{}.{}", part % 8, part / 8),
    }
}

fn node_name(node: u8) -> String {
    format!("n{node}")
}

/// The attempts that a host lists if it has lost none: all that it holds, running.
fn held(harness: &Harness, on: &str) -> Vec<AttemptStatus> {
    let attempts = harness.core.state().attempts_on(&node(on)).cloned();
    let status = |attempt| AttemptStatus {
        attempt,
        phase: running(),
    };
    attempts.map(status).collect()
}

fn say_hello(
    harness: &mut Harness,
    name: &str,
    gpus: u32,
    reboot: bool,
    attempts: Vec<AttemptStatus>,
) {
    let mut words = hello(name, gpus, 4);
    words.attempts = attempts;
    harness.hello(if reboot { rebooted(words) } else { words });
}

/// Applies, scales, rolls back or deletes the service `web`.
fn change_service(harness: &mut Harness, change: u8, count: u32, bits: u8) {
    let mut replica = spec(u64::from(bits & 1), 500);
    replica.command.push(format!("v{}", bits >> 1 & 1));
    replica.preemptible = bits & 4 == 0;
    replica.timeout = None;
    let scale = match bits & 8 == 0 {
        true => ScaleSpec::fixed(count),
        false => ScaleSpec {
            min: count.min(1),
            max: 3,
            fixed: false,
            metric: Some(ScaleMetric::Concurrency),
            target_milli: Some(1000),
            down_after: Span::from_secs(10),
            ..ScaleSpec::fixed(count)
        },
    };
    let rollout = RolloutSpec {
        max_surge: u32::from(bits & 1),
        max_unavailable: 1,
        drain_timeout: Span::from_secs(u64::from(bits & 6)),
        progress_deadline: Span::from_secs(60),
    };
    let change = match change {
        0..=4 => ServiceChange::Put(Box::new(ServiceSpec {
            scale,
            rollout,
            placement: match count % 2 {
                0 => HostPlacement::Spread,
                _ => HostPlacement::Pack,
            },
            replica,
        })),
        5..=7 => ServiceChange::Scale(count),
        8 => ServiceChange::Undo(None),
        9 => ServiceChange::Delete,
        _ => {
            harness.feed(Input::ReportLoad {
                reply: ReplyId(7),
                report: ServiceReport {
                    service: web(),
                    reporter: ReporterName::new(format!("r{bits}")).unwrap(),
                    load: RequestLoad {
                        concurrency_milli: u64::from(count) * 700,
                        rps_milli: 0,
                    },
                },
            });
            return;
        }
    };
    harness.feed(Input::ChangeService {
        reply: ReplyId(7),
        service: web(),
        change,
        version: None,
    });
}

fn web() -> ServiceName {
    ServiceName::new("web").unwrap()
}

fn progress_of_replica(harness: &mut Harness, at: prop::sample::Index, number: u8) {
    let service = harness.core.state().services().get(&web());
    let replicas: Vec<StepId> = service.map_or_else(Vec::new, |service| {
        let replicas = service.replicas.values();
        replicas.map(|replica| replica.step.clone()).collect()
    });
    if !replicas.is_empty() {
        progress(harness, at.get(&replicas), at, number);
    }
}

fn progress(harness: &mut Harness, id: &StepId, part: prop::sample::Index, number: u8) {
    let live = harness.core.state().step(id);
    let attempts = live.map(|step| (step, step.attempts.iter().find(|a| !a.is_released())));
    if let Some((step, Some(attempt))) = attempts {
        let id = step.attempt_id(attempt.number);
        let on = part.get(&attempt.parts).node.clone();
        harness.status(on.as_str(), &format!("{id}"), phase(number));
        // A host may tell anything of ports and readiness, also of other steps' ports.
        let saw = number
            .is_multiple_of(3)
            .then_some((ProbeKind::Liveness, "x"));
        let port = 20_000 + u16::from(number % 4);
        let report = report(&format!("{id}"), port, number.is_multiple_of(2), saw);
        harness.say(on.as_str(), report);
    }
}

fn change_terms(harness: &mut Harness, change: u8, gpus: u64, force: bool, dry_run: bool) {
    let pool = PoolName::new("default").unwrap();
    let subject = Subject::new("s").unwrap();
    let few: ResourceTable = [amount("gpu", gpus)].into();
    let policy = |reserved: ResourceTable, limit: ResourceTable| PolicySpec {
        reserved,
        limit,
        ..PolicySpec::default()
    };
    let wanted = match change {
        0 => wanted_pool("default", &[("gpu", gpus)]),
        1 => wanted_pool("default", &[]),
        2 => wanted_policy("default", "s", policy(few, ResourceTable::new())),
        3 => wanted_policy("default", "s", policy(ResourceTable::new(), few)),
        4 => wanted_policy("default", "s", PolicySpec::default()),
        5 => Desired::Pool {
            pool,
            terms: alloc::boxed::Box::new(DesiredPool::from(PoolSpec {
                require: [Capability::Freeze].into(),
                ..PoolSpec::default()
            })),
        },
        6 => Desired::Pool {
            pool,
            terms: alloc::boxed::Box::new(DesiredPool::from(rules(gpus))),
        },
        7 => Desired::NoPolicy { pool, subject },
        8 => wanted_policy("default", "t", policy(few, ResourceTable::new())),
        9 => wanted_policy(
            "default",
            "t",
            PolicySpec {
                priority: gpus,
                ..PolicySpec::default()
            },
        ),
        10 => wanted_pool("other", &[("gpu", gpus)]),
        11 | 12 => platform(gpus),
        13 => topology(["zone", "sluice/hostname", "rack"][gpus as usize % 3]),
        14 => Desired::NoPool {
            pool: PoolName::new("other").unwrap(),
        },
        15 => hostless_pool("third", &[("gpu", gpus)]),
        16 => wanted_policy(
            "third",
            "t",
            policy([amount("gpu", gpus.min(2))].into(), few),
        ),
        _ => Desired::NoPool {
            pool: PoolName::new("third").unwrap(),
        },
    };
    // A pool is of use to subjects with a policy in it.
    let new_pool = if let Desired::Pool { pool, .. } = &wanted {
        Some(pool.clone()).filter(|pool| pool.as_str() != "default")
    } else {
        None
    };
    let bound = new_pool.map(|pool| wanted_policy(pool.as_str(), "s", PolicySpec::default()));
    let named = matches!(&wanted, Desired::Platform { .. }).then(few_gpus);
    let changes = [wanted].into_iter().chain(bound).chain(named);
    let changes = changes.map(|wanted| TermsChange {
        desired: wanted,
        version: None,
    });
    let before = harness.core.state().clone();
    let effects = harness.feed(Input::Apply {
        reply: ReplyId(4),
        changes: changes.collect(),
        force,
        dry_run,
    });
    let refused = matches!(&effects.answers[..], [Answer::Applied(Err(_))]);
    if refused || dry_run {
        assert_eq!(harness.core.state(), &before, "nothing of it is done");
    }
}

/// Makes a topology whose only level, `zone`, is by this label.
fn topology(label: &str) -> Desired {
    let level = TopologyLevel {
        name: "zone".parse().unwrap(),
        label: label.parse().unwrap(),
    };
    Desired::Topology {
        terms: TopologySpec {
            levels: vec![level],
        },
    }
}

/// Makes a platform of all hardware, or of some hosts, with overrides and assertions that some steps fail.
fn platform(bits: u64) -> Desired {
    let bit = |n: u64| bits >> n & 1 == 1;
    let selector = if bit(2) {
        r#"{"labels":"zone=a"}"#
    } else {
        "{}"
    };
    let template = r#"{"env":{"ON":"{{platform}}"},"wrapper":["nice"]}"#;
    let terms = PlatformSpec {
        selector: serde_json::from_str(selector).unwrap(),
        overrides: bit(0).then(|| serde_json::from_str(template).unwrap()),
        validations: bit(1).then(|| "few".parse().unwrap()).into_iter().collect(),
        ..PlatformSpec::default()
    };
    Desired::Platform {
        pool: PoolName::new("default").unwrap(),
        platform: "all".parse().unwrap(),
        terms: terms.into(),
    }
}

fn few_gpus() -> Desired {
    let terms = r#"{"assertions":[{"assert":"gpu_count <= 2","message":"take two at most"},
        {"assert":"cpu_count <= node.cpu_count","message":"take what a host has"}]}"#;
    Desired::Validation {
        validation: "few".parse().unwrap(),
        terms: serde_json::from_str(terms).unwrap(),
    }
}

/// Makes rules: maintenance, a default platform, and bounds that some steps exceed.
fn rules(bits: u64) -> PoolSpec {
    let bit = |n: u64| bits >> n & 1 == 1;
    PoolSpec {
        maintenance: bit(0).then(|| String::from("fans")),
        max: StepMaxima {
            retries: bit(1).then_some(1),
            queue_timeout: bit(2).then(|| Span::from_secs(100)),
            ..StepMaxima::default()
        },
        fair_share: bit(1).then_some(FairShare {
            half_life: Span::from_secs(100),
        }),
        fair_users: bit(1) && bit(2),
        placement: if bit(2) {
            HostPlacement::Spread
        } else {
            HostPlacement::Pack
        },
        default_platform: (bits == 4).then(|| "all".parse().unwrap()),
        ..PoolSpec::default()
    }
}

fn play(harness: &mut Harness, event: Event) {
    match event {
        Event::Submit {
            id,
            gpus,
            mcpu,
            retries,
            pending,
            preemptible,
            nodes,
            suspends,
            queue_timeout,
            after,
            array,
            inside,
        } => {
            let mut spec = with_retries(spec(gpus, mcpu * 1000), retries);
            if mcpu == 0 {
                // It takes the defaults of its pool, for what it does not ask for itself.
                *spec.resources = ResourceSettings {
                    gpu_count: (gpus > 0).then_some(gpus),
                    ..ResourceSettings::default()
                };
            }
            if id % 2 == 0 {
                spec = serving(spec);
            }
            spec.allow_pending = pending;
            spec.preemptible = preemptible;
            spec.nodes = nodes;
            spec.within = (id % 4 < 2).then(|| DomainRequest {
                level: "zone".parse().unwrap(),
                required: id % 4 == 0,
            });
            spec.queue_timeout = queue_timeout.map(Span::from_secs);
            // Some begin later, and some have little time to begin.
            let at = |secs| Some(harness.now + Span::from_secs(secs));
            if id % 5 == 2 {
                spec.begin = at(retries.into());
            }
            if id % 7 == 3 {
                spec.deadline = at(400 * u64::from(retries));
            }
            let on = |id| step(&format!("s{id}"));
            let after = after.into_iter();
            let after = after.map(|(id, (end, each))| Dependency {
                step: on(id),
                each: each && array.is_some(),
                end,
            });
            spec.after = after.collect();
            spec.array = array.map(|(parts, at_once)| {
                let indexes = format!("0-{}%{at_once}", parts - 1);
                indexes.parse().unwrap()
            });
            if id % 4 == 3 {
                spec.subject = Subject::new("t").unwrap();
            }
            if suspends {
                spec.on_preempt = OnPreempt::Suspend;
            }
            if id % 3 == 1 {
                spec.unset = [Setting::QueueTimeout, Setting::Retries].into();
                (spec.queue_timeout, spec.retries) = (None, 0);
            }
            if matches!(id % 8, 4..=6) {
                // Some of them in a pool without hosts, one of them for the other subject.
                if id % 8 < 6 {
                    spec.pool = Some(PoolName::new("third").unwrap());
                    spec.nodes = 1;
                    spec.within = None;
                    spec.timeout = (retries == 1).then_some(Span::from_secs(60));
                }
                if id % 8 == 5 {
                    spec.subject = Subject::new("t").unwrap();
                }
                spec.lease = Some(Span::from_secs(90));
                spec.on_preempt = OnPreempt::Fail;
                spec.command = Vec::new();
                (spec.array, spec.retries, spec.unset) = (None, 0, Default::default());
            }
            let name = format!("s{id}");
            if let Some(allocation) = inside.filter(|it| *it != id && spec.lease.is_none()) {
                spec.inside = Some(step(&format!("s{allocation}")));
                (spec.array, spec.within, spec.on_preempt) = (None, None, OnPreempt::Fail);
                spec.allow_pending = false;
                spec.nodes = nodes % 3;
                // Most are of another subject than the allocation, or the allocation is over, and are refused.
                let _ = harness.submit(&name, spec);
                return;
            }
            let foreseen = super::preview::foreseen(harness, &name, &spec);
            // An id that is in use may be refused, and a dependency on a step that is not there, such as itself.
            let submitted = harness.submit(&name, spec.clone());
            super::preview::compare(harness, &name, foreseen);
            if let (Ok(_), Some(step)) = (submitted, harness.core.state().step(&step(&name))) {
                assert_eq!(as_written(step), spec);
            }
        }
        Event::MoveStep { id, other } => {
            let pool = if other { "other" } else { "default" };
            // Most moves are refused.
            let _ = super::step_moves::move_foreseen(harness, &step_name(id), pool);
        }
        Event::Terms {
            change,
            gpus,
            force,
            dry_run,
        } => change_terms(harness, change, gpus, force, dry_run),
        Event::Cancel { id } => {
            harness.cancel_within(&step_name(id), (id % 2 == 0).then_some(u64::from(id)));
        }
        Event::Renew { id } => {
            // Most steps are no allocation, or have ended.
            let _ = harness.renew(&step_name(id), None, Some(HolderState::Running));
        }
        Event::StepAction { id, action } => {
            harness.action(&step_name(id), action);
        }
        Event::Hello {
            node,
            gpus,
            reboot,
            honest,
            lies,
        } => {
            let name = node_name(node);
            let mut attempts = if honest { held(harness, &name) } else { vec![] };
            attempts.extend(
                lies.iter()
                    .map(|(id, n, p)| status(&format!("s{id}.{n}"), phase(*p))),
            );
            say_hello(harness, &name, gpus, reboot, attempts);
        }
        Event::Status {
            node,
            id,
            attempt,
            phase: number,
        } => {
            harness.status(&node_name(node), &format!("s{id}.{attempt}"), phase(number));
        }
        Event::Progress { id, part, phase } => {
            progress(harness, &step(&step_name(id)), part, phase);
        }
        Event::Service {
            change,
            count,
            bits,
        } => change_service(harness, change, count, bits),
        Event::Replica { at, phase } => progress_of_replica(harness, at, phase),
        Event::Inventory { node, gpus } => {
            let name = node_name(node);
            let mut inventory = inventory(&name, gpus, 4);
            // The host reports by turns that it can freeze and that it cannot.
            if gpus % 2 == 0 {
                let can = [(Capability::Freeze, Mechanism::Cgroup2)];
                inventory.capabilities = can.into();
            }
            harness.say(&name, FromNode::Inventory(Box::new(inventory)));
        }
        Event::GpuStates { node, bits, drain } => {
            let name = node_name(node);
            let states = gpu_states(&name, bits, drain);
            harness.say(&name, FromNode::GpuStates(Box::new(states)));
        }
        Event::Heartbeat { node } => {
            harness.heartbeat(&node_name(node));
        }
        Event::Gone { node } => {
            harness.gone(&node_name(node));
        }
        Event::Timer { node: number } => {
            let key = TimerKey::NodeSilence(node(&node_name(number)));
            harness.feed(crate::Input::Timer(key));
            let key = TimerKey::DrainDeadline(node(&node_name(number)));
            harness.feed(crate::Input::Timer(key));
        }
        Event::TermsChange { node, change } => {
            harness.change(&node_name(node), change);
        }
        Event::Pass { secs } => {
            harness.pass(secs);
        }
        Event::Restart { snapshot } => {
            let at = snapshot.index(harness.log.len() + 1);
            harness.restart(at);
        }
        Event::Restore {
            back,
            warrants_kept,
        } => restore(harness, back, warrants_kept),
        Event::EndRecovery => {
            harness.feed(Input::EndRecovery { reply: ReplyId(6) });
        }
    }
}

fn restore(harness: &mut Harness, back: prop::sample::Index, warrants_kept: u64) {
    let before = harness.core.state().clone();
    // The records of one input are stored together. Before the first there is nothing to restore.
    let stored: Vec<usize> = harness
        .commits()
        .iter()
        .copied()
        .filter(|at| *at > 0)
        .collect();
    let at = stored[back.index(stored.len())];
    harness.restore(at, RecoveryCause::Restored);
    for host in before.nodes().values() {
        let mut words = hello(host.name.as_str(), 3, 4);
        words.boot_id = host.boot_id.clone();
        words.highest_epoch = before.epoch().cloned().map(Into::into);
        let attempts = before.attempts_on(&host.name).cloned();
        let ran = |attempt| AttemptStatus {
            phase: stands(&before, &host.name, &attempt),
            attempt,
        };
        words.attempts = attempts.map(ran).collect();
        let effects = harness.hello(words);
        let shown = effects.sent.iter().filter_map(|order| {
            let ToNode::ShowWarrant { attempt } = order else {
                return None;
            };
            Some(attempt.clone())
        });
        for (at, attempt) in shown.enumerate() {
            let warrant = before
                .warrant(&attempt)
                .filter(|_| warrants_kept >> (at % 64) & 1 == 1);
            harness.show(host.name.as_str(), &format!("{attempt}"), warrant.as_ref());
        }
    }
}

/// The phase of an attempt on its host.
fn stands(state: &State, on: &NodeName, id: &AttemptId) -> AttemptPhase {
    let attempt = state
        .step(&id.step)
        .and_then(|step| step.attempt(id.number));
    let attempt = attempt.expect("it is remembered");
    let part = attempt.on(on).expect("it is there");
    match (part.phase, attempt.suspension()) {
        (PartPhase::Ended, _) => ended(Exit::Code(0)),
        (_, Some(SuspensionPhase::Suspended)) => AttemptPhase::Suspended {
            started: process(),
            moved_mb: 0,
        },
        _ => running(),
    }
}

fn new_rig() -> Harness {
    let mut harness = Harness::with(Settings {
        bounds: crate::Bounds {
            keep_finished: 3,
            ..SETTINGS.bounds
        },
        ..SETTINGS
    });
    harness.put_policy("default", "s", its_policy());
    harness.put_policy("default", "t", PolicySpec::default());
    harness.apply(vec![hostless_pool("third", &[("gpu", 2)])]);
    for subject in ["s", "t"] {
        harness.put_policy("third", subject, PolicySpec::default());
    }
    harness
}

/// Makes a policy that may reserve some of what its steps hold, so that they are protected.
fn its_policy() -> PolicySpec {
    let reserved = [amount("gpu", 2), (ResourceKey::new("mcpu").unwrap(), 4000)];
    PolicySpec {
        reserved: reserved.into(),
        ..PolicySpec::default()
    }
}

/// Ends everything that holds resources, on hosts that work and report truthfully.
fn bring_to_an_end(harness: &mut Harness) {
    harness.feed(Input::EndRecovery { reply: ReplyId(6) });
    change_service(harness, 9, 0, 0);
    // All hosts are near to each other.
    harness.apply(vec![wanted_pool("default", &[]), topology("sluice/pool")]);
    harness.put_policy("default", "s", its_policy());
    // A restored store may be older than the policy, and its steps were adopted all the same.
    let other = Subject::new("t").unwrap();
    let mut pools = harness.core.state().pools().values();
    if !pools.any(|pool| pool.policies.contains_key(&other)) {
        harness.put_policy("default", "t", PolicySpec::default());
    }
    // No host joins this pool.
    let pool = PoolName::new("other").unwrap();
    if harness.core.state().pool(&pool).is_some() {
        harness.apply(vec![Desired::NoPool { pool }]);
    }
    let steps: Vec<_> = harness.core.state().steps().keys().cloned().collect();
    for step in steps {
        harness.action(step.as_str(), StepAction::Resume);
    }
    for round in 0..200 {
        for number in 0..3 {
            let name = node_name(number);
            // The connections of other boots of this host have ended.
            harness.gone(&name);
            harness.change(&name, NodeChange::Uncordon);
            let list = if round == 0 {
                vec![]
            } else {
                held(harness, &name)
            };
            say_hello(harness, &name, 3, false, list);
            // A node that has obeyed a later epoch begins a recovery.
            harness.feed(Input::EndRecovery { reply: ReplyId(6) });
            // A host that is away cannot check what failed.
            for gpu in 0..4 {
                let gpu = format!("GPU-{name}-{gpu}");
                harness.change(&name, NodeChange::UncordonGpu { gpu });
            }
        }
        let live: Vec<_> = harness
            .core
            .state()
            .nodes()
            .keys()
            .flat_map(|on| {
                let attempts = harness.core.state().attempts_on(on);
                attempts
                    .map(|id| (on.clone(), id.clone()))
                    .collect::<Vec<_>>()
            })
            .collect();
        let steps = harness.core.state().steps().values();
        let hostless = steps.filter(|step| step.is_hostless());
        let hostless: Vec<_> = hostless.map(|step| step.id.clone()).collect();
        if live.is_empty() && hostless.is_empty() {
            return;
        }
        for id in hostless {
            harness.cancel_within(id.as_str(), Some(0));
        }
        for (on, id) in live {
            harness.status(on.as_str(), &format!("{id}"), released(Exit::Code(0)));
        }
    }
    panic!("it does not come to an end: {:#?}", harness.core.state());
}

/// Whether the parts of an array that are left have no pool, or those with which they are paired have none.
fn is_stuck(harness: &Harness, step: &Step) -> bool {
    let Some(array) = &step.array else {
        return false;
    };
    let is_stuck = |index| {
        let part = sluice_common::array::part_id(&step.id, index);
        let part = harness.core.state().step(&part);
        part.is_some_and(|part| !has_a_pool(harness, part))
    };
    array.open.iter().any(is_stuck)
}

/// Whether there is a pool that a step may run in. There is none if its subject lost its policy while the step ran, or has
/// policies only in pools that were made after the step: also a pool that an older store did not know yet and that was put
/// there again after the step was adopted.
fn has_a_pool(harness: &Harness, step: &Step) -> bool {
    let mut pools = harness.core.state().pools().values();
    let frozen = step.state == StepState::Suspended;
    pools.any(|pool| {
        let may_run = frozen || pool.made <= step.moved_at.unwrap_or(step.place);
        let is_its = step.only_pool().is_none_or(|only| *only == pool.name);
        let runs_it = !pool.is_hostless() || !step.excluded_pools.contains(&pool.name);
        may_run && is_its && runs_it && pool.policies.contains_key(&step.spec.subject)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_life_breaks_an_invariant(events in prop::collection::vec(event(), 1..80)) {
        let mut harness = new_rig();
        for event in events {
            play(&mut harness, event);
            for step in harness.core.state().steps().values() {
                prop_assert!(!harness.core.reason(step).to_reason().message.is_empty());
                let explained = harness.core.explain(&step.id).unwrap();
                let frozen = step.state == StepState::Suspended;
                let bound = has_a_pool(&harness, step);
                let waits = (step.is_schedulable() || frozen && !step.held) && bound;
                // Of an array, the pools of its first queued part are explained.
                let agrees = step.array.is_some() || waits != explained.pools.is_empty();
                prop_assert!(agrees, "{:?}", step);
                for pool in explained.pools {
                    let stops = explanation::preemption_status(pool.request, &pool.inspection);
                    prop_assert!(!pool.reason.to_reason().message.is_empty() && !stops.is_empty());
                    let (ahead, waiting) = pool.inspection.position;
                    prop_assert!(ahead < waiting && pool.inspection.behind.is_some() == (ahead > 0));
                }
            }
        }
    }

    #[test]
    fn the_same_inputs_give_the_same_outputs(events in prop::collection::vec(event(), 1..60)) {
        let outcome = || {
            let mut harness = new_rig();
            for event in events.clone() {
                play(&mut harness, event);
            }
            (harness.trace, serde_json::to_string(harness.core.state()).unwrap())
        };
        prop_assert_eq!(outcome(), outcome());
    }

    #[test]
    fn on_honest_hosts_everything_that_can_run_comes_to_an_end(
        events in prop::collection::vec(event(), 1..60)
    ) {
        let mut harness = new_rig();
        for event in events {
            play(&mut harness, event);
        }
        bring_to_an_end(&mut harness);
        for step in harness.core.state().steps().values() {
            // What it waits for may have no pool.
            let allocation = step.spec.inside.as_ref();
            let allocation = allocation.and_then(|id| harness.core.state().step(id));
            let lasts = allocation.is_some_and(|held| !held.state.is_terminal());
            let waits = lasts || !has_a_pool(&harness, step) || !step.is_ready() || is_stuck(&harness, step);
            prop_assert!(step.state.is_terminal() || waits, "{step:?}");
        }
    }
}
