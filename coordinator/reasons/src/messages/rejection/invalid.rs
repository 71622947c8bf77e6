//! Sentences about assertions that a step fails, or that no host passes for it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{PoolName, ValidationName};
use sluice_common::reason::{Reason, ReasonCode};

use crate::rejection::{AssertionSource, FailedAssertion, FailingHost};

impl AssertionSource {
    /// The name of the documents in messages.
    pub(super) fn named(&self, pool: &PoolName) -> String {
        match self {
            AssertionSource::Pool => format!("pool `{pool}`"),
            AssertionSource::Platform(name) => format!("platform `{name}` of pool `{pool}`"),
            AssertionSource::AnyPlatform(name) => format!(
                "platform `{name}` of pool `{pool}`, which it may get because it accepts any"
            ),
        }
    }

    pub(super) fn noted(&self, reason: Reason) -> Reason {
        match self {
            AssertionSource::Pool => reason,
            AssertionSource::Platform(name) | AssertionSource::AnyPlatform(name) => {
                reason.with("platform", name.as_str())
            }
        }
    }
}

impl FailedAssertion {
    /// `judge` tells whose assertions they are.
    pub(super) fn to_reason(
        &self,
        judge: &str,
        validation: &ValidationName,
        advice: &str,
    ) -> Reason {
        let of = |message: String| Reason::new(ReasonCode::ValidationFailed, message);
        match self {
            FailedAssertion::Step { assert, found } => of(format!(
                "{advice} (validation `{validation}` of {judge}: {assert}; {found})"
            ))
            .with("assert", assert.as_str())
            .with("found", found.as_str()),
            FailedAssertion::Hosts { asked, nearest } => {
                let hosts: Vec<String> = nearest.iter().map(shown).collect();
                let more = match asked.saturating_sub(hosts.len() as u64) {
                    0 => String::new(),
                    more => format!("; and {more} more"),
                };
                let reason = of(format!(
                    "{advice} (no host of {judge} passes all of its validations: {}{more})",
                    hosts.join("; ")
                ));
                // Names of details are sorted by bytes, so numbers of two digits keep the order of the hosts.
                (1..)
                    .zip(hosts)
                    .fold(reason.with("hosts", *asked), |reason, (at, host)| {
                        reason.with(&format!("host {at:02}"), host.as_str())
                    })
            }
        }
    }
}

fn shown(host: &FailingHost) -> String {
    let broken = host.broken.iter();
    let broken: Vec<String> = broken
        .map(|(assert, found)| format!("{assert} ({found})"))
        .collect();
    format!("`{}`: {}", host.node, broken.join("; "))
}
