//! Sentences of explanations: which changes would let a step start, and which runs are preempted or protected.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::api::timestamp;
use sluice_common::id::{PoolName, StepId, Subject};
use sluice_common::quantity::{self, figure, resource_noun};
use sluice_scheduler::{
    BeyondBudget, Change, Holder, Inspection, NoPreemption, PreemptionRisk, PreemptionStatus,
    Protected, Remedy, Request, Start,
};

use super::shortened;

/// Most names of a list that are written out.
const MAX_NAMED: usize = 3;

/// The end of a sentence that begins with "would start if".
pub fn remedy(request: &Request, pool: &PoolName, remedy: &Remedy) -> String {
    let changes: Vec<String> = remedy
        .changes
        .iter()
        .map(|change| self::change(request, pool, change))
        .collect();
    let mut sentence = changes.join(" and ");
    match remedy.start {
        Start::AtOnce => {}
        Start::AfterStops(1) => sentence.push_str(", as soon as one step has been preempted"),
        Start::AfterStops(n) => {
            sentence.push_str(&format!(", as soon as {n} steps have been preempted"))
        }
    }
    if remedy.after_others {
        sentence.push_str(", unless those ahead of it take it first");
    }
    sentence
}

fn change(request: &Request, pool: &PoolName, change: &Change) -> String {
    let subject = &request.subject;
    match change {
        Change::FreeOnHost { node, key, more } => {
            format!("{} were free on `{node}`", quantity::additional(key, *more))
        }
        Change::FreeInPool { key, more } => {
            let more = quantity::additional(key.as_str(), *more);
            format!("{more} were free in pool `{pool}`")
        }
        Change::MakeSchedulable { node } => format!("`{node}` took new work"),
        Change::RaiseLimit { key, to } => {
            let to = figure(key.as_str(), *to);
            format!("limit.{key} of `{subject}` in pool `{pool}` were {to}")
        }
        Change::RaiseReserved { key, to } => {
            let to = figure(key.as_str(), *to);
            format!("reserved.{key} of `{subject}` in pool `{pool}` were {to}")
        }
        Change::ReduceRequest { key, to } => {
            let asked = quantity::quantity(key.as_str(), *to);
            match request.hosts > 1 {
                true => format!("it asked for {asked} on each host"),
                false => format!("it asked for {asked}"),
            }
        }
        Change::MakePreemptible => String::from("it were preemptible"),
    }
}

/// The sentence about the runs that a step would preempt, or why it would preempt none.
pub fn preemption_status(request: &Request, inspection: &Inspection<'_>) -> String {
    match &inspection.preemption {
        PreemptionStatus::InProgress => String::from("its victims are stopping"),
        PreemptionStatus::Possible(victims) => {
            let names = victims.iter().map(ToString::to_string).collect();
            format!("{} would be preempted for it", listed(names))
        }
        PreemptionStatus::AwaitingRelease => {
            String::from("what it needs is being released: nothing is preempted for it")
        }
        PreemptionStatus::Impossible(why) => no_preemption(request, *why, &inspection.holders),
    }
}

fn no_preemption(request: &Request, why: NoPreemption, holders: &[Holder<'_>]) -> String {
    let message = match why {
        NoPreemption::NotAllowed => {
            "no preemption: it is not preemptible, and not inside its reserved share"
        }
        NoPreemption::NoCandidates => "no preemption: there is no run that it may preempt",
        NoPreemption::NotEnough => "no preemption: it would not free enough",
        NoPreemption::BeyondBudget => {
            "no preemption: what may be preempted within the pool's budget for lost work would not free enough"
        }
        NoPreemption::WouldBeReclaimed => {
            "no preemption: the victims would reclaim the resources at once, because they would be inside their reserved share"
        }
    };
    let mut sentence = String::from(message);
    let protected = match why {
        NoPreemption::NoCandidates | NoPreemption::NotEnough | NoPreemption::BeyondBudget => {
            counted(request, holders)
        }
        NoPreemption::NotAllowed | NoPreemption::WouldBeReclaimed => Vec::new(),
    };
    if !protected.is_empty() {
        let held = match holders.len() {
            1 => String::from("what it is short of is held by 1 run"),
            n => format!("what it is short of is held by {n} runs"),
        };
        sentence.push_str(&format!(" ({held}: {})", protected.join("; ")));
    }
    sentence
}

/// The number of protected runs by reason.
fn counted(request: &Request, holders: &[Holder<'_>]) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for holder in holders {
        let why = holder.protection.map_or_else(
            || String::from("may be preempted"),
            |why| protection(request, why),
        );
        *counts.entry(why).or_default() += 1;
    }
    let counts = counts.into_iter();
    counts.map(|(why, n)| format!("{n} {why}")).collect()
}

/// The reason why a run is protected, after its name.
pub fn protection(request: &Request, why: Protected) -> String {
    match why {
        Protected::NotPreemptible => String::from("not preemptible"),
        Protected::Releasing => String::from("stopping already"),
        Protected::Resuming => String::from("suspended, and others are preempted for it"),
        Protected::Own => format!("of `{}` itself", request.subject),
        Protected::InShare => String::from("inside its subject's reserved share"),
        Protected::Entitled => String::from("holding no more than its GPUs carry"),
        Protected::BorrowsToo => {
            String::from("holding more than its GPUs carry, as it would itself")
        }
        Protected::Priority(theirs) => {
            format!("of priority {theirs}, not below its own, while it would borrow")
        }
        Protected::PriorityOff => {
            String::from("to be preempted only by priority, which the pool has switched off")
        }
        Protected::Budget(it) => format!(
            "to be preempted only by priority, which {}",
            beyond_budget(it)
        ),
        Protected::Evicted(until) => format!(
            "preempted by priority before, and protected from that until {}",
            timestamp(until)
        ),
        Protected::MinRuntime(until) => {
            format!("protected by min_runtime until {}", timestamp(until))
        }
    }
}

/// Work that preemption by priority would lose, beside what the pool's budget has left.
fn beyond_budget(it: BeyondBudget) -> String {
    let unit = match it.has_gpus {
        true => "GPU-hours",
        false => "core-hours",
    };
    let (lost, left) = (hours(it.lost), hours(it.left));
    format!("would lose {lost} {unit}, while the pool's budget for that has {left} left")
}

/// Seconds as hours with one digit, rounded down.
fn hours(seconds: u64) -> String {
    let tenths = seconds / 360;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// The reason why a run is being stopped for another step.
pub fn gives_way(by: &StepId, waits: bool) -> String {
    if waits {
        format!("it is preempted for `{by}`, which waits for its resources")
    } else {
        format!("it is preempted for `{by}`, which no longer waits")
    }
}

/// The sentence about the subjects that could preempt a run.
pub fn exposure(subject: &Subject, pool: &PoolName, exposure: &PreemptionRisk<'_>) -> Vec<String> {
    if !exposure.preemptible {
        return Vec::from([String::from(
            "no step may preempt it: it is not preemptible",
        )]);
    }
    let mut sentences = Vec::new();
    if !exposure.backfill.is_empty() {
        let waiters = exposure.backfill.iter().map(|id| format!("`{id}`"));
        let waiters = listed(waiters.collect());
        sentences.push(format!(
            "it was started as backfill past {waiters}, which may preempt it at any time"
        ));
    }
    let borrows = !exposure.borrowed_from_gpus.is_empty();
    let is_above = !exposure.above_reserved.is_empty();
    if is_above {
        sentences.push(beyond(subject, pool, exposure));
    }
    if borrows {
        sentences.push(borrowed_from_gpus(exposure));
    }
    if !is_above && !borrows {
        sentences.push(format!(
            "`{subject}` is inside its reserved share of all that it holds: no step of another subject may preempt it"
        ));
    }
    if let Some(until) = exposure.protected_until.filter(|_| is_above || borrows) {
        sentences.push(format!("not before {}: min_runtime", timestamp(until)));
    }
    let by_priority = !exposure.above.is_empty() || !exposure.higher.is_empty();
    if let Some(it) = exposure.beyond_budget.filter(|_| by_priority) {
        sentences.push(format!("not by priority now: that {}", beyond_budget(it)));
    }
    sentences.push(format!(
        "a step of `{subject}` that is not preemptible and inside its reserved share may preempt it"
    ));
    sentences
}

fn beyond(subject: &Subject, pool: &PoolName, exposure: &PreemptionRisk<'_>) -> String {
    let keys = exposure.above_reserved.iter();
    let keys = keys.map(|(key, used, reserved)| {
        let (what, used, reserved) = (
            resource_noun(key),
            figure(key, *used),
            figure(key, *reserved),
        );
        format!("{what} ({used} used, {reserved} reserved)")
    });
    let by_priority = or_is_of(&exposure.above);
    format!(
        "`{subject}` holds more than its reserved share of pool `{pool}` in {}: a step that is short of that may preempt it if it is inside its own reserved share{by_priority}",
        listed(keys.collect())
    )
}

fn borrowed_from_gpus(exposure: &PreemptionRisk<'_>) -> String {
    let keys = exposure.borrowed_from_gpus.iter();
    let keys = keys.map(|(node, key, held, carried)| {
        let (held, carried) = (quantity::quantity(key, *held), figure(key, *carried));
        format!("{held} on `{node}` (its GPUs carry {carried})")
    });
    format!(
        "it borrows from GPUs: it holds {}; a step that is short of that and asks for no more than its own GPUs carry may preempt it if it is inside its own reserved share{}",
        listed(keys.collect()),
        or_is_of(&exposure.higher)
    )
}

/// The subjects that may preempt by priority, as the end of a sentence.
fn or_is_of(higher: &[(&Subject, u64)]) -> String {
    if higher.is_empty() {
        return String::new();
    }
    let higher = higher.iter();
    let higher = higher.map(|(subject, priority)| format!("`{subject}` (priority {priority})"));
    format!(", or is of {}", listed(higher.collect()))
}

fn listed(names: Vec<String>) -> String {
    shortened(names, MAX_NAMED)
}
