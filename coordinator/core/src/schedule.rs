//! Runs the scheduler: asks for the next decision in each affected pool, and turns decisions into records and orders,
//! until there is none.

use alloc::collections::BTreeSet;
use core::ops::RangeInclusive;

use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::wire::StopReason;
use sluice_scheduler::{Decision, HardwareFilter, HostResources};

use crate::arrays::advance::settle_steps;
use crate::attempts::gpu_assignment::place;
use crate::attempts::hostless::{begin_hostless, follow_hostless};
use crate::attempts::orders::{send_assignment, stop_as};
use crate::attempts::suspension::{resume_attempt, suspend_attempt};
use crate::context::{Context, PoolCheck};
use crate::input::TimerKey;
use crate::model::placement::Placement;
use crate::model::step::Step;
use crate::record::{self, Record};

/// Ports at which gangs meet, beginning at the default of PyTorch's launcher: as many as a host can hold attempts.
const MEETING_PORTS: RangeInclusive<u16> = 29_500..=(29_500 + MAX_ATTEMPTS_PER_NODE as u16 - 1);

/// Makes every decision that is possible in the affected pools. Makes none during a recovery, because a queued step
/// may run on a host that has not reported it.
pub(crate) fn schedule(ctx: &mut Context) {
    if ctx.state().recovery().is_some() {
        return;
    }
    while let Some((pool, check)) = ctx.affected_pool() {
        let pool = pool.clone();
        let next = match check {
            PoolCheck::Submitted(steps) if all_wait(ctx, &pool, steps) => None,
            PoolCheck::Submitted(_) | PoolCheck::Queue => {
                ctx.state().scheduler().next_decision(&pool, ctx.now())
            }
        };
        match next {
            Some(next) => {
                make(ctx, next);
                // Others may start now, even if no record says so: such as past a head that was withdrawn.
                ctx.set_affected(pool);
                // The next parts of an array enter the queue.
                settle_steps(ctx);
            }
            None => {
                let until = ctx.state().scheduler().protected_until(&pool, ctx.now());
                ctx.set_settled(&pool, until);
                if let Some(at) = until {
                    ctx.set_timer(TimerKey::Pool(pool), at);
                }
            }
        }
    }
}

/// Whether steps that were submitted to a pool in which nothing could start change nothing there.
fn all_wait(ctx: &Context, pool: &PoolName, submitted: &BTreeSet<StepId>) -> bool {
    let scheduler = ctx.state().scheduler();
    let all_wait = scheduler.all_wait(pool, submitted, ctx.now());
    #[cfg(test)]
    assert!(
        !all_wait || scheduler.next_decision(pool, ctx.now()).is_none(),
        "a whole check of the queue decides the same"
    );
    all_wait
}

fn make(ctx: &mut Context, next: Decision) {
    match next {
        Decision::Grant {
            step,
            pool,
            hosts,
            platform,
            backfill,
        } => grant(ctx, &step, pool, &hosts, platform.as_ref(), backfill),
        Decision::Nominate {
            step,
            nomination,
            victims,
            frozen,
            evicted,
        } => {
            let by = step.clone();
            ctx.record(Record::Nominated { step, nomination });
            for victim in victims {
                // The attempt holds its resources until its hosts report that it is gone or frozen.
                if frozen.contains(&victim) {
                    suspend_attempt(ctx, &victim, Some(by.clone()));
                    continue;
                }
                let gives_way = victim.step.clone();
                stop_as(
                    ctx,
                    record::Stopping {
                        by: Some(by.clone()),
                        by_priority: evicted.contains(&victim),
                        ..record::Stopping::because(victim, StopReason::Preempted)
                    },
                );
                follow_hostless(ctx, &gives_way);
            }
        }
        Decision::Withdraw { step } => ctx.record(Record::Withdrawn { step }),
    }
}

fn grant(
    ctx: &mut Context,
    id: &StepId,
    pool: PoolName,
    hosts: &[NodeName],
    platform: Option<&PlatformName>,
    backfill: BTreeSet<StepId>,
) {
    let step = ctx.state().step(id).expect("what waits is remembered");
    if let Some(frozen) = step.live() {
        let attempt = step.attempt_id(frozen.number);
        return resume_attempt(ctx, &attempt, backfill);
    }
    let attempt = next_attempt(step);
    let request = HostResources::from_amounts(&step.spec.request);
    let class = step.spec.gpu_class();
    let filter = HardwareFilter {
        class: Some(&class),
        platform,
    };
    let placed = hosts.iter().filter_map(|host| match host.is_of_pool() {
        true => Some(Placement::hostless(host)),
        false => Some(place(
            ctx.state(),
            ctx.state().node(host)?,
            id,
            request,
            filter,
        )),
    });
    let placements = placed.collect();
    let port = meeting_port(ctx, hosts);
    ctx.record(Record::Allocated(record::Allocated {
        attempt: attempt.clone(),
        pool,
        placements,
        backfill,
        port,
    }));
    for host in hosts {
        match host.is_of_pool() {
            true => begin_hostless(ctx, host, &attempt),
            false => send_assignment(ctx, host, &attempt),
        }
    }
}

/// The lowest port that no other gang has at the address of the first host; `None` if there is one host.
pub(crate) fn meeting_port(ctx: &Context, hosts: &[NodeName]) -> Option<u16> {
    let [first, _, ..] = hosts else {
        return None;
    };
    let address = ctx.state().node(first)?.address();
    let at_address = ctx.state().nodes_at(address).flat_map(|node| {
        let attempts = ctx.state().attempts_on(node);
        attempts.map(move |id| (node, id))
    });
    let taken: BTreeSet<u16> = at_address
        .filter_map(|(node, id)| Some((node, ctx.state().step(&id.step)?.attempt(id.number)?)))
        .filter(|(node, attempt)| attempt.parts.first().is_some_and(|p| p.node == **node))
        .filter_map(|(_, attempt)| attempt.port)
        .collect();
    MEETING_PORTS.into_iter().find(|port| !taken.contains(port))
}

pub(crate) fn next_attempt(step: &Step) -> AttemptId {
    let last = step.latest().map_or(0, |attempt| attempt.number);
    step.attempt_id(last + 1)
}
