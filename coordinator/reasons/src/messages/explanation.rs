//! The sentences of explanations: what would let a step start, who gives way to whom and who does not.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::api::timestamp;
use sluice_common::id::{PoolName, StepId, Subject};
use sluice_common::quantity::{self, figure, resource_noun};
use sluice_scheduler::{
    Change, Holder, Inspection, NoPreemption, PreemptionRisk, PreemptionStatus, Protected, Remedy,
    Request, Start,
};

use super::shortened;

/// Names of a list that are written out.
const MAX_NAMED: usize = 3;

/// After "would start if".
pub fn remedy(request: &Request, pool: &PoolName, remedy: &Remedy) -> String {
    let changes: Vec<String> = remedy
        .changes
        .iter()
        .map(|change| self::change(request, pool, change))
        .collect();
    let mut sentence = changes.join(" and ");
    match remedy.start {
        Start::AtOnce => {}
        Start::AfterStops(1) => sentence.push_str(", as soon as one step has given way"),
        Start::AfterStops(n) => {
            sentence.push_str(&format!(", as soon as {n} steps have given way"))
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
        Change::MakeSchedulable { node } => format!("`{node}` took work"),
        Change::RaiseLimit { key, to } => {
            format!("limit.{key} of `{subject}` in pool `{pool}` were {to}")
        }
        Change::RaiseReserved { key, to } => {
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

/// Whom a step would stop, or why nobody is stopped for it.
pub fn stops(request: &Request, look: &Inspection<'_>) -> String {
    match &look.preemption {
        PreemptionStatus::InProgress => String::from("what is in its way was told to go"),
        PreemptionStatus::Possible(victims) => {
            let names = victims.iter().map(ToString::to_string).collect();
            format!("{} would be stopped for it", listed(names))
        }
        PreemptionStatus::AwaitingRelease => {
            String::from("what it needs is coming free by itself: nobody is stopped for it")
        }
        PreemptionStatus::Impossible(why) => hindrance(request, *why, &look.holders),
    }
}

fn hindrance(request: &Request, why: NoPreemption, holders: &[Holder<'_>]) -> String {
    let message = match why {
        NoPreemption::NotAllowed => {
            "nobody is stopped for it: it is not preemptible, and not inside its reserved share"
        }
        NoPreemption::NoCandidates => "there is nobody that it may stop",
        NoPreemption::NotEnough => {
            "all that it may stop would not make room for it: nobody is stopped in vain"
        }
        NoPreemption::WouldBeReclaimed => {
            "nobody is stopped for it: what it took would be taken back at once, for it would be inside the reserved \
             share of whoever lost it"
        }
    };
    let mut sentence = String::from(message);
    let spared = match why {
        NoPreemption::NoCandidates | NoPreemption::NotEnough => counted(request, holders),
        NoPreemption::NotAllowed | NoPreemption::WouldBeReclaimed => Vec::new(),
    };
    if !spared.is_empty() {
        let held = match holders.len() {
            1 => String::from("what it is short of is held by 1 run"),
            n => format!("what it is short of is held by {n} runs"),
        };
        sentence.push_str(&format!(" ({held}: {})", spared.join("; ")));
    }
    sentence
}

/// How many runs are spared for which reason.
fn counted(request: &Request, holders: &[Holder<'_>]) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for holder in holders {
        let why = holder.protection.map_or_else(
            || String::from("may be stopped"),
            |why| spared(request, why),
        );
        *counts.entry(why).or_default() += 1;
    }
    let counts = counts.into_iter();
    counts.map(|(why, n)| format!("{n} {why}")).collect()
}

/// After the name of a run: why it is spared.
pub fn spared(request: &Request, why: Protected) -> String {
    match why {
        Protected::NotPreemptible => String::from("not preemptible"),
        Protected::Releasing => String::from("being stopped already"),
        Protected::Resuming => String::from("frozen, and others go for it"),
        Protected::Own => format!("of `{}` itself", request.subject),
        Protected::InShare => String::from("inside its subject's reserved share"),
        Protected::Priority(theirs) => {
            format!("of priority {theirs}, which is not below its own, while it would borrow")
        }
        Protected::MinRuntime(until) => format!("spared by min_runtime until {}", timestamp(until)),
    }
}

/// What a run that is being stopped makes room for.
pub fn gives_way(by: &StepId, waits: bool) -> String {
    if waits {
        format!("it gives way to `{by}`, which waits for what it holds")
    } else {
        format!("it gives way to `{by}`, which waits no longer")
    }
}

/// By whom a run could be made to give way.
pub fn exposure(subject: &Subject, pool: &PoolName, exposure: &PreemptionRisk<'_>) -> Vec<String> {
    if !exposure.preemptible {
        return Vec::from([String::from(
            "nobody may stop it for a step of theirs: it is not preemptible",
        )]);
    }
    let mut said = Vec::new();
    if !exposure.backfill.is_empty() {
        let waiters = exposure.backfill.iter().map(|id| format!("`{id}`"));
        let waiters = listed(waiters.collect());
        said.push(format!(
            "it was started around {waiters}, which may take its place at any time"
        ));
    }
    if exposure.above_reserved.is_empty() {
        said.push(format!(
            "`{subject}` is inside its reserved share of all that it holds: no step of another subject may stop it"
        ));
    } else {
        said.push(beyond(subject, pool, exposure));
    }
    if let Some(until) = exposure
        .protected_until
        .filter(|_| !exposure.above_reserved.is_empty())
    {
        said.push(format!("not before {}: min_runtime", timestamp(until)));
    }
    said.push(format!(
        "a step of `{subject}` that is not preemptible and inside its reserved share may stop it"
    ));
    said
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
    let by_priority = match exposure.above.is_empty() {
        true => String::new(),
        false => {
            let above = exposure.above.iter();
            let above =
                above.map(|(subject, priority)| format!("`{subject}` (priority {priority})"));
            format!(", or is of {}", listed(above.collect()))
        }
    };
    format!(
        "`{subject}` holds more than its reserved share of pool `{pool}` in {}: a step that is short of that may stop it \
         where it is inside its own reserved share{by_priority}",
        listed(keys.collect())
    )
}

fn listed(names: Vec<String>) -> String {
    shortened(names, MAX_NAMED)
}
