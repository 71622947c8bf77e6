//! Promises of units to requests that cannot start yet.
//!
//! | | soft | firm |
//! |---|---|---|
//! | made for | the head of a pool, when no victims help | any waiter, when it takes victims |
//! | waits for | runs that end by themselves | victims that were told to go |
//! | keeps units from | those behind it that could not be made to give way | everybody |
//! | ends when | it starts, ends, is overtaken in order, or its hosts can no longer hold it | it starts or ends, or its hosts can no longer hold it |

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, NodeName, PoolName};

use super::Market;
use super::frozen::{Gpus, Resumption};
use super::request::{ByHost, Request, Run};
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
    /// GPUs that are to be free as they are, by host.
    pub(crate) gpus: BTreeMap<NodeName, Gpus>,
}

impl Kept {
    /// Adds what a promise to `request` keeps: what it needs beyond what the runs that it awaits still hold.
    pub(crate) fn add(&mut self, market: &Market, request: &Request, nomination: &Nomination) {
        self.add_where(market, request, nomination, |_, run| run.gives());
    }

    /// The same, where `gives` says what comes back of each of those runs.
    pub(crate) fn add_where(
        &mut self,
        market: &Market,
        request: &Request,
        nomination: &Nomination,
        gives: impl Fn(&AttemptId, &Run) -> (HostUnits, Amounts),
    ) {
        let mut awaited = Amounts::new();
        let mut on: ByHost = ByHost::new();
        for id in &nomination.awaits {
            let Some(run) = market.run(id).filter(|run| run.pool == nomination.pool) else {
                continue;
            };
            let (each, demand) = gives(id, run);
            awaited.add(&demand);
            for node in &run.holding {
                let sum = on.entry(node.clone()).or_default();
                let host = market.pool(&nomination.pool);
                let host = host.and_then(|pool| pool.hosts().get(node));
                *sum = sum.plus(host.map_or(each, |host| host.given_back(id, each)));
            }
        }
        self.awaited.extend(nomination.awaits.iter().cloned());
        self.pool.add(&request.demand.less(&awaited));
        for node in &nomination.hosts {
            let held = on.get(node).copied().unwrap_or_default();
            let mut missing = request.each.less(held);
            if let Some(resumes) = &request.resumes {
                // Which of its own GPUs those hold, not how many they hold in all.
                let awaits = nomination.awaits.iter().filter_map(|id| market.run(id));
                let coming: Vec<&Gpus> = awaits.filter_map(|run| run.gpus_on(node)).collect();
                let own = resumes.gpus.iter();
                let kept = own.filter(|gpu| !coming.iter().any(|gpus| gpus.contains(*gpu)));
                missing = missing.with_gpus(kept.count() as u64);
                self.keep_gpus(resumes);
            }
            let kept = self.hosts.entry(node.clone()).or_default();
            *kept = kept.plus(missing);
        }
    }

    /// What was frozen goes on with its own GPUs and no others.
    fn keep_gpus(&mut self, resumes: &Resumption) {
        let gpus = self.gpus.entry(resumes.node.clone()).or_default();
        gpus.extend(resumes.gpus.iter().cloned());
    }

    /// Adds all that a promise to `request` is about.
    pub(crate) fn add_in_full(&mut self, request: &Request, nomination: &Nomination) {
        self.pool.add(&request.demand);
        for node in &nomination.hosts {
            let kept = self.hosts.entry(node.clone()).or_default();
            *kept = kept.plus(request.each);
        }
        if let Some(resumes) = &request.resumes {
            self.keep_gpus(resumes);
        }
    }

    pub(crate) fn on(&self, node: &NodeName) -> HostUnits {
        self.hosts.get(node).copied().unwrap_or_default()
    }
}
