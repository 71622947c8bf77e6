//! Facts that the rules need: use, free resources, and whether a request fits.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId, Subject};

use super::amounts::{
    GPU, JudgedAmounts, JudgedClass, OF_HOSTS, ON_HOSTS, STEP_RUN, less, plus, with_gpus,
};
use super::{Judge, JudgedPolicy, JudgedRequest, JudgedRun};
use crate::PlatformSet;

/// Runs that count as gone.
pub(super) type RemovedRuns = BTreeSet<AttemptId>;

/// Resources reserved for others.
#[derive(Clone, Debug, Default)]
pub(super) struct JudgedReservations {
    pub(super) hosts: BTreeMap<NodeName, JudgedAmounts>,
    pub(super) pool: JudgedAmounts,
    /// GPUs reserved for frozen runs.
    pub(super) gpus: BTreeSet<String>,
}

/// Resources that a run still holds of its pool, depending on whether it counts as gone.
fn left(id: &AttemptId, run: &JudgedRun, gone: &RemovedRuns) -> JudgedAmounts {
    match gone.contains(id) {
        true => run.left(),
        false => run.total(),
    }
}

impl JudgedPolicy {
    /// "A metered key that the policy does not name: reserved 0; except `step_run`, which then does not count."
    pub(super) fn reserved(&self, key: usize) -> Option<u64> {
        let named = self.reserved.contains_key(&key) || self.limit.contains_key(&key);
        match self.reserved.get(&key) {
            Some(reserved) => Some(*reserved),
            None if key == STEP_RUN && !named => None,
            None => Some(0),
        }
    }
}

impl Judge {
    pub(super) fn policy(&self, pool: &PoolName, subject: &Subject) -> Option<&JudgedPolicy> {
        self.pools.get(pool)?.policies.get(subject)
    }

    /// Not in so many words in the law: what runs on when its subject's policy is removed is of the lowest priority that
    /// there is, and of none that is lower still.
    pub(super) fn priority(&self, pool: &PoolName, subject: &Subject) -> u64 {
        self.policy(pool, subject)
            .map_or(0, |policy| policy.priority)
    }

    /// "Declared keys, and detected `gpu`, always. Another detected key only if a policy of the pool names it."
    pub(super) fn is_metered(&self, pool: &PoolName, key: usize) -> bool {
        let pool = &self.pools[pool];
        let mut policies = pool.policies.values();
        let named = policies.any(|p| p.reserved.contains_key(&key) || p.limit.contains_key(&key));
        key == GPU || pool.declared.contains_key(&key) || (key < OF_HOSTS && named)
    }

    pub(super) fn metered(&self, pool: &PoolName) -> impl Iterator<Item = usize> {
        (0..7).filter(|key| self.is_metered(pool, *key))
    }

    pub(super) fn runs_of(
        &self,
        pool: &PoolName,
    ) -> impl Iterator<Item = (&AttemptId, &JudgedRun)> {
        self.runs.iter().filter(move |(_, run)| run.pool == *pool)
    }

    /// Resources granted of a pool without `gone`.
    pub(super) fn used(&self, pool: &PoolName, gone: &RemovedRuns) -> JudgedAmounts {
        let runs = self.runs_of(pool);
        runs.fold(JudgedAmounts::default(), |sum, (id, run)| {
            plus(sum, left(id, run, gone))
        })
    }

    /// Use of a pool by a subject without `gone`.
    pub(super) fn used_by(
        &self,
        pool: &PoolName,
        subject: &Subject,
        gone: &RemovedRuns,
    ) -> JudgedAmounts {
        let runs = self.runs_of(pool);
        let own = runs.filter(|(_, run)| run.ask.subject == *subject);
        own.fold(JudgedAmounts::default(), |sum, (id, run)| {
            plus(sum, left(id, run, gone))
        })
    }

    /// The non-preemptible part of that.
    pub(super) fn firm_use(&self, pool: &PoolName, subject: &Subject) -> JudgedAmounts {
        let own = self
            .runs_of(pool)
            .filter(|(_, run)| run.ask.subject == *subject);
        let firm = own.filter(|(_, run)| !run.ask.preemptible);
        firm.fold(JudgedAmounts::default(), |sum, (_, run)| {
            plus(sum, run.total())
        })
    }

    /// Free resources of a host without `gone`.
    pub(super) fn free_on(&self, node: &NodeName, gone: &RemovedRuns) -> JudgedAmounts {
        let there = self
            .runs
            .iter()
            .filter(|(_, run)| run.holding.contains(node));
        let held = there.fold(JudgedAmounts::default(), |sum, (id, run)| {
            let on_host = match gone.contains(id) {
                true => run.left(),
                false => run.each(),
            };
            plus(sum, on_host)
        });
        less(self.hosts[node].has, held)
    }

    /// "One that, for every metered key, fits wholly in its subject's unused reserved share." For what is not
    /// preemptible "what counts against it is the subject's non-preemptible use".
    pub(super) fn is_in_share(&self, pool: &PoolName, ask: &JudgedRequest) -> bool {
        self.is_in_share_without(pool, ask, &RemovedRuns::new())
    }

    pub(super) fn is_in_share_without(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
    ) -> bool {
        let Some(policy) = self.policy(pool, &ask.subject) else {
            return false;
        };
        // Shares nominated to others of the subject are not available.
        let (used, firm) = self.use_with_promises(pool, ask, gone);
        let used = if ask.preemptible { used } else { firm };
        let asked = ask.total();
        // "A request that fits wholly": what is frozen and kept is part of it.
        let reservations = ask
            .frozen_run
            .as_ref()
            .map(|frozen_run| frozen_run.reservations)
            .unwrap_or_default();
        self.metered(pool).all(|key| {
            let reserved = policy.reserved(key);
            (asked[key] == 0 && reservations[key] == 0)
                || reserved.is_none_or(|reserved| used[key] + asked[key] <= reserved)
        })
    }

    /// The pools in which a request waits: "a subject with policies on several pools waits in all of them".
    pub(super) fn pools_of(&self, ask: &JudgedRequest) -> Vec<PoolName> {
        let named = self.pools.keys();
        let named = named.filter(|pool| ask.pool.as_ref().is_none_or(|only| only == *pool));
        let bound = named.filter(|pool| self.policy(pool, &ask.subject).is_some());
        bound.cloned().collect()
    }

    /// Resources that a nomination keeps: "the free units there and in the pool's other keys that it needs beyond
    /// what those runs hold". For a head that preempts nothing, runs that another nomination awaits do not count.
    pub(super) fn keep(
        &self,
        reservations: &mut JudgedReservations,
        step: &StepId,
        gone: &RemovedRuns,
    ) {
        let nomination = &self.nominations[step];
        let ask = &self.waiting[step];
        let staying = || nomination.awaits.iter().filter(|id| !gone.contains(*id));
        let awaited = || staying().filter_map(|id| self.runs.get(id));
        let of_pool = awaited().filter(|run| run.pool == nomination.pool);
        let held = of_pool.fold(JudgedAmounts::default(), |sum, run| {
            plus(sum, less(run.total(), run.left()))
        });
        reservations.pool = plus(reservations.pool, less(ask.total(), held));
        for node in &nomination.hosts {
            let there = awaited().filter(|run| run.holding.contains(node));
            let held = there.fold(JudgedAmounts::default(), |sum, run| {
                plus(sum, less(run.each(), run.left()))
            });
            let sum = reservations.hosts.entry(node.clone()).or_default();
            let mut missing = less(ask.each, held);
            if let Some(frozen_run) = &ask.frozen_run {
                let awaits = staying().cloned().collect();
                let kept = self.own_gpus_kept(ask, frozen_run, &awaits);
                missing = with_gpus(missing, ask.class, kept);
                reservations.gpus.extend(frozen_run.gpus.iter().cloned());
            }
            *sum = plus(*sum, missing);
        }
    }

    /// Firm promises to others in a pool: "nobody else can take them".
    pub(super) fn firm_promises(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
    ) -> JudgedReservations {
        let mut reservations = JudgedReservations::default();
        for (step, nomination) in &self.nominations {
            if nomination.firm && nomination.pool == *pool && *step != ask.step {
                self.keep(&mut reservations, step, gone);
            }
        }
        reservations
    }

    /// The nominated head of a pool that goes before a request.
    pub(super) fn head_before(&self, pool: &PoolName, ask: &JudgedRequest) -> Option<&StepId> {
        let soft =
            |nomination: &super::JudgedNomination| !nomination.firm && nomination.pool == *pool;
        let head = self
            .nominations
            .iter()
            .find(|(_, nomination)| soft(nomination))?
            .0;
        let before = *head != ask.step && self.goes_before(pool, &self.waiting[head], ask);
        before.then_some(head)
    }

    /// Reservations for requests that go before this one: firm nominations, and that of the head.
    pub(super) fn promised(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
    ) -> JudgedReservations {
        let mut reservations = self.firm_promises(pool, ask, gone);
        if let Some(head) = self.head_before(pool, ask) {
            self.keep(&mut reservations, head, gone);
        }
        reservations
    }

    /// Resources that a request may not take: firm reservations, and if it is not preemptible also those of the head.
    pub(super) fn forbidden(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
    ) -> JudgedReservations {
        let head = self.head_before(pool, ask);
        let about_to_start = head.is_some_and(|head| self.is_about_to_start(head));
        let is_short = gone.is_empty() && head.is_some_and(|head| self.ends_before(head, ask));
        match (ask.preemptible || is_short) && !about_to_start {
            true => self.firm_promises(pool, ask, gone),
            false => self.promised(pool, ask, gone),
        }
    }

    /// "A request whose own limit ends before the head's earliest start": at the last end, by time limits, of the runs that
    /// the head awaits.
    pub(super) fn ends_before(&self, head: &StepId, ask: &JudgedRequest) -> bool {
        let start = self.latest_end_of(&self.nominations[head].awaits);
        let limit = ask.time_limit.filter(|_| ask.frozen_run.is_none());
        limit
            .zip(start)
            .is_some_and(|(limit, start)| self.now + limit <= start)
    }

    /// When the last of several runs ends at the latest.
    pub(super) fn latest_end_of(&self, runs: &BTreeSet<AttemptId>) -> Option<u64> {
        let ends = runs.iter().map(|id| self.latest_end(&self.runs[id]));
        ends.collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    /// When a run ends at the latest; `None` if that is not known, or if it should have ended by now.
    pub(super) fn latest_end(&self, run: &JudgedRun) -> Option<u64> {
        let end = run.ask.time_limit.map(|limit| run.start_time + limit);
        end.filter(|end| *end > self.now)
    }

    /// Not in so many words in the law: what is granted on the units of a head that waits for nothing but releases under
    /// way would be taken back at once, and the head would wait for that.
    pub(super) fn is_about_to_start(&self, head: &StepId) -> bool {
        let awaits = &self.nominations[head].awaits;
        let mut awaited = awaits.iter().filter_map(|id| self.runs.get(id));
        !awaits.is_empty() && awaited.all(|run| run.stopping)
    }

    /// Whether a request fits on `hosts` without `gone` and beyond `reservations`.
    pub(super) fn fits(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        hosts: &[NodeName],
        gone: &RemovedRuns,
        reservations: &JudgedReservations,
    ) -> bool {
        hosts
            .iter()
            .all(|node| self.fits_on(node, ask, gone, reservations))
            && self.fits_in_pool(pool, ask, gone, reservations)
            && self.is_within_policy(pool, ask, gone)
    }

    pub(super) fn fits_on(
        &self,
        node: &NodeName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
        reservations: &JudgedReservations,
    ) -> bool {
        self.short_on(node, ask, gone, reservations)
            .next()
            .is_none()
            && self.hosts[node].schedulable
            && self.may_borrow_on(&self.hosts[node].pool, node, ask)
    }

    /// The keys of a host, GPUs by their class, of which a request lacks some there.
    pub(super) fn short_on(
        &self,
        node: &NodeName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
        reservations: &JudgedReservations,
    ) -> impl Iterator<Item = usize> {
        let own_taken = self.own_gpus_taken(node, ask, gone, reservations);
        let reservations = reservations.hosts.get(node).copied().unwrap_or_default();
        let free = less(self.free_on(node, gone), reservations);
        let (each, own) = (ask.each, ask.class.key());
        let keys = ON_HOSTS.into_iter();
        keys.filter(move |key| each[*key] > free[*key] || (*key == own && own_taken))
    }

    pub(super) fn fits_in_pool(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
        reservations: &JudgedReservations,
    ) -> bool {
        self.short_in_pool(pool, ask, gone, reservations)
            .next()
            .is_none()
    }

    pub(super) fn short_in_pool(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
        reservations: &JudgedReservations,
    ) -> impl Iterator<Item = usize> {
        let (used, asked) = (plus(self.used(pool, gone), reservations.pool), ask.total());
        let declared = self.pools[pool].declared.iter();
        declared
            .filter(move |(key, declared)| {
                asked[**key] > 0 && used[**key] + asked[**key] > **declared
            })
            .map(|(key, _)| *key)
    }

    /// "A non-preemptible request is granted only inside `reserved`"; "while the subject stays within `limit`".
    pub(super) fn is_within_policy(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
    ) -> bool {
        self.keys_over_limit(pool, ask, gone).is_empty()
            && (ask.preemptible || self.is_in_share_without(pool, ask, gone))
    }

    /// Resources of which a subject would exceed its limit.
    pub(super) fn keys_over_limit(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
    ) -> Vec<usize> {
        let used = self.used_by(pool, &ask.subject, gone);
        self.over_limit_on(pool, ask, used)
    }

    fn over_limit_on(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        used: JudgedAmounts,
    ) -> Vec<usize> {
        let Some(policy) = self.policy(pool, &ask.subject) else {
            return Vec::new();
        };
        let asked = ask.total();
        let keys = policy.limit.iter();
        keys.filter(|(key, _)| self.is_metered(pool, **key))
            .filter(|(key, limit)| asked[**key] > 0 && used[**key] + asked[**key] > **limit)
            .map(|(key, _)| *key)
            .collect()
    }

    /// All choices of distinct schedulable hosts of a pool that could hold a request when empty.
    pub(super) fn choices(&self, pool: &PoolName, ask: &JudgedRequest) -> Vec<Vec<NodeName>> {
        let own = self.own_choice(pool, ask);
        let hosts = self.hosts.iter().filter(|(node, host)| {
            let ours = own.as_ref().is_none_or(|own| own.contains(node));
            let large = ON_HOSTS.iter().all(|key| host.has[*key] >= ask.each[*key]);
            let lets = self.may_borrow_on(pool, node, ask);
            ours && host.pool == *pool && host.schedulable && large && lets
        });
        let mut choices: Vec<Vec<NodeName>> = Vec::from([Vec::new()]);
        for (node, _) in hosts {
            let mut with: Vec<_> = choices.clone();
            with.iter_mut().for_each(|choice| choice.push(node.clone()));
            choices.extend(with);
        }
        choices.retain(|choice| choice.len() as u64 == ask.nodes);
        choices.retain(|choice| self.is_of_asked_platform(ask, choice));
        choices.retain(|choice| ask.one_rack != Some(true) || self.is_of_one_rack(choice));
        choices
    }

    /// "All its hosts are in one domain of the level." One host is near to itself, whether or not it is in a rack.
    pub(super) fn is_of_one_rack(&self, hosts: &[NodeName]) -> bool {
        let mut racks = hosts.iter().map(|node| self.hosts[node].rack);
        let first = racks.next().flatten();
        hosts.len() == 1 || (first.is_some() && racks.all(|rack| rack == first))
    }

    /// "A gang asks for its resources on each of N distinct hosts of one pool and platform."
    pub(super) fn is_of_asked_platform(&self, ask: &JudgedRequest, hosts: &[NodeName]) -> bool {
        let of = |node: &NodeName| self.platforms_for(ask, node);
        let asked = |one: &&PlatformName| ask.platforms.is_empty() || ask.platforms.contains(*one);
        let matters = ask.nodes > 1 || !ask.platforms.is_empty();
        let first = of(&hosts[0]);
        let mut candidates = first.iter().filter(asked);
        let one = candidates.any(|one| hosts.iter().all(|node| of(node).contains(one)));
        one || !matters
    }

    /// The platforms of a host that count for a request: those of its GPUs of the class that it asks for; of all GPUs if
    /// it asks for none.
    pub(super) fn platforms_for(&self, ask: &JudgedRequest, node: &NodeName) -> PlatformSet {
        let host = &self.hosts[node];
        if host.has[GPU] == 0 {
            return host.platforms.clone();
        }
        let classes = JudgedClass::ALL.into_iter();
        let classes = classes.filter(|class| host.has[class.key()] > 0);
        let counts = classes.filter(|class| ask.each[GPU] == 0 || *class == ask.class);
        counts
            .flat_map(|class| class.platforms(&host.platforms))
            .collect()
    }

    /// Whether a request could start now on free resources.
    pub(super) fn could_start(&self, pool: &PoolName, ask: &JudgedRequest) -> bool {
        self.could_start_without(pool, ask, &RemovedRuns::new())
    }

    pub(super) fn could_start_without(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
    ) -> bool {
        let reservations = self.forbidden(pool, ask, gone);
        let promised = self
            .nominations
            .get(&ask.step)
            .filter(|nomination| nomination.firm);
        let mut choices = match promised {
            // "Granted when the agent has verified that the victims are gone."
            Some(nomination) if nomination.pool == *pool && nomination.awaits.is_empty() => {
                Vec::from([nomination.hosts.clone()])
            }
            // "It does not move elsewhere meanwhile."
            Some(_) => Vec::new(),
            None => self.choices(pool, ask),
        };
        choices.retain(|hosts| self.fits(pool, ask, hosts, gone, &reservations));
        !choices.is_empty() && self.leaves_promises_possible(pool, ask, gone)
    }

    /// "It is granted when the victims are gone": whoever has taken victims can still start when another of its subject
    /// has been granted before it.
    pub(super) fn leaves_promises_possible(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
    ) -> bool {
        let Some(policy) = self.policy(pool, &ask.subject) else {
            return true;
        };
        let (_, firm) = self.use_with_promises(pool, ask, gone);
        let asked = ask.total();
        let mut keys = self.metered(pool);
        let reserved = ask.preemptible
            || keys.all(|k| {
                let reserved = policy.reserved(k);
                asked[k] == 0 || reserved.is_none_or(|r| firm[k] + asked[k] <= r)
            });
        reserved && self.over_limit_beside_promises(pool, ask, gone).is_empty()
    }

    /// The resources of which its subject would exceed its limit, with firm nominations of the subject.
    pub(super) fn over_limit_beside_promises(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
    ) -> Vec<usize> {
        let (used, _) = self.use_with_promises(pool, ask, gone);
        self.over_limit_on(pool, ask, used)
    }

    /// Use of its subject, in all and non-preemptible, when its firmly nominated requests have started.
    fn use_with_promises(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
    ) -> (JudgedAmounts, JudgedAmounts) {
        let (mut used, mut firm) = (
            self.used_by(pool, &ask.subject, gone),
            self.firm_use(pool, &ask.subject),
        );
        for (step, nomination) in &self.nominations {
            let other = &self.waiting[step];
            let counts = nomination.firm && nomination.pool == *pool && *step != ask.step;
            if counts && other.subject == ask.subject {
                let awaited = nomination.awaits.iter().filter(|id| !gone.contains(*id));
                let own = awaited.filter_map(|id| self.runs.get(id));
                let own = own.filter(|run| run.ask.subject == ask.subject && run.pool == *pool);
                let back = own.fold(JudgedAmounts::default(), |sum, run| {
                    plus(sum, less(run.total(), run.left()))
                });
                // Resources of awaited runs beyond the need are free for no other before the runs are gone.
                used = plus(used, less(other.total(), back));
                if !other.preemptible {
                    firm = plus(firm, other.total());
                }
            }
        }
        (used, firm)
    }
}
