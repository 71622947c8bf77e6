//! A pool as it would be without some runs: what a request would still lack, and which requests would be inside their
//! share.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, NodeName, Subject};

use crate::model::account::Account;
use crate::model::frozen::GpuUuids;
use crate::model::host::NamedHost;
use crate::model::nomination::Nomination;
use crate::model::queue_order;
use crate::model::request::{Request, ResourcesByHost, Run};
use crate::model::reservations::Reservations;
use crate::model::resources::HostResources;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::candidate_list::Candidate;

/// A hypothetical state of a pool.
#[derive(Clone, Debug)]
pub(crate) struct WhatIf<'a, 'r> {
    pub(super) in_pool: RequestInPool<'a>,
    reservations: Cow<'r, Reservations>,
    head: Option<HeadNomination<'a, 'r>>,
    pub(super) removed: BTreeMap<&'a AttemptId, ReleasedRun<'a>>,
    freed_on: ResourcesByHost,
    freed: Amounts,
    freed_by_subject: BTreeMap<&'a Subject, Amounts>,
    /// Resources that each subject is releasing, without the removed runs; kept as a sum because it is asked for each
    /// candidate.
    releasing_by_subject: BTreeMap<&'a Subject, Amounts>,
}

/// A head that goes before the request and waits for runs to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadNomination<'a, 'r> {
    /// Reservations of requests other than the head.
    pub(crate) firm: &'r Reservations,
    pub(crate) request: &'a Request,
    pub(crate) nomination: &'a Nomination,
}

/// A run and the resources that it releases.
#[derive(Clone, Debug)]
pub(super) struct ReleasedRun<'a> {
    pub(super) run: &'a Run,
    each: HostResources,
    demand: Amounts,
}

/// Resources that a request lacks; empty if it could start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shortage<'a> {
    /// Missing resources by host.
    pub(super) hosts: Vec<(NodeName, HostResources)>,
    /// Declared resources of the pool that are short.
    pub(super) pool: Vec<&'a str>,
    /// Resources of which its subject would exceed its limit.
    pub(super) limit: Vec<&'a str>,
    /// Exact GPUs that must be free, if the request is a resumption and enough other GPUs are free.
    pub(super) own_gpus: Option<&'a GpuUuids>,
}

impl<'a, 'r> WhatIf<'a, 'r> {
    pub(crate) fn new(in_pool: RequestInPool<'a>, reservations: &'r Reservations) -> Self {
        Self {
            in_pool,
            reservations: Cow::Borrowed(reservations),
            head: None,
            removed: BTreeMap::new(),
            freed_on: ResourcesByHost::new(),
            freed: Amounts::new(),
            freed_by_subject: BTreeMap::new(),
            releasing_by_subject: releasing_by_subject(in_pool),
        }
    }

    /// A hypothetical state in which runs that the head awaits may be taken for the request too, as far as the head
    /// does not need them.
    pub(crate) fn sharing_with_head(
        in_pool: RequestInPool<'a>,
        reservations: &'r Reservations,
        head: HeadNomination<'a, 'r>,
    ) -> Self {
        Self {
            head: Some(head),
            ..Self::new(in_pool, reservations)
        }
    }

    /// Whether runs that the head awaits may be taken too.
    pub(crate) fn shares_with_head(&self) -> bool {
        self.head.is_some()
    }

    /// Reserves for the head what it needs of the awaited runs that are still there.
    fn update_head_reservations(&mut self, id: &AttemptId) {
        let awaits = |head: &HeadNomination<'_, '_>| head.nomination.awaits.contains(id);
        let Some(head) = self.head.filter(awaits) else {
            return;
        };
        let mut rest = head.nomination.clone();
        rest.awaits.retain(|id| !self.removed.contains_key(id));
        let mut reservations = head.firm.clone();
        reservations.add(self.in_pool.scheduler, head.request, &rest);
        self.reservations = Cow::Owned(reservations);
    }

    /// Supposes that a run has stopped, or that one which is being frozen is frozen.
    pub(crate) fn remove(&mut self, id: &'a AttemptId, run: &'a Run) {
        self.release(id, run, run.releases());
    }

    /// Supposes that a run is frozen.
    pub(crate) fn freeze(&mut self, id: &'a AttemptId, run: &'a Run) {
        self.release(id, run, run.releases_when_frozen());
    }

    fn release(
        &mut self,
        id: &'a AttemptId,
        run: &'a Run,
        (each, demand): (HostResources, Amounts),
    ) {
        if self.removed.contains_key(id) {
            return;
        }
        self.freed.add(&demand);
        let of = self
            .freed_by_subject
            .entry(&run.request.subject)
            .or_default();
        of.add(&demand);
        if self.in_pool.pool.releasing.contains(id)
            && let Some(releasing) = self.releasing_by_subject.get_mut(&run.request.subject)
        {
            releasing.subtract(&demand);
        }
        for node in &run.holding {
            let freed = self.in_pool.released_for(node, id, each);
            let on = self.freed_on.entry(node.clone()).or_default();
            *on = on.plus(freed);
        }
        self.removed.insert(id, ReleasedRun { run, each, demand });
        self.update_head_reservations(id);
    }

    /// A copy with a run put back.
    pub(crate) fn without(&self, id: &AttemptId) -> Self {
        let mut without = self.clone();
        without.restore(id);
        without
    }

    /// Puts a run back.
    pub(crate) fn restore(&mut self, id: &AttemptId) {
        let Some(ReleasedRun { run, each, demand }) = self.removed.remove(id) else {
            return;
        };
        self.freed.subtract(&demand);
        if let Some(of) = self.freed_by_subject.get_mut(&run.request.subject) {
            of.subtract(&demand);
        }
        if self.in_pool.pool.releasing.contains(id) {
            let releasing = self
                .releasing_by_subject
                .entry(&run.request.subject)
                .or_default();
            releasing.add(&demand);
        }
        for node in &run.holding {
            let freed = self.in_pool.released_for(node, id, each);
            if let Some(on) = self.freed_on.get_mut(node) {
                *on = on.less(freed);
            }
        }
        self.update_head_reservations(id);
    }

    /// Whether the resources of a run are reserved for other requests.
    pub(crate) fn is_reserved_for_others(&self, id: &AttemptId) -> bool {
        let reservations = self.head.map_or(&*self.reservations, |head| head.firm);
        reservations.awaited.contains(id)
    }

    pub(crate) fn is_removed(&self, id: &AttemptId) -> bool {
        self.removed.contains_key(id)
    }

    /// The hosts on which something would be released.
    pub(crate) fn freed_hosts(&self) -> impl Iterator<Item = &NodeName> {
        self.freed_on.keys()
    }

    /// Whether the request would fit on a host if `more` became free there, as far as the host is concerned.
    pub(crate) fn could_cover(&self, node: &NodeName, more: HostResources) -> bool {
        let host = self.in_pool.pool.hosts().get(node);
        host.is_some_and(|host| self.could_cover_on((node, host), more))
    }

    /// The same for a host at hand.
    pub(crate) fn could_cover_on(&self, (node, host): NamedHost<'_>, more: HostResources) -> bool {
        let freed = self.freed_on.get(node).copied().unwrap_or_default();
        let freed = freed.plus(more);
        let left = self
            .in_pool
            .left_on((node, host), freed, &self.reservations);
        left.cover(self.in_pool.request.each)
    }

    /// Whether the request lacks only host resources, and any GPUs will do.
    pub(crate) fn lacks_only_host_resources(&self) -> bool {
        let any = self.in_pool.own_gpus().is_none();
        any && self.short_in_pool().is_empty() && self.keys_short_of_limit().is_empty()
    }

    fn freed_by_subject(&self, subject: &Subject) -> Amounts {
        self.freed_by_subject
            .get(subject)
            .cloned()
            .unwrap_or_default()
    }

    /// Resources that the request would lack on these hosts.
    pub(crate) fn shortage(&self, hosts: &[NodeName]) -> Shortage<'a> {
        let missing = hosts.iter().filter_map(|node| {
            let missing = self.missing_on(node);
            (missing != HostResources::default()).then(|| (node.clone(), missing))
        });
        let own_gpus = self.in_pool.own_gpus();
        Shortage {
            hosts: missing.collect(),
            pool: self.short_in_pool(),
            limit: self.keys_short_of_limit(),
            own_gpus: own_gpus.filter(|_| {
                hosts
                    .iter()
                    .all(|node| self.missing_count_on(node).mgpu() == 0)
            }),
        }
    }

    /// Updates a shortage after one more run was removed.
    pub(crate) fn shrink(&self, shortage: &mut Shortage<'a>, run: &Run) {
        shortage.hosts.retain_mut(|(node, missing)| {
            if run.holding.contains(node) {
                *missing = self.missing_on(node);
            }
            *missing != HostResources::default()
        });
        if !shortage.pool.is_empty() {
            shortage.pool = self.short_in_pool();
        }
        if !shortage.limit.is_empty() {
            shortage.limit = self.keys_short_of_limit();
        }
    }

    /// Whether the request, which fits on these hosts without a run, fits with it too.
    pub(crate) fn fits_despite(&self, hosts: &[NodeName], run: &Run) -> bool {
        let mut here = hosts.iter().filter(|node| run.holding.contains(*node));
        here.all(|node| self.missing_on(node) == HostResources::default())
            && self.short_in_pool().is_empty()
            && self.keys_short_of_limit().is_empty()
    }

    pub(crate) fn missing_on(&self, node: &NodeName) -> HostResources {
        let counted = self.missing_count_on(node);
        let gone = |id: &AttemptId| self.removed.contains_key(id);
        let taken = self.in_pool.own_gpus_taken(node, &self.reservations, gone);
        counted.with_mgpu(counted.mgpu().max(taken))
    }

    /// Missing resources by number, whichever GPUs are free.
    pub(crate) fn missing_count_on(&self, node: &NodeName) -> HostResources {
        let RequestInPool { pool, request, .. } = self.in_pool;
        let host = pool.hosts().get(node);
        host.map_or(request.each, |host| {
            self.missing_count_on_host((node, host))
        })
    }

    /// The same for a host at hand.
    pub(crate) fn missing_count_on_host(&self, (node, host): NamedHost<'_>) -> HostResources {
        // If a host shrank under its runs, not all that they release is usable.
        let freed = self.freed_on.get(node).copied().unwrap_or_default();
        let left = self
            .in_pool
            .left_on((node, host), freed, &self.reservations);
        self.in_pool.request.each.less(left)
    }

    pub(crate) fn short_in_pool(&self) -> Vec<&'a str> {
        let RequestInPool { pool, request, .. } = self.in_pool;
        if pool.terms().declared.is_empty() {
            return Vec::new();
        }
        let demand = request.demand.iter();
        let short = demand.filter(|(key, asked)| {
            let Some(declared) = pool.declared(key.as_str()) else {
                return false;
            };
            let used = pool
                .used()
                .get(key.as_str())
                .saturating_sub(self.freed.get(key.as_str()));
            let taken = used.saturating_add(self.reservations.pool.get(key.as_str()));
            *asked > declared.saturating_sub(taken)
        });
        short.map(|(key, _)| key.as_str()).collect()
    }

    fn keys_short_of_limit(&self) -> Vec<&'a str> {
        let policy = self.in_pool.account.policy.as_ref();
        if policy.is_none_or(|policy| policy.limit.is_empty()) {
            return Vec::new();
        }
        let gone = self.freed_by_subject(&self.in_pool.request.subject);
        self.in_pool.keys_short_of_limit(&gone).collect()
    }

    /// Whether a run may be preempted for a resource that is short on a host, or in the pool. A request inside its
    /// share has no share of a resource that is not metered; another request could be inside its share with all of that
    /// resource and would reclaim it forever, so such a run stays.
    pub(super) fn may_be_taken_for(
        &self,
        candidate: &Candidate<'a>,
        node: Option<&NodeName>,
        key: &str,
    ) -> bool {
        let RequestInPool { pool, account, .. } = self.in_pool;
        if pool.counts_in_share(account, key) {
            return true;
        }
        let would_be_in_share = || self.would_be_in_share(candidate.run());
        let holder = candidate.as_holder();
        self.in_pool
            .may_take_unmetered(holder, node, key, would_be_in_share)
    }

    /// The same for a backfill run of the request.
    pub(super) fn may_be_taken_back_for(
        &self,
        candidate: &Candidate<'a>,
        node: Option<&NodeName>,
        key: &str,
    ) -> bool {
        let stays = self.in_pool.is_in_share() && self.would_be_in_share(candidate.run());
        !stays || self.may_be_taken_for(candidate, node, key)
    }

    fn would_be_in_share(&self, run: &Run) -> bool {
        let pool = self.in_pool.pool;
        let account = pool.account(&run.request.subject);
        account.is_some_and(|account| {
            let going = self.releasing_or_freed(&run.request.subject);
            let used = account
                .used
                .saturating_sub(&going)
                .saturating_sub(run.demand());
            account.policy.is_some() && self.fits_share(account, &run.request, &used)
        })
    }

    /// Whether a request would be inside its share next to `used`, which counts nothing that is released, and to nominated
    /// use.
    pub(super) fn fits_share(&self, account: &Account, request: &Request, used: &Amounts) -> bool {
        let RequestInPool {
            scheduler, pool, ..
        } = self.in_pool;
        let is_gone = |id: &AttemptId| self.removed.contains_key(id) || pool.releasing.contains(id);
        let used = Cow::Borrowed(used);
        let of = (pool, account);
        queue_order::fits_share_beside_nominated(scheduler, of, request, used, is_gone)
    }

    /// Amount of a resource that a subject would hold above its reserved share.
    pub(super) fn excess(&self, subject: &Subject, key: &str) -> u64 {
        let Some(account) = self.in_pool.pool.account(subject) else {
            return 0;
        };
        let freed = self
            .freed_by_subject
            .get(subject)
            .map_or(0, |freed| freed.get(key));
        let releasing = self.releasing_by_subject.get(subject);
        let releasing = releasing.map_or(0, |releasing| releasing.get(key));
        account.above_reserved(key, freed.saturating_add(releasing))
    }

    /// Resources that a subject loses when all removed and releasing runs are gone.
    pub(super) fn releasing_or_freed(&self, subject: &Subject) -> Amounts {
        let mut going = self.freed_by_subject(subject);
        if let Some(releasing) = self.releasing_by_subject.get(subject) {
            going.add(releasing);
        }
        going
    }
}

/// Resources that each subject is releasing in the pool of a request.
fn releasing_by_subject<'a>(in_pool: RequestInPool<'a>) -> BTreeMap<&'a Subject, Amounts> {
    let mut of: BTreeMap<&Subject, Amounts> = BTreeMap::new();
    let RequestInPool {
        scheduler, pool, ..
    } = in_pool;
    for run in pool.releasing.iter().filter_map(|id| scheduler.run(id)) {
        let sum = of.entry(&run.request.subject).or_default();
        sum.add(&run.releases().1);
    }
    of
}

impl Shortage<'_> {
    pub(crate) fn is_none(&self) -> bool {
        self.hosts.is_empty() && self.pool.is_empty() && self.limit.is_empty()
    }

    /// The missing resources on each host that is too full.
    pub(crate) fn on_hosts(&self) -> impl Iterator<Item = (&NodeName, HostResources)> {
        self.hosts.iter().map(|(node, missing)| (node, *missing))
    }

    /// Number of GPUs that are missing on a host.
    pub(crate) fn gpus_on(&self, node: &NodeName) -> u64 {
        let mut hosts = self.on_hosts().filter(|(name, _)| *name == node);
        hosts.next().map_or(0, |(_, missing)| missing.mgpu())
    }

    /// The declared resources of the pool that are short.
    pub(crate) fn of_pool(&self) -> impl Iterator<Item = &str> {
        self.pool.iter().copied()
    }

    /// Whether only host resources are short.
    pub(crate) fn is_only_of_hosts(&self) -> bool {
        self.pool.is_empty() && self.limit.is_empty()
    }
}
