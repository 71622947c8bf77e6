//! The parts of a run that decisions ask for, looked up once and kept until the run changes: decisions go through thousands
//! of runs, which lie apart in memory.

use alloc::boxed::Box;
use alloc::sync::Arc;

use sluice_common::amount::{Amounts, MGPU};
use sluice_common::time::Time;

use crate::model::pool::host_table::{HostNumber, HostTable};
use crate::model::request::{Run, RunTimes, RunWork};
use crate::model::resources::HostResources;

/// A run that holds resources of a pool, and the parts of it that decide whether it is a victim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldRun {
    pub(crate) run: Arc<Run>,
    hosts: HeldHosts,
    /// Resources that it holds on each of its hosts.
    pub(crate) each: HostResources,
    /// Resources that it holds of its pool.
    pub(crate) demand: Amounts,
    /// Thousandths of a GPU that its request asks for.
    pub(crate) asked_mgpu: u64,
    pub(crate) work: RunWork,
    evictions: u32,
    pub(crate) is_preemptible: bool,
    pub(crate) is_releasing: bool,
    pub(crate) is_frozen: bool,
    pub(crate) times: RunTimes,
    pub(crate) place: u64,
}

/// Hosts of a pool on which a run holds resources. Most runs hold those of one, which are kept in place.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HeldHosts {
    One([HostNumber; 1]),
    Other(Box<[HostNumber]>),
}

impl HeldRun {
    /// `hosts` are those of its pool.
    pub(crate) fn new(hosts: &HostTable, run: &Arc<Run>) -> Self {
        let nodes = run.holding.iter();
        let mut numbers = nodes.filter_map(|node| hosts.number(node));
        let hosts = match (numbers.next(), numbers.next()) {
            (Some(only), None) => HeldHosts::One([only]),
            (first, second) => {
                let all = first.into_iter().chain(second).chain(numbers);
                HeldHosts::Other(all.collect())
            }
        };
        Self {
            run: Arc::clone(run),
            hosts,
            each: run.each(),
            demand: run.demand().clone(),
            asked_mgpu: run.request.demand.get(MGPU),
            work: run.unsaved_work(),
            evictions: run.evictions(),
            is_preemptible: run.request.preemptible,
            is_releasing: run.is_releasing(),
            is_frozen: run.is_frozen(),
            times: run.times(),
            place: run.request.place,
        }
    }

    /// Hosts of the pool on which it holds resources.
    pub(crate) fn hosts(&self) -> &[HostNumber] {
        match &self.hosts {
            HeldHosts::One(one) => one,
            HeldHosts::Other(hosts) => hosts,
        }
    }

    /// Work by which it is ranked among victims: what stopping it loses, doubled for each time that priority stopped it.
    pub(crate) fn ranked_work(&self, now: Time) -> u128 {
        self.work.until(now) << self.evictions
    }
}
