//! Random tests of hosts of several kinds under overlapping platforms: no GPU is granted twice or for a platform that
//! was not asked for, and firm nominations can always be met. The harness checks every invariant as well.

use crate::record;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;
use sluice_common::id::{PlatformName, StepId};
use sluice_common::platform;
use sluice_common::pool::PolicySpec;
use sluice_common::state::NodeState;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptPhase, StopReason};
use sluice_scheduler::{GpusByKind, HardwareFilter};

use super::harness::*;
use crate::attempts::gpu_assignment::free_gpus;
use crate::input::Desired;
use crate::model::step::PartPhase;
use crate::record::Record;

/// Profiles of slices.
const PROFILES: [&str; 2] = ["1g.10gb", "3g.40gb"];

/// Platforms that steps ask for.
const LIKES: [&str; 7] = ["a", "b", "c", "wide", "any", "small, wide", "b, any"];

#[derive(Clone, Debug)]
enum OverlapEvent {
    Submit {
        vip: bool,
        gpus: u64,
        /// Whether it asks for slices of a profile, by number.
        slices: Option<usize>,
        likes: usize,
        nodes: u32,
        suspends: bool,
        preemptible: bool,
    },
    /// The host of the n-th part that holds resources reports the next phase.
    Progress {
        nth: usize,
    },
    Cancel {
        nth: usize,
    },
    Sort {
        wide: usize,
    },
}

fn event(sorts: bool) -> impl Strategy<Value = OverlapEvent> {
    let flags = (
        prop::bool::weighted(0.4),
        any::<bool>(),
        prop::bool::weighted(0.8),
    );
    prop_oneof![
        6 => (1u64..4, slices(), 0..LIKES.len(), prop_oneof![5 => Just(1u32), 1 => Just(2)], flags).prop_map(
            |(gpus, slices, likes, nodes, (vip, suspends, preemptible))| OverlapEvent::Submit {
                vip, gpus, slices, likes, nodes, suspends, preemptible,
            }
        ),
        12 => (0usize..64).prop_map(|nth| OverlapEvent::Progress { nth }),
        1 => (0usize..64).prop_map(|nth| OverlapEvent::Cancel { nth }),
        u32::from(sorts) => (0usize..4).prop_map(|wide| OverlapEvent::Sort { wide }),
    ]
}

/// No profile, or one of two.
fn slices() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![3 => Just(None), 1 => (0usize..2).prop_map(Some)]
}

/// Each GPU of each host: its model, whether it has the larger memory, and whether it is a slice.
type HostGpus = Vec<Vec<(usize, bool, Option<usize>)>>;

fn hosts() -> impl Strategy<Value = HostGpus> {
    prop::collection::vec(
        prop::collection::vec((0usize..3, any::<bool>(), slices()), 1..6),
        1..3,
    )
}

fn declared(name: &str, selector: &str) -> Desired {
    Desired::Platform {
        pool: "default".parse().unwrap(),
        platform: name.parse().unwrap(),
        terms: alloc::boxed::Box::new(sluice_common::platform::spec::PlatformSpec {
            selector: serde_json::from_str(selector).unwrap(),
            ..Default::default()
        }),
    }
}

fn wide(n: usize) -> Desired {
    let selectors = [
        "{}",
        r#"{"gpu_model":"a, b"}"#,
        r#"{"gpu_model":"b, c"}"#,
        r#"{"gpu_memory":">40GiB"}"#,
    ];
    declared("wide", selectors[n])
}

fn set_up(hosts: &HostGpus) -> Harness {
    let mut harness = Harness::new();
    for (n, gpus) in hosts.iter().enumerate() {
        let mut hello = hello(&format!("n{n}"), u32::try_from(gpus.len()).unwrap(), 64);
        for (gpu, (model, large, slice)) in hello.inventory.gpus.iter_mut().zip(gpus) {
            gpu.mig = slice.map(|profile| slice_of(&gpu.uuid, PROFILES[profile]));
            gpu.platform = ["a", "b", "c"][*model].into();
            gpu.memory_bytes = if *large { 80 } else { 40 } << 30;
        }
        harness.hello(hello);
    }
    let small = declared("small", r#"{"gpu_memory":"<=40GiB"}"#);
    harness.apply([wide(1), small].into());
    let priority = 10;
    let policy = PolicySpec {
        priority,
        reserved: [(
            sluice_common::amount::ResourceKey::new("mgpu").unwrap(),
            2000,
        )]
        .into(),
        ..PolicySpec::default()
    };
    harness.put_policy("default", "vip", policy);
    harness
}

/// The next phase that a truthful host reports of a part.
fn next(phase: PartPhase, why: Option<StopReason>) -> AttemptPhase {
    match (phase, why) {
        (PartPhase::Allocated | PartPhase::Starting, None) => running(),
        (_, None) => released(Exit::Code(0)),
        (_, Some(why)) => gone(Exit::Code(143), why),
    }
}

fn progress(harness: &mut Harness, nth: usize) {
    let steps = harness.core.state().steps().values();
    let parts = steps.flat_map(|step| {
        let live = step
            .attempts
            .iter()
            .filter(|attempt| !attempt.is_released());
        live.flat_map(move |attempt| {
            let parts = attempt.parts.iter();
            let parts = parts.filter(|part| part.phase != PartPhase::Released);
            parts.map(move |part| {
                let suspension = attempt.suspension.as_ref().map(|it| it.phase);
                let phase = match suspension {
                    Some(crate::model::step::SuspensionPhase::Suspending)
                        if attempt.stopping.is_none() =>
                    {
                        AttemptPhase::Suspended {
                            started: process(),
                            moved_mb: 0,
                        }
                    }
                    Some(crate::model::step::SuspensionPhase::Suspended)
                        if attempt.stopping.is_none() =>
                    {
                        return None;
                    }
                    Some(crate::model::step::SuspensionPhase::Resuming)
                        if attempt.stopping.is_none() =>
                    {
                        running()
                    }
                    _ => next(part.phase, attempt.stopping),
                };
                Some((part.node.clone(), step.attempt_id(attempt.number), phase))
            })
        })
    });
    let parts: Vec<_> = parts.flatten().collect();
    if let Some((node, id, phase)) = nth.checked_rem(parts.len()).map(|at| parts[at].clone()) {
        harness.status(node.as_str(), &format!("{id}"), phase);
    }
}

fn play(harness: &mut Harness, n: usize, event: &OverlapEvent) {
    match event {
        OverlapEvent::Submit {
            vip,
            gpus,
            slices,
            likes,
            nodes,
            suspends,
            preemptible,
        } => {
            let mut spec = StepSpec {
                platform: Some(LIKES[*likes].into()),
                nodes: *nodes,
                preemptible: *preemptible,
                ..spec(*gpus, 0)
            };
            if let Some(profile) = slices {
                spec = of_slices(spec, PROFILES[*profile], *gpus);
            }
            if *vip {
                spec.subject = "vip".parse().unwrap();
            }
            if *suspends {
                spec.on_preempt = OnPreempt::Suspend;
            }
            harness.submit(&format!("s{n}"), spec).unwrap();
        }
        OverlapEvent::Progress { nth } => progress(harness, *nth),
        OverlapEvent::Cancel { nth } => {
            harness.cancel(&format!("s{}", nth.checked_rem(n).unwrap_or(0)));
        }
        OverlapEvent::Sort { wide: n } => {
            harness.apply([wide(*n)].into());
        }
    }
}

/// Checks that every grant since `mark` is of GPUs of one requested platform.
fn check_grants(harness: &Harness, mark: usize) {
    for stamped in &harness.log[mark..] {
        let Record::Allocated(record::Allocated {
            attempt,
            placements,
            ..
        }) = &stamped.record
        else {
            continue;
        };
        let spec = &harness.core.state().step(&attempt.step).unwrap().spec;
        let asked = platform::parse_platforms(spec.platform.as_deref().unwrap());
        // `any` in a list means any platform.
        let mut asked: Vec<PlatformName> = asked.unwrap();
        if let Some(mig) = &spec.resources.mig {
            let slices: Vec<PlatformName> = (asked.iter())
                .map(|name| platform::of_slice(name, mig.profile.as_str()))
                .collect();
            asked.extend(slices);
        }
        let class = spec.gpu_class();
        let of = |view: Option<&PlatformName>| {
            placements.iter().all(|placement| {
                let node = harness.core.state().node(&placement.node).unwrap();
                let hardware = harness.core.state().index().hardware(node);
                let distinct: BTreeSet<&String> = placement.gpus.iter().collect();
                assert_eq!(distinct.len() as u64, spec.gpu_count(), "{attempt}");
                placement.gpus.iter().all(|gpu| {
                    let filter = HardwareFilter {
                        class: Some(&class),
                        platform: view,
                    };
                    filter.matches(hardware.kind_of(gpu).unwrap())
                })
            })
        };
        let fits = asked.is_empty() || asked.iter().any(|one| of(Some(one)));
        assert!(fits, "{attempt} asks for {asked:?}: {placements:?}");
    }
}

fn check_promises(harness: &Harness) {
    let nodes = harness.core.state().nodes().values();
    for node in nodes.filter(|node| node.state == NodeState::Ready) {
        let state = harness.core.state();
        let free = free_gpus(state, node).into_iter();
        let free: GpusByKind = free
            .map(|(kind, gpus)| (kind.clone(), kind.class.mgpu() * gpus.len() as u64))
            .collect();
        let placeholder_id = StepId::new("nobody").unwrap();
        let [_, firm] = state.scheduler().reserved_on(&node.name, &placeholder_id);
        let (_, missing) = firm.match_gpus(&free, HardwareFilter::ANY);
        assert_eq!(missing, 0, "{}", node.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]
    #[test]
    fn what_is_promised_of_a_platform_can_be_had_whatever_others_are_given(
        hosts in hosts(),
        events in prop::collection::vec(event(false), 1..40),
    ) {
        let mut harness = set_up(&hosts);
        for (n, event) in events.iter().enumerate() {
            let mark = harness.log.len();
            play(&mut harness, n, event);
            check_grants(&harness, mark);
            check_promises(&harness);
        }
    }

    #[test]
    fn platforms_that_change_at_any_time_break_nothing(
        hosts in hosts(),
        events in prop::collection::vec(event(true), 1..40),
    ) {
        let mut harness = set_up(&hosts);
        for (n, event) in events.iter().enumerate() {
            let mark = harness.log.len();
            play(&mut harness, n, event);
            check_grants(&harness, mark);
        }
        harness.restart(harness.log.len() / 2);
    }
}

/// Number of cases; more by hand with `SLUICE_SCHEDULER_CASES=100000`.
fn cases() -> u32 {
    let cases = std::env::var("SLUICE_SCHEDULER_CASES").ok();
    cases.and_then(|n| n.parse().ok()).unwrap_or(200)
}
