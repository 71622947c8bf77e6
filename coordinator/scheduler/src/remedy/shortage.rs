//! Computes the changes that would give a request what it lacks under each rule. The dry run finds out whether they
//! are enough.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_common::amount::{MGPU, ResourceKey, STEP_RUN};
use sluice_common::id::NodeName;

use crate::model::request::Request;
use crate::model::reservations::Reservations;
use crate::placement::request_in_pool::RequestInPool;
use crate::remedy::change::{Change, with_amount};

impl<'a> RequestInPool<'a> {
    /// Candidate changes, the smallest first; none is tried yet.
    pub(crate) fn proposals(&self) -> Vec<Vec<Change>> {
        let policy = self.missing_in_policy();
        let units = self.missing_resources();
        let both: Vec<Change> = policy.iter().chain(&units).cloned().collect();
        let mut proposals = Vec::from([policy, units, both, self.missing_in_share()]);
        if self.request.resumes.is_some() {
            // A frozen run cannot ask for less.
            proposals.retain(|changes| !changes.is_empty());
            return proposals;
        }
        if !self.request.preemptible {
            proposals.push(Vec::from([Change::MakePreemptible]));
        }
        proposals.extend(self.smaller_requests().map(|change| Vec::from([change])));
        proposals.retain(|changes| !changes.is_empty());
        proposals
    }

    /// Changes of its subject's policy that it lacks.
    fn missing_in_policy(&self) -> Vec<Change> {
        if self.request.preemptible {
            return self.limits(&BTreeMap::new());
        }
        self.missing_in_share()
    }

    /// Amounts that must be reserved for it to be in share, and the limits that must rise for that.
    fn missing_in_share(&self) -> Vec<Change> {
        let used = self.counted();
        let short = self.metered().filter_map(|(key, asked)| {
            let to = used.get(key).saturating_add(asked);
            (to > self.account.reserved(key)?).then_some((key, to))
        });
        let short: BTreeMap<&str, u64> = short.collect();
        let reserve = |(key, to): (&&str, &u64)| Change::RaiseReserved {
            key: named(self.request, key),
            to: *to,
        };
        let reserved: Vec<Change> = short.iter().map(reserve).collect();
        let mut changes = self.limits(&short);
        changes.extend(reserved);
        changes
    }

    /// Limits that it would exceed, or that would be below the new reserved amounts.
    fn limits(&self, reserved: &BTreeMap<&str, u64>) -> Vec<Change> {
        let limits = self.metered().filter_map(|(key, asked)| {
            let limit = self.account.policy.as_ref()?.limit(key)?;
            let needed = self.account.used.get(key).saturating_add(asked);
            let to = needed.max(reserved.get(key).copied().unwrap_or(0));
            (to > limit).then(|| Change::RaiseLimit {
                key: named(self.request, key),
                to,
            })
        });
        limits.collect()
    }

    /// Resources that must become free or schedulable for it to fit, on the hosts where that is least.
    pub(crate) fn missing_resources(&self) -> Vec<Change> {
        let reserved = self.reserved_for_others();
        let reservations =
            match reserved.allows_backfill(self.request) || reserved.allows_short_run() {
                true => &reserved.firm,
                false => reserved.all(),
            };
        let mut changes: Vec<Change> = self.missing_declared(reservations).collect();
        let domains = self.each_domain().into_iter();
        let sets = domains.filter_map(|domain| domain.hosts_short_of_least(reservations));
        let Some(hosts) = sets.min() else {
            return Vec::new();
        };
        changes.extend(hosts.into_iter().flat_map(HostShortage::changes));
        changes
    }

    /// The hosts of the domain that is being tried on which least must come free, as many as it needs.
    fn hosts_short_of_least(&self, reservations: &Reservations) -> Option<Vec<HostShortage<'a>>> {
        let known = self.covering(&self.host_index().by_capacity);
        let hosts = known.filter_map(|(node, _)| self.host_shortage(node, reservations));
        let mut hosts: Vec<HostShortage<'a>> = hosts.collect();
        hosts.sort_unstable();
        let wanted = self.request.hosts as usize;
        hosts.truncate(wanted);
        (hosts.len() == wanted).then_some(hosts)
    }

    fn missing_declared(&self, reservations: &Reservations) -> impl Iterator<Item = Change> {
        self.request.demand.iter().filter_map(|(key, asked)| {
            let declared = self.pool.declared(key.as_str())?;
            let taken = self.pool.used().get(key.as_str());
            let needed = asked
                .saturating_add(taken)
                .saturating_add(reservations.pool.get(key.as_str()));
            let more = needed.saturating_sub(declared);
            (more > 0).then(|| Change::FreeInPool {
                key: key.clone(),
                more,
            })
        })
    }

    fn host_shortage(
        &self,
        node: &'a NodeName,
        reservations: &Reservations,
    ) -> Option<HostShortage<'a>> {
        let host = self.pool.hosts().get(node)?;
        let taken = host.used_for(self.filter);
        let taken = taken.plus(reservations.unavailable_on(node, host, self.filter));
        let each = self.request.each;
        // Of a resource that it does not ask for, others may hold more than there is.
        let asked = each.iter().filter(|(_, asked)| *asked > 0);
        let missing = asked.filter_map(|(key, asked)| {
            let needed = asked.saturating_add(taken.get(key));
            let has = host.usable_for(self.filter);
            let more = needed.saturating_sub(has.get(key));
            (more > 0).then_some((key, more))
        });
        let missing: Vec<(&'static str, u64)> = missing.collect();
        Some(HostShortage {
            closed: !host.schedulable,
            keys: missing.len(),
            missing,
            node,
        })
    }

    /// For each resource, the largest amount with which it would fit now.
    fn smaller_requests(&self) -> impl Iterator<Item = Change> {
        let hosts = u64::from(self.request.hosts);
        let keys = self.request.demand.iter();
        let keys = keys.filter(|(key, _)| key.as_str() != STEP_RUN);
        keys.filter_map(move |(key, asked)| {
            let fits = |to: &u64| {
                let request = with_amount(self.request, key, *to);
                let in_pool = RequestInPool {
                    request: &request,
                    ..*self
                };
                in_pool.find_placement().is_some()
            };
            // GPUs and slices are not divided.
            let step = match key.as_str() {
                MGPU => self.request.class.mgpu(),
                _ => 1,
            };
            let most = asked.checked_div(hosts)? / step;
            let to = largest_fitting(most, |units| fits(&(units * step)))? * step;
            let key = key.clone();
            Some(Change::ReduceRequest { key, to })
        })
    }
}

/// Missing resources of a host; the least is best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HostShortage<'a> {
    closed: bool,
    keys: usize,
    missing: Vec<(&'static str, u64)>,
    node: &'a NodeName,
}

impl HostShortage<'_> {
    fn changes(self) -> Vec<Change> {
        let node = self.node;
        let open = self
            .closed
            .then(|| Change::MakeSchedulable { node: node.clone() });
        let free = self
            .missing
            .into_iter()
            .map(|(key, more)| Change::FreeOnHost {
                node: node.clone(),
                key,
                more,
            });
        open.into_iter().chain(free).collect()
    }
}

/// The largest number from 1 to below `asked` for which `fits` holds; `fits` must be monotonic.
fn largest_fitting(asked: u64, fits: impl Fn(&u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (0, asked);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        match fits(&middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    (low > 0).then_some(low)
}

fn named(request: &Request, key: &str) -> ResourceKey {
    let keys = request.demand.iter();
    let mut keys = keys.filter(|(known, _)| known.as_str() == key);
    let found = keys.next().map(|(key, _)| key.clone());
    found.expect("what is metered of a request is asked by it")
}
