//! Sentences about what prevents a queued step from starting.

mod inside;

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use sluice_common::amount::STEP_RUN;
use sluice_common::api::timestamp;
use sluice_common::dependency::Dependency;
use sluice_common::id::{NodeName, PoolName, StepId, Subject};
use sluice_common::inventory::Capability;
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::quantity::{figure, quantity};
use sluice_common::reason::Reason;
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};

use super::slices::{available, requested};
use super::{has_ended, quoted, shortened, with_source};
use crate::rejection::{DomainShortage, ForbiddingHosts, Rejection, Shortage};
use crate::standing::{AmountUse, HostDemand, UnfitGpus, Unschedulable, Wait};

/// Most unreported nodes that a sentence names.
const NAMED_NODES: usize = 5;

impl Wait {
    /// The code, the sentence and the details.
    pub fn to_reason(&self) -> Reason {
        let of = |message: String| Reason::new(self.code(), message);
        let in_pool = |pool: &PoolName, message| of(message).with("pool", pool.as_str());
        match self {
            Wait::Recovery { unreported, left } => of(recovering(unreported, *left)),
            Wait::Begin { at } => of(begin(*at)),
            Wait::Dependencies { unmet, count } => of(dependencies(unmet, *count)),
            Wait::Array {
                array,
                ahead,
                at_once,
            } => of(outside(array, *ahead, *at_once)).with("array", array.as_str()),
            Wait::Inside { allocation, wait } => {
                of(inside::waits(allocation, wait)).with("allocation", allocation.as_str())
            }
            Wait::Unlisted { why } => why.to_reason(),
            Wait::NoPolicy { subject } => of(lost_policy(subject)),
            Wait::Next { pool } => in_pool(pool, format!("it is next in pool `{pool}`")),
            Wait::PoolEmpty { pool } => in_pool(pool, pool_empty(pool)),
            Wait::GpusUnknown { pool, node } => {
                in_pool(pool, gpus_unknown(pool, node)).with("node", node.as_str())
            }
            Wait::Infeasible { why } => infeasible(why),
            Wait::Release { pool, runs } => in_pool(pool, release(pool, *runs)).with("runs", *runs),
            Wait::Limit {
                pool,
                subject,
                amount,
            } => amount.noted(in_pool(pool, limit(pool, subject, amount)), "limit"),
            Wait::Reserved {
                pool,
                subject,
                amount,
            } => amount.noted(in_pool(pool, reserved(pool, subject, amount)), "reserved"),
            Wait::NoOpenHost {
                pool,
                wanted,
                nearest,
                why,
                closed,
            } => {
                let message = no_open_host(pool, wanted, nearest, why);
                in_pool(pool, with_closed(message, closed)).with("node", nearest.as_str())
            }
            Wait::Turn {
                pool,
                behind,
                starts_by,
            } => in_pool(pool, turn(pool, behind, *starts_by)).with("behind", behind.as_str()),
            Wait::Pool {
                pool,
                key,
                asked,
                free,
                by_default,
            } => {
                let asked = (*asked, by_default.as_ref());
                let reason = in_pool(pool, pool_is_short(pool, key, asked, *free)).with_key(key);
                let reason = reason.with_amount("asked", key, asked.0);
                reason.with_amount("free", key, *free)
            }
            Wait::Domains { pool, closest } => {
                closest.noted_in(in_pool(pool, domains(pool, closest)))
            }
            Wait::Hosts {
                pool,
                wanted,
                closest,
                unfit,
                closed,
            } => {
                let message = hosts(pool, wanted, closest.as_ref(), unfit.as_ref());
                let reason = in_pool(pool, with_closed(message, closed));
                closest.iter().fold(reason, noted_closest)
            }
        }
    }
}

fn infeasible(why: &Rejection) -> Reason {
    let mut reason = why.to_reason();
    reason
        .message
        .push_str("; it stays queued and blocks no other step");
    reason
}

fn pool_is_short(
    pool: &PoolName,
    key: &str,
    (asked, by_default): (u64, Option<&PoolName>),
    free: u64,
) -> String {
    format!(
        "it asks for {}, and pool `{pool}` has {} free",
        with_source(quantity(key, asked), by_default),
        figure(key, free)
    )
}

fn domains(pool: &PoolName, closest: &DomainShortage) -> String {
    format!(
        "{} of pool `{pool}`: {}",
        closest.demand(),
        closest.closest(" with room for it now")
    )
}

fn recovering(unreported: &[NodeName], left: Span) -> String {
    let nodes: Vec<String> = unreported.iter().map(|node| format!("`{node}`")).collect();
    let awaited = match nodes.is_empty() {
        true => String::from("hosts that it does not remember may still run steps"),
        false => format!(
            "{} have not reported what they run",
            shortened(nodes, NAMED_NODES)
        ),
    };
    format!(
        "the coordinator was restored from an older store, and nothing starts yet: {awaited}; the recovery ends in {left} at the latest, or at once with `sluice recovery end`"
    )
}

fn begin(at: Time) -> String {
    format!("it starts at {} at the earliest", timestamp(at))
}

fn dependencies(unmet: &[(Dependency, StepState)], count: u64) -> String {
    let awaited = unmet.iter().map(|(dependency, state)| {
        let Dependency { step, each, end } = dependency;
        let end = has_ended(*end);
        match each {
            true => format!("the part of `{step}` with its index {end} (`{step}` is {state} now)"),
            false => format!("`{step}` {end} ({state} now)"),
        }
    });
    let awaited: Vec<String> = awaited.collect();
    let more = match count - unmet.len() as u64 {
        0 => String::new(),
        more => format!(", and for {more} more"),
    };
    format!("it starts after {}{more}", awaited.join(", "))
}

fn outside(array: &StepId, ahead: u64, at_once: Option<u32>) -> String {
    let most = at_once.map_or_else(String::new, |most| {
        format!(", of which at most {most} are at work at once")
    });
    match ahead {
        0 => format!("it is the next part of `{array}` to enter the queue{most}"),
        ahead => format!("it enters the queue after {ahead} other parts of `{array}`{most}"),
    }
}

fn lost_policy(subject: &Subject) -> String {
    format!("`{subject}` no longer has a policy in any pool that it may run in: it waits for one")
}

fn pool_empty(pool: &PoolName) -> String {
    format!(
        "pool `{pool}` has no host yet: have one join by `sluice token create --pool {pool}`, or move one by `sluice move \
         node NODE --pool {pool}`"
    )
}

fn gpus_unknown(pool: &PoolName, node: &NodeName) -> String {
    format!(
        "the GPUs of `{node}` in pool `{pool}` are not known yet, because its NVIDIA driver has not answered: it waits \
         for the answer; `sluice describe node {node}` says what the host sees"
    )
}

fn release(pool: &PoolName, runs: u64) -> String {
    format!(
        "it is nominated in pool `{pool}` and waits for {runs} preempted {} to stop",
        if runs == 1 { "step" } else { "steps" }
    )
}

fn limit(pool: &PoolName, subject: &Subject, amount: &AmountUse) -> String {
    let key = &amount.key;
    format!(
        "`{subject}` uses {} of pool `{pool}`, its limit is {}, and it asks for {}",
        quantity(key, amount.used),
        figure(key, amount.most),
        amount.more()
    )
}

fn reserved(pool: &PoolName, subject: &Subject, amount: &AmountUse) -> String {
    let key = &amount.key;
    format!(
        "it is not preemptible: `{subject}` has {} reserved in pool `{pool}`, of which such steps use {}, and it asks for \
         {}",
        quantity(key, amount.most),
        figure(key, amount.used),
        amount.more()
    )
}

impl AmountUse {
    fn more(&self) -> String {
        let more = format!("{} more", figure(&self.key, self.asked));
        with_source(more, self.by_default.as_ref())
    }

    fn noted(&self, reason: Reason, most: &str) -> Reason {
        reason
            .with_key(&self.key)
            .with_amount("asked", &self.key, self.asked)
            .with_amount("used", &self.key, self.used)
            .with_amount(most, &self.key, self.most)
    }
}

fn no_open_host(
    pool: &PoolName,
    wanted: &HostDemand,
    nearest: &NodeName,
    why: &Unschedulable,
) -> String {
    let (fewer, verb) = match wanted.hosts {
        1 => (String::from("no host"), "takes"),
        hosts => (format!("fewer than {hosts} hosts"), "take"),
    };
    format!(
        "{fewer} of pool `{pool}`{} that could hold it {verb} new work now: `{nearest}` {why}",
        of_platforms(wanted)
    )
}

fn turn(pool: &PoolName, behind: &StepId, starts_by: Option<Time>) -> String {
    let message =
        format!("`{behind}` is ahead of it in pool `{pool}` and waits for the same resources");
    match starts_by {
        Some(by) => format!(
            "{message}, until {} at the latest: a step whose time limit ends before that may start now",
            timestamp(by)
        ),
        None => message,
    }
}

fn hosts(
    pool: &PoolName,
    wanted: &HostDemand,
    closest: Option<&Shortage>,
    unfit: Option<&UnfitGpus>,
) -> String {
    match closest {
        None => format!(
            "it starts in pool `{pool}` when enough is free {}",
            on(wanted)
        ),
        Some(Shortage { node, key, .. }) if key == STEP_RUN => format!(
            "it starts in pool `{pool}` when a host holds fewer than {MAX_ATTEMPTS_PER_NODE} steps, the most that one may: \
             `{node}` holds as many"
        ),
        Some(Shortage {
            node,
            key,
            asked,
            has,
            by_default,
            profile,
        }) => format!(
            "it starts in pool `{pool}` when enough is free {}: it asks {}for {}, and `{node}`, which comes closest, has {} \
             free{}",
            on(wanted),
            if wanted.hosts > 1 { "each " } else { "" },
            with_source(
                requested(key, *asked, profile.as_ref()),
                by_default.as_ref()
            ),
            available(key, *has, profile.as_ref()),
            unfit.map_or(String::new(), |unfit| format!(", and {unfit}")),
        ),
    }
}

fn noted_closest(reason: Reason, closest: &Shortage) -> Reason {
    let reason = reason
        .with_key(&closest.key)
        .with("node", closest.node.as_str());
    match closest.key == STEP_RUN {
        true => reason,
        false => reason
            .with_amount("asked", &closest.key, closest.asked)
            .with_amount("free", &closest.key, closest.has),
    }
}

fn with_closed(message: String, closed: &Option<ForbiddingHosts>) -> String {
    match closed {
        Some(closed) => format!("{message}; {closed}"),
        None => message,
    }
}

/// The number of hosts that the step needs, and their platforms.
fn on(wanted: &HostDemand) -> String {
    let of = of_platforms(wanted);
    match wanted.hosts {
        1 => format!("on one host{of}"),
        hosts => format!("on {hosts} hosts{of} at once"),
    }
}

fn of_platforms(wanted: &HostDemand) -> String {
    match wanted.platforms.as_slice() {
        [] => String::new(),
        [one] => format!(" of platform `{one}`"),
        several => format!(" of one of the platforms {}", quoted(several)),
    }
}

impl fmt::Display for Unschedulable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unschedulable::Gone => f.write_str("is gone"),
            Unschedulable::Lacks(capabilities) => f.write_str(&lacks(capabilities)),
            Unschedulable::Cordoned(reason) if reason.is_empty() => f.write_str("is cordoned"),
            Unschedulable::Cordoned(reason) => write!(f, "is cordoned ({reason})"),
            Unschedulable::Drained(reason) if reason.is_empty() => f.write_str("is drained"),
            Unschedulable::Drained(reason) => write!(f, "is drained ({reason})"),
            Unschedulable::ShortOfGpus(unfit) => write!(f, "is short of GPUs, because {unfit}"),
            Unschedulable::State(state, None) => write!(f, "is {state}"),
            Unschedulable::State(state, Some(why)) => write!(f, "is {state} ({why})"),
        }
    }
}

fn lacks(capabilities: &BTreeSet<Capability>) -> String {
    let names: Vec<&str> = capabilities.iter().map(|it| it.as_str()).collect();
    let noun = match names.len() {
        1 => "capability",
        _ => "capabilities",
    };
    format!("lacks {noun} {}, which the pool requires", names.join(", "))
}

impl fmt::Display for UnfitGpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnfitGpus { count, gpu, why } = self;
        match count {
            1 => write!(f, "1 of its GPUs is unusable (`{gpu}` is {why})"),
            _ => write!(
                f,
                "{count} of its GPUs are unusable (the first is `{gpu}`, {why})"
            ),
        }
    }
}
