//! Sentences about the findings of a dry run of a submit.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::api::timestamp;
use sluice_common::id::{NodeName, PlatformName, Subject};

use super::shortened;
use crate::Refusal;
use crate::check::{AssertionOutcome, Check};

/// Most hosts that a sentence names.
const NAMED_HOSTS: usize = 10;

impl Check {
    /// The subject of the finding: a field, an assertion, a platform, a code.
    pub fn about(&self) -> String {
        match self {
            Check::Policy { .. } | Check::NoPool(_) => "policy".to_string(),
            Check::Maintenance { .. } => "maintenance".to_string(),
            Check::Filled { field, .. } => field.clone(),
            Check::Never(never) => never.code().to_string(),
            Check::Assertion {
                document,
                platform,
                assert,
                ..
            } => match platform {
                Some(platform) => format!("{document} of {platform}: {assert}"),
                None => format!("{document}: {assert}"),
            },
            Check::Hosts { platforms, .. } => listed(platforms),
            Check::DeadlinePassed { .. } => "deadline".to_string(),
            Check::UnknownDependency { .. } => "after".to_string(),
            Check::Refused(refusal) if matches!(**refusal, Refusal::IdInUse { .. }) => {
                "id".to_string()
            }
            Check::Refused(_) => "after".to_string(),
            Check::Rejected(standing) | Check::Later(standing) | Check::Starts { standing, .. } => {
                standing.code().to_string()
            }
            Check::Waits { wait, .. } => wait.code().to_string(),
        }
    }

    /// The sentence for people.
    pub fn message(&self) -> String {
        match self {
            Check::Policy {
                subject,
                priority,
                by,
                by_default,
            } => policy(subject, *priority, by.as_ref(), *by_default),
            Check::NoPool(why) | Check::Never(why) => why.to_reason().message,
            Check::Maintenance { message, admin } => match admin {
                true => format!("it takes new steps from its admins only: {message}"),
                false => format!("it takes no new steps: {message}"),
            },
            Check::Filled { value, from, .. } => format!("{value}, from {from}"),
            Check::Assertion { outcome, .. } => outcome.message(),
            Check::Hosts { hosts, .. } => could_hold(hosts),
            Check::DeadlinePassed { deadline } => {
                format!("{} has passed", timestamp(*deadline))
            }
            Check::UnknownDependency { on } => {
                format!("there is no step `{on}`, after which it is to start")
            }
            Check::Refused(refusal) => refusal.to_string(),
            Check::Rejected(standing) | Check::Later(standing) => standing.to_reason().message,
            Check::Starts { parts, .. } if parts.is_empty() => {
                "it gets its resources at once".to_string()
            }
            Check::Starts { parts, .. } => {
                let hosts: Vec<String> = parts.iter().map(host_of).collect();
                format!("it starts at once, on {}", hosts.join(" and "))
            }
            Check::Waits {
                place: (place, waiting),
                wait,
            } => format!(
                "it waits at place {place} of {waiting}: {}",
                wait.to_reason().message
            ),
        }
    }
}

impl AssertionOutcome {
    fn message(&self) -> String {
        match self {
            AssertionOutcome::Holds => "it holds".to_string(),
            AssertionOutcome::NotApplicable => "its `when` does not hold".to_string(),
            AssertionOutcome::HoldsOn { keep: 0, of: 0 } => {
                "there is no host to check yet".to_string()
            }
            AssertionOutcome::HoldsOn { keep, of } => format!("it holds on {keep} of {of} hosts"),
            AssertionOutcome::Fails(found) => found.clone(),
        }
    }
}

fn policy(subject: &Subject, priority: u64, by: Option<&Subject>, by_default: bool) -> String {
    let by = by.map(|by| format!(", by the policy of `{by}`"));
    let sent = match by_default {
        true => "; the cluster's defaults send it here",
        false => "",
    };
    format!(
        "`{subject}` may submit, with priority {priority}{}{sent}",
        by.unwrap_or_default()
    )
}

fn listed(platforms: &[PlatformName]) -> String {
    match platforms {
        [] => "any".to_string(),
        asked => {
            let asked: Vec<&str> = asked.iter().map(PlatformName::as_str).collect();
            asked.join(",")
        }
    }
}

/// The sentence about hosts that could hold the step when empty.
fn could_hold(hosts: &[NodeName]) -> String {
    let names: Vec<String> = hosts.iter().map(|node| format!("`{node}`")).collect();
    match names.len() {
        0 => "no host of the pool could hold it: it waits for one".to_string(),
        1 => format!("one host could hold it: {}", names[0]),
        n => format!("{n} hosts could hold it: {}", shortened(names, NAMED_HOSTS)),
    }
}

fn host_of((node, gpus): &(NodeName, usize)) -> String {
    match gpus {
        0 => format!("`{node}`"),
        1 => format!("`{node}` with one GPU"),
        n => format!("`{node}` with {n} GPUs"),
    }
}
