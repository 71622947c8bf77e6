//! Sentences about what prevents a queued step from starting.

use sluice_common::inventory::Capability;
use sluice_common::state::{NodeState, StepState};
use sluice_common::time::{Span, Time};
use sluice_reasons::rejection::{DomainShortage, ForbiddingHosts, Shortage};
use sluice_reasons::standing::{AllocationWait, AmountUse, HostDemand, UnfitGpus, Unschedulable};
use sluice_reasons::{Cause, Rejection, Wait};

use crate::{Page, chain, name};

pub(crate) fn write(page: &mut Page) {
    page.heading("What a queued step waits for (Wait)");
    for wait in chain(after) {
        page.reason(&wait.to_reason());
    }
}

fn unfit(count: u64) -> UnfitGpus {
    UnfitGpus {
        count,
        gpu: "GPU-1a2b".to_owned(),
        why: "used by process 4711".to_owned(),
    }
}

fn demand(hosts: u32, platforms: &[&str]) -> HostDemand {
    HostDemand {
        hosts,
        platforms: platforms.iter().map(|it| name(it)).collect(),
    }
}

pub(crate) fn forbidding(others: u64) -> ForbiddingHosts {
    ForbiddingHosts {
        node: name("gpu-1"),
        field: "privileged".to_owned(),
        platform: Some(name("h100")),
        by_pool: Some(name("training")),
        no_runtime_for: None,
        others,
    }
}

pub(crate) fn domain_shortage(has: u64) -> DomainShortage {
    let domain = (has > 0).then(|| ["a".to_owned(), "r2".to_owned()]);
    DomainShortage {
        level: name("rack"),
        domain: domain.into_iter().flatten().collect(),
        asked: 4,
        has,
    }
}

pub(crate) fn shortage(key: &str) -> Shortage {
    Shortage {
        node: name("gpu-1"),
        key: key.to_owned(),
        asked: 4,
        has: 2,
        by_default: None,
        profile: None,
    }
}

/// A host with fewer slices than a step asks for.
pub(crate) fn shortage_of_slices() -> Shortage {
    Shortage {
        asked: 426,
        has: 284,
        profile: Some(name("1g.10gb")),
        ..shortage("mgpu")
    }
}

fn by_default(key: &str) -> Shortage {
    Shortage {
        by_default: Some(name("training")),
        ..shortage(key)
    }
}

fn inside() -> Vec<Wait> {
    let node = || name("gpu-1");
    let shortage = Shortage {
        node: node(),
        key: "mgpu".to_owned(),
        asked: 2000,
        has: 1000,
        by_default: None,
        profile: None,
    };
    let room = |holders: &[&str]| AllocationWait::Room {
        shortage: shortage.clone(),
        holders: holders.iter().map(|it| name(it)).collect(),
        unfit: None,
    };
    let withheld = |holders: &[&str]| AllocationWait::Room {
        shortage: shortage.clone(),
        holders: holders.iter().map(|it| name(it)).collect(),
        unfit: Some(UnfitGpus {
            count: 1,
            gpu: "GPU-1".to_owned(),
            why: "quarantined: it is still held by process 4711".to_owned(),
        }),
    };
    let waits = [
        AllocationWait::Allocation {
            state: StepState::Queued,
        },
        AllocationWait::Host {
            node: node(),
            state: NodeState::Unreachable,
        },
        AllocationWait::Turn {
            behind: name("first"),
        },
        room(&["first"]),
        room(&["first", "second"]),
        withheld(&[]),
        withheld(&["first"]),
    ];
    waits
        .map(|wait| Wait::Inside {
            allocation: name("held"),
            wait,
        })
        .into()
}

fn dependencies() -> Vec<Wait> {
    let on = |text: &str, state| (text.parse().expect("it is well formed"), state);
    let unmet = vec![
        on("prep", StepState::Running),
        on("clean:any", StepState::Queued),
        on("train:failed", StepState::Queued),
        on("sweep:each", StepState::Running),
    ];
    let one = unmet[..1].to_vec();
    vec![
        Wait::Dependencies {
            unmet: one,
            count: 1,
        },
        Wait::Dependencies { unmet, count: 7 },
    ]
}

fn after(last: Option<&Wait>) -> Vec<Wait> {
    let pool = || name("training");
    let subject = || name("research");
    let amount = || AmountUse {
        key: "gpu".to_owned(),
        asked: 2,
        used: 3,
        most: 4,
        by_default: None,
    };
    match last {
        None => {
            let left = Span::from_secs(300);
            let wait = |nodes: &[&str]| Wait::Recovery {
                unreported: nodes.iter().map(|it| name(it)).collect(),
                left,
            };
            vec![wait(&["gpu-1", "gpu-2"]), wait(&[])]
        }
        Some(Wait::Recovery { .. }) => vec![Wait::Begin {
            at: Time::from_unix_millis(1_700_000_000_000),
        }],
        Some(Wait::Begin { .. }) => dependencies(),
        Some(Wait::Dependencies { .. }) => [(0, None), (3, Some(50))]
            .map(|(ahead, at_once)| Wait::Array {
                array: name("sweep"),
                ahead,
                at_once,
            })
            .into(),
        Some(Wait::Array { .. }) => inside(),
        Some(Wait::Inside { .. }) => vec![Wait::Unlisted {
            why: Cause::Preempted,
        }],
        Some(Wait::Unlisted { .. }) => vec![Wait::NoPolicy { subject: subject() }],
        Some(Wait::NoPolicy { .. }) => vec![Wait::Next { pool: pool() }],
        Some(Wait::Next { .. }) => vec![Wait::PoolEmpty { pool: pool() }],
        Some(Wait::PoolEmpty { .. }) => vec![Wait::GpusUnknown {
            pool: pool(),
            node: name("gpu-1"),
        }],
        Some(Wait::GpusUnknown { .. }) => vec![Wait::Infeasible {
            why: Rejection::UnknownResource {
                pool: pool(),
                key: crate::key("licences"),
                asked: 1,
            },
        }],
        Some(Wait::Infeasible { .. }) => [1, 2]
            .map(|runs| Wait::Release { pool: pool(), runs })
            .into(),
        Some(Wait::Release { .. }) => vec![Wait::Limit {
            pool: pool(),
            subject: subject(),
            amount: amount(),
        }],
        Some(Wait::Limit { .. }) => vec![Wait::Reserved {
            pool: pool(),
            subject: subject(),
            amount: AmountUse {
                by_default: Some(pool()),
                ..amount()
            },
        }],
        Some(Wait::Reserved { .. }) => {
            let all = chain(after_unschedulable).into_iter();
            let waits = all.map(|why| Wait::NoOpenHost {
                pool: pool(),
                wanted: demand(1, &[]),
                nearest: name("gpu-1"),
                why,
                closed: None,
            });
            waits.collect()
        }
        Some(Wait::NoOpenHost { .. }) => {
            let turn = |starts_by| Wait::Turn {
                pool: pool(),
                behind: name("train-7"),
                starts_by,
            };
            vec![
                turn(None),
                turn(Some(Time::from_unix_millis(1_700_000_000_000))),
            ]
        }
        Some(Wait::Turn { .. }) => [None, Some(pool())]
            .map(|by_default| Wait::Pool {
                pool: pool(),
                key: "storage_mb".to_owned(),
                asked: 2000,
                free: 1000,
                by_default,
            })
            .into(),
        Some(Wait::Pool { .. }) => vec![Wait::Domains {
            pool: pool(),
            closest: domain_shortage(2),
        }],
        Some(Wait::Domains { .. }) => {
            let wait = |wanted, closest, unfit, closed| Wait::Hosts {
                pool: pool(),
                wanted,
                closest,
                unfit,
                closed,
            };
            vec![
                wait(demand(4, &["h100"]), None, None, None),
                wait(demand(1, &[]), Some(shortage("step_run")), None, None),
                wait(demand(1, &[]), Some(by_default("mcpu")), None, None),
                wait(demand(1, &[]), Some(shortage("gpu")), Some(unfit(1)), None),
                wait(demand(1, &[]), Some(shortage_of_slices()), None, None),
                wait(
                    demand(2, &["h100", "a100"]),
                    Some(shortage("gpu")),
                    Some(unfit(2)),
                    Some(forbidding(2)),
                ),
            ]
        }
        Some(Wait::Hosts { .. }) => Vec::new(),
    }
}

fn after_unschedulable(last: Option<&Unschedulable>) -> Vec<Unschedulable> {
    match last {
        None => vec![Unschedulable::Gone],
        Some(Unschedulable::Gone) => vec![
            Unschedulable::Lacks([Capability::Freeze].into()),
            Unschedulable::Lacks([Capability::Freeze, Capability::Memory].into()),
        ],
        Some(Unschedulable::Lacks(_)) => ["", "new memory"]
            .map(|it| Unschedulable::Cordoned(it.to_owned()))
            .into(),
        Some(Unschedulable::Cordoned(_)) => ["", "new memory"]
            .map(|it| Unschedulable::Drained(it.to_owned()))
            .into(),
        Some(Unschedulable::Drained(_)) => vec![Unschedulable::ShortOfGpus(unfit(1))],
        Some(Unschedulable::ShortOfGpus(_)) => vec![
            Unschedulable::State(NodeState::Unreachable, None),
            Unschedulable::State(
                NodeState::Unsupervised,
                Some("no answer for 30 s".to_owned()),
            ),
        ],
        Some(Unschedulable::State(..)) => Vec::new(),
    }
}
