//! Promises of units to requests that cannot start yet.
//!
//! | | soft | firm |
//! |---|---|---|
//! | made for | the head of a pool, when no victims help | any waiter, when it takes victims |
//! | waits for | runs that end by themselves | victims that were told to go |
//! | keeps units from | those behind it that could not be made to give way | everybody |
//! | ends when | it starts, ends, is overtaken in order, or its hosts can no longer hold it | it starts or ends, or its hosts can no longer hold it |

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, NodeName, PoolName};

use super::Market;
use super::request::{ByHost, Request};
use crate::state::HostUnits;

/// A promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Nomination {
    /// Where.
    pub pool: PoolName,
    /// On which hosts, by rank.
    pub hosts: Vec<NodeName>,
    /// Runs whose units it awaits and that still hold some.
    pub awaits: BTreeSet<AttemptId>,
    /// Whether these were told to go.
    pub firm: bool,
}

impl Nomination {
    /// Whether nobody else may have its units.
    pub fn is_firm(&self) -> bool {
        self.firm
    }
}

/// Units that are kept free for others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) hosts: ByHost,
    pub(crate) pool: Amounts,
    /// Runs whose units come to them.
    pub(crate) awaited: BTreeSet<AttemptId>,
}

impl Kept {
    /// Adds what a promise to `request` keeps: what it needs beyond what the runs that it awaits still hold.
    pub(crate) fn add(&mut self, market: &Market, request: &Request, nomination: &Nomination) {
        let mut awaited = Amounts::new();
        let mut on: ByHost = ByHost::new();
        for id in &nomination.awaits {
            let Some(run) = market.run(id).filter(|run| run.pool == nomination.pool) else {
                continue;
            };
            awaited.add(&run.request.demand);
            for node in &run.holding {
                let sum = on.entry(node.clone()).or_default();
                *sum = sum.plus(run.request.each);
            }
        }
        self.awaited.extend(nomination.awaits.iter().cloned());
        self.pool.add(&request.demand.less(&awaited));
        for node in &nomination.hosts {
            let held = on.get(node).copied().unwrap_or_default();
            let kept = self.hosts.entry(node.clone()).or_default();
            *kept = kept.plus(request.each.less(held));
        }
    }

    /// Adds all that a promise to `request` is about.
    pub(crate) fn add_in_full(&mut self, request: &Request, nomination: &Nomination) {
        self.pool.add(&request.demand);
        for node in &nomination.hosts {
            let kept = self.hosts.entry(node.clone()).or_default();
            *kept = kept.plus(request.each);
        }
    }

    pub(crate) fn on(&self, node: &NodeName) -> HostUnits {
        self.hosts.get(node).copied().unwrap_or_default()
    }
}
