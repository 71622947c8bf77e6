//! A pool as it would be if some runs were gone: what a request would still lack, and who would be within its share.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;

use sluice_common::amount::{Amounts, GPU};
use sluice_common::id::{AttemptId, NodeName, Subject};

use crate::model::account::Account;
use crate::model::frozen::GpuUuids;
use crate::model::nomination::Nomination;
use crate::model::queue_order;
use crate::model::request::{Request, ResourcesByHost, Run};
use crate::model::reservations::Reservations;
use crate::model::resources::HostResources;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::candidates::{Candidate, HeadCache};

/// What is supposed.
#[derive(Clone, Debug)]
pub(crate) struct WhatIf<'a> {
    in_pool: RequestInPool<'a>,
    reservations: Cow<'a, Reservations>,
    head: Option<HeadNomination<'a>>,
    removed: BTreeMap<&'a AttemptId, ReleasedRun<'a>>,
    freed_on: ResourcesByHost,
    freed: Amounts,
    freed_by_subject: BTreeMap<&'a Subject, Amounts>,
    /// What is being stopped of a subject and not supposed to be gone: asked of each run that could go, so it is kept as a sum.
    releasing_by_subject: BTreeMap<&'a Subject, Amounts>,
}

/// A head that goes before the request and waits for runs to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadNomination<'a> {
    /// What is kept for others than it.
    pub(crate) firm: &'a Reservations,
    pub(crate) request: &'a Request,
    pub(crate) nomination: &'a Nomination,
}

/// What a run gives back.
#[derive(Clone, Debug)]
struct ReleasedRun<'a> {
    run: &'a Run,
    each: HostResources,
    demand: Amounts,
}

/// What a request lacks; nothing where it could start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shortage<'a> {
    /// On each of its hosts that is too full.
    hosts: Vec<(NodeName, HostResources)>,
    /// Declared keys of the pool.
    pool: Vec<&'a str>,
    /// Keys of which its subject would be over its limit.
    limit: Vec<&'a str>,
    /// The GPUs that must be free, where it waits for its own and enough others are free.
    own_gpus: Option<&'a GpuUuids>,
}

impl<'a> WhatIf<'a> {
    pub(crate) fn new(in_pool: RequestInPool<'a>, reservations: &'a Reservations) -> Self {
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

    /// The same, where what a head awaits may go for the request too, as far as the head does not need it.
    pub(crate) fn sharing_with_head(
        in_pool: RequestInPool<'a>,
        reservations: &'a Reservations,
        head: HeadNomination<'a>,
    ) -> Self {
        Self {
            head: Some(head),
            ..Self::new(in_pool, reservations)
        }
    }

    /// The head awaits a run that goes no longer: what it needs of that is kept for it.
    fn update_head_reservations(&mut self, id: &AttemptId) {
        let awaits = |head: &HeadNomination<'_>| head.nomination.awaits.contains(id);
        let Some(head) = self.head.filter(awaits) else {
            return;
        };
        let mut rest = head.nomination.clone();
        rest.awaits.retain(|id| !self.removed.contains_key(id));
        let mut reservations = head.firm.clone();
        reservations.add(self.in_pool.scheduler, head.request, &rest);
        self.reservations = Cow::Owned(reservations);
    }

    /// Supposes that a run has gone, or that one which is to be frozen is.
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

    /// The same, where a run stays after all.
    pub(crate) fn without(&self, id: &AttemptId) -> Self {
        let mut without = self.clone();
        without.restore(id);
        without
    }

    /// Supposes that it stays after all.
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

    /// Whether what a run holds comes to those for whom units are kept.
    pub(crate) fn is_reserved_for_others(&self, id: &AttemptId) -> bool {
        let reservations = self.head.map_or(&*self.reservations, |head| head.firm);
        reservations.awaited.contains(id)
    }

    pub(crate) fn is_removed(&self, id: &AttemptId) -> bool {
        self.removed.contains_key(id)
    }

    /// The hosts of which something is supposed to be given back.
    pub(crate) fn freed_hosts(&self) -> impl Iterator<Item = &NodeName> {
        self.freed_on.keys()
    }

    /// Whether the request would fit on a host if `more` came free there, as far as the host goes.
    pub(crate) fn could_cover(&self, node: &NodeName, more: HostResources) -> bool {
        let RequestInPool {
            pool,
            request,
            platform,
            ..
        } = self.in_pool;
        let freed = self.freed_on.get(node).copied().unwrap_or_default();
        pool.hosts().get(node).is_some_and(|host| {
            let free = host.free_for(platform, freed.plus(more));
            free.less(self.reservations.unavailable_on(node, host, platform))
                .cover(request.each)
        })
    }

    /// Whether what the request lacks is of hosts alone, and any GPUs of theirs will do.
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

    /// What the request would lack on these hosts.
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
                    .all(|node| self.missing_count_on(node).gpus() == 0)
            }),
        }
    }

    /// What it lacks still when a run is supposed to be gone too.
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

    /// Whether the request, which fitted on these hosts without a run, would with it.
    pub(crate) fn fits_despite(&self, hosts: &[NodeName], run: &Run) -> bool {
        let mut here = hosts.iter().filter(|node| run.holding.contains(*node));
        here.all(|node| self.missing_on(node) == HostResources::default())
            && self.short_in_pool().is_empty()
            && self.keys_short_of_limit().is_empty()
    }

    fn missing_on(&self, node: &NodeName) -> HostResources {
        let counted = self.missing_count_on(node);
        let gone = |id: &AttemptId| self.removed.contains_key(id);
        let taken = self.in_pool.own_gpus_taken(node, &self.reservations, gone);
        counted.with_gpus(counted.gpus().max(taken))
    }

    /// What is missing by number, whichever GPUs it is that are free.
    pub(crate) fn missing_count_on(&self, node: &NodeName) -> HostResources {
        let RequestInPool {
            pool,
            request,
            platform,
            ..
        } = self.in_pool;
        let Some(host) = pool.hosts().get(node) else {
            return request.each;
        };
        let freed = self.freed_on.get(node).copied().unwrap_or_default();
        // Of a host that shrank under its runs, what they give back is not all there.
        let free = host.free_for(platform, freed);
        request
            .each
            .less(free.less(self.reservations.unavailable_on(node, host, platform)))
    }

    fn short_in_pool(&self) -> Vec<&'a str> {
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

    /// Whether a run may go for a key. One that waits inside its share has none of a key that does not count in it, so
    /// another could be inside its share just as well while it holds all of the key, and would take it back for ever:
    /// such a run stays.
    fn may_be_taken_for(&self, run: &Run, key: &str) -> bool {
        let RequestInPool { pool, account, .. } = self.in_pool;
        let counts = pool.is_metered(key) && account.reserved(key).is_some();
        counts || !self.in_pool.is_in_share() || !self.would_be_in_share(run)
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
            let used = self.with_nominated(account, &run.request, used);
            account.policy.is_some() && queue_order::fits_share(pool, account, &run.request, &used)
        })
    }

    /// What counts against a share when all are gone that are supposed to be, with what is promised of it by then.
    fn with_nominated(&self, account: &Account, request: &Request, used: Amounts) -> Amounts {
        let RequestInPool {
            scheduler, pool, ..
        } = self.in_pool;
        let is_gone = |id: &AttemptId| self.removed.contains_key(id) || pool.releasing.contains(id);
        let mut used = Cow::Owned(used);
        scheduler.add_nominated(pool, account, request, &mut used, is_gone);
        used.into_owned()
    }

    /// How much of a key a subject would hold beyond its reserved share.
    fn excess(&self, subject: &Subject, key: &str) -> u64 {
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

    /// What a subject has no more when all are gone that are supposed to be or are being stopped.
    fn releasing_or_freed(&self, subject: &Subject) -> Amounts {
        let mut going = self.freed_by_subject(subject);
        if let Some(releasing) = self.releasing_by_subject.get(subject) {
            going.add(releasing);
        }
        going
    }

    /// Whether a run that would be gone, or a request that waits for one of their subjects, would be inside its
    /// reserved share once the waiter runs: it would take the units back at once.
    pub(crate) fn would_be_taken_back(
        &self,
        victims: &[&'a AttemptId],
        heads: &HeadCache<'a>,
    ) -> bool {
        let RequestInPool {
            pool,
            request: waiter,
            ..
        } = self.in_pool;
        let runs = victims.iter().filter_map(|id| self.removed.get(*id));
        let runs = runs.map(|given| given.run);
        let subjects: BTreeSet<&Subject> = runs.clone().map(|run| &run.request.subject).collect();
        let again = runs.map(|run| &run.request);
        let waiting: Vec<Rc<[&Request]>> = subjects
            .into_iter()
            .map(|subject| heads.of_subject(self.in_pool, subject))
            .collect();
        let waiting = waiting.iter().flat_map(|heads| heads.iter().copied());
        again.chain(waiting).any(|request| {
            let Some(account) = pool
                .account(&request.subject)
                .filter(|a| a.policy.is_some())
            else {
                return false;
            };
            // What is frozen and goes waits no longer to be resumed.
            let resumes = request.resumes.as_ref();
            let goes = resumes.is_some_and(|it| victims.contains(&&it.attempt));
            if request.step == waiter.step || goes {
                return false;
            }
            let mut used = if request.preemptible {
                account
                    .used
                    .saturating_sub(&self.releasing_or_freed(&request.subject))
            } else {
                account.non_preemptible.clone()
            };
            if request.preemptible && request.subject == waiter.subject {
                used.add(&waiter.demand);
            }
            let used = self.with_nominated(account, request, used);
            queue_order::fits_share(pool, account, request, &used)
        })
    }
}

/// What is being stopped of each subject in the pool of a request.
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

    /// Whether nothing is short but what hosts have.
    pub(crate) fn is_only_of_hosts(&self) -> bool {
        self.pool.is_empty() && self.limit.is_empty()
    }

    /// Whether the loss of a run would help, and its subject (if it is not the waiter's) holds more than its share of
    /// what it would help with.
    pub(crate) fn is_helped_by_excess(
        &self,
        what_if: &WhatIf<'_>,
        candidate: &Candidate<'_>,
    ) -> bool {
        let Candidate { id, run, .. } = candidate;
        let subject = &run.request.subject;
        let keys = self.keys(what_if, id, run);
        let mut keys = keys.filter(|key| !candidate.in_share.contains(key));
        keys.any(|key| what_if.excess(subject, key) > 0 && what_if.may_be_taken_for(run, key))
    }

    /// Whether the loss of a run that was granted around the waiter would help.
    pub(crate) fn is_helped_by_backfill(
        &self,
        what_if: &WhatIf<'_>,
        id: &AttemptId,
        run: &Run,
    ) -> bool {
        let own = run.request.subject == what_if.in_pool.request.subject;
        let mut keys = self.keys(what_if, id, run);
        keys.any(|key| what_if.may_be_taken_for(run, key)) || (own && self.reduces_limit_use(run))
    }

    /// Whether the loss of a run would help: of the waiter's own subject, or of another's.
    pub(crate) fn is_helped_by(
        &self,
        what_if: &WhatIf<'_>,
        own: bool,
        id: &AttemptId,
        run: &Run,
    ) -> bool {
        self.keys(what_if, id, run).next().is_some() || (own && self.reduces_limit_use(run))
    }

    fn reduces_limit_use(&self, run: &Run) -> bool {
        let mut limit = self.limit.iter();
        limit.any(|key| run.demand().get(key) > 0)
    }

    /// The keys that are short and that a run holds, on the hosts where they are short or of the pool.
    fn keys<'b>(
        &'b self,
        what_if: &'b WhatIf<'_>,
        id: &'b AttemptId,
        run: &'b Run,
    ) -> impl Iterator<Item = &'b str> {
        let here = self
            .hosts
            .iter()
            .filter(|(node, _)| run.holding.contains(node));
        let of_hosts = here.flat_map(move |(node, missing)| {
            let each = what_if.in_pool.released_for(node, id, run.each());
            let missing = missing.iter().filter(|(_, missing)| *missing > 0);
            missing
                .map(|(key, _)| key)
                .filter(move |key| *key != GPU || self.wants_gpus_of(run, node))
                .filter(move |key| each.get(key) > 0)
        });
        let of_pool = self.pool.iter().copied();
        of_hosts.chain(of_pool.filter(|key| run.demand().get(key) > 0))
    }

    /// Whether GPUs of a run would do: any, or its own of what waits for these.
    fn wants_gpus_of(&self, run: &Run, node: &NodeName) -> bool {
        let held = run.gpus_on(node);
        self.own_gpus
            .is_none_or(|own| held.is_some_and(|held| !own.is_disjoint(held)))
    }
}
