//! One pool: its terms, accounts and hosts, and what is granted of it.

mod fair_use;
mod hardware_index;
pub(crate) mod host_set;
pub(crate) mod host_table;
mod hosts;
mod platforms;
pub(crate) mod policies;
mod tally;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::{Amounts, MGPU, ResourceKey, STEP_RUN};
use sluice_common::id::{AttemptId, NodeName, PlatformName, StepId, Subject};
use sluice_common::pool::{FairShare, HostPlacement, PolicySpec, ResourceTable};
use sluice_common::priority_preemption::PriorityPreemption;
use sluice_common::time::{Span, Time};

use crate::model::account::Account;
use crate::model::cached::Cached;
use crate::model::fair_share::FairUse;
use crate::model::fragmentation::DemandProfile;
use crate::model::host::HostIndex;
use crate::model::loss_budget::LostWork;
use crate::model::nomination::Nomination;
use crate::model::pool::host_set::HostSet;
use crate::model::pool::host_table::HostTable;
use crate::model::queue::Queue;
use crate::model::request::{Request, Run};
use crate::model::reservations::PoolReservations;
use crate::model::resources::{HOST_KEYS, HostResources};

/// Terms of a pool that an admin sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolTerms {
    /// Capacity that the pool declares, by resource. Resources that are not declared are bounded by what hosts
    /// report.
    pub declared: ResourceTable,
    /// Time after its start for which a run is protected from priority preemption and reclaim.
    pub min_runtime: Span,
    /// Whether and how far runs are preempted by priority.
    pub priority_preemption: PriorityPreemption,
    /// Order of subjects of equal priority by what they borrowed; by submission if absent.
    pub fair_share: Option<FairShare>,
    /// Whether the users of a subject share fairly too.
    pub fair_users: bool,
    /// Platform of requests that name none; any if absent.
    pub default_platform: Option<PlatformName>,
    /// Platforms without hosts for which requests may wait.
    pub awaited_platforms: BTreeSet<PlatformName>,
    /// Whether non-preemptible runs may hold CPU, memory and storage of hosts with GPUs beyond what their GPUs carry.
    pub open_gpu_hosts: bool,
    /// Choice of the host among those with room.
    pub placement: HostPlacement,
    /// Number of the record that created the pool; 0 if unknown.
    pub made: u64,
}

/// A pool as the scheduler sees it: its hosts, and for each subject its use, its policy and its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    terms: PoolTerms,
    /// All that is granted.
    used: Amounts,
    accounts: BTreeMap<Subject, Account>,
    /// Decayed use by subject, if the pool has fair share. Outlives accounts.
    fair_uses: BTreeMap<Subject, FairUse>,
    /// The policy for subjects without one of their own, stored under the name `*`.
    everyone: Option<(Subject, PolicySpec)>,
    hosts: HostTable,
    /// Hosts that do not know their GPUs yet.
    gpus_unknown: BTreeSet<NodeName>,
    /// Sum of what all hosts have.
    detected: HostResources,
    /// All hosts, by their hardware.
    all: HostSet,
    /// The hosts of each domain of the topology, by the path of the domain.
    pub(super) domains: BTreeMap<Vec<String>, HostSet>,
    /// An empty index, for hardware that no host has.
    pub(super) empty: HostIndex,
    /// Requests with a firm nomination here.
    pub(crate) firm_nominations: BTreeSet<StepId>,
    /// The head with a soft nomination.
    pub(crate) soft_nomination: Option<StepId>,
    /// Backfill runs, by the waiting request that they went past.
    pub(crate) backfill: BTreeMap<StepId, BTreeSet<AttemptId>>,
    /// Runs that are stopping or freezing.
    pub(crate) releasing: BTreeSet<AttemptId>,
    /// Resources that the runs need for each of their GPUs.
    pub(crate) demand_profile: DemandProfile,
    /// Number of policies that name a resource.
    named: BTreeMap<ResourceKey, usize>,
    /// Runs by start time.
    pub(crate) by_start: BTreeMap<Time, BTreeSet<AttemptId>>,
    /// Runs with a latest end, by that.
    pub(crate) by_end: BTreeMap<Time, BTreeSet<AttemptId>>,
    /// Runs that are protected from priority because it stopped their steps before, by the end of that.
    pub(crate) evicted: BTreeMap<Time, BTreeSet<AttemptId>>,
    /// Work lost by priority, as far as it counts against the budget for that.
    pub(super) lost_work: LostWork,
    /// Reservations of the nominations here. Cleared by all that changes an account, a host or a nomination.
    pub(crate) reservations: Cached<PoolReservations>,
    /// Number of hosts, by how many more runs they may hold.
    free_steps: BTreeMap<u64, usize>,
}

impl Pool {
    pub(crate) fn terms(&self) -> &PoolTerms {
        &self.terms
    }

    pub(crate) fn set_terms(&mut self, terms: PoolTerms) {
        self.terms = terms;
        self.clear_cached();
    }

    /// Forgets what is cached of the pool and all accounts.
    pub(super) fn clear_cached(&mut self) {
        self.reservations.clear();
        let accounts = self.accounts.values_mut();
        accounts.for_each(Account::clear_cached);
    }

    /// Forgets what is cached of the pool and an account, because one of its nominations changed.
    pub(crate) fn clear_cached_of(&mut self, subject: &Subject) {
        self.known_account_mut(subject);
    }

    /// The same because a run changes.
    pub(crate) fn clear_cached_of_run(&mut self, subject: &Subject, attempt: &AttemptId) {
        let account = self.known_account_mut(subject);
        if let Some(run) = account.and_then(|account| account.runs.get_mut(attempt)) {
            run.clear();
        }
    }

    /// The policy of a subject: its own, or else the one for everyone.
    pub fn policy(&self, subject: &Subject) -> Option<&PolicySpec> {
        let own = self.own_policy(subject);
        own.or(self.everyone.as_ref().map(|(_, policy)| policy))
    }

    /// The subject's own policy.
    pub(crate) fn own_policy(&self, subject: &Subject) -> Option<&PolicySpec> {
        let account = self.accounts.get(subject).filter(|it| it.own)?;
        account.policy.as_ref()
    }

    /// All policies that an admin defined, by subject.
    pub(crate) fn defined_policies(&self) -> impl Iterator<Item = (&Subject, &PolicySpec)> {
        let everyone = self.everyone.iter();
        let everyone = everyone.map(|(subject, policy)| (subject, policy));
        let own = self.accounts.iter().filter(|(_, account)| account.own);
        let own = own.filter_map(|(subject, it)| Some((subject, it.policy.as_ref()?)));
        everyone.chain(own)
    }

    /// The policy that an admin defined for exactly this subject; `*` is the one for everyone.
    pub(crate) fn defined_policy(&self, subject: &Subject) -> Option<(&Subject, &PolicySpec)> {
        if subject.is_everyone() {
            return self
                .everyone
                .as_ref()
                .map(|(subject, policy)| (subject, policy));
        }
        let (subject, account) = self.accounts.get_key_value(subject)?;
        let own = account.policy.as_ref().filter(|_| account.own);
        Some((subject, own?))
    }

    /// All policies in force: the defined ones, and the one for everyone for each subject with an account that uses
    /// it.
    pub fn policies(&self) -> impl Iterator<Item = (&Subject, &PolicySpec)> {
        let default_policy = self.accounts.iter().filter(|(_, account)| !account.own);
        let default_policy =
            default_policy.filter_map(|(subject, it)| Some((subject, it.policy.as_ref()?)));
        self.defined_policies().chain(default_policy)
    }

    /// Use of a subject, and the non-preemptible part of it.
    pub fn used_by(&self, subject: &Subject) -> Option<(&Amounts, &Amounts)> {
        let account = self.accounts.get(subject)?;
        Some((&account.used, &account.non_preemptible))
    }

    /// Amounts that the runs of the pool hold.
    pub fn used(&self) -> &Amounts {
        &self.used
    }

    /// Number of requests that wait here.
    pub fn waiting(&self) -> usize {
        self.accounts
            .values()
            .map(|account| account.queue.len())
            .sum()
    }

    /// Sum of what all waiting requests ask for.
    pub fn asked(&self) -> Amounts {
        let mut sum = Amounts::new();
        for account in self.accounts.values() {
            sum.add(account.queue.asked());
        }
        sum
    }

    /// Number of requests of a subject that wait here.
    pub fn waiting_for(&self, subject: &Subject) -> usize {
        self.account(subject)
            .map_or(0, |account| account.queue.len())
    }

    /// Number of runs of a subject that hold resources here.
    pub fn running_for(&self, subject: &Subject) -> usize {
        self.account(subject)
            .map_or(0, |account| account.runs.len())
    }

    /// The waiting request that was submitted first.
    pub fn oldest(&self) -> Option<&StepId> {
        let oldest = self
            .accounts
            .values()
            .filter_map(|account| account.queue.oldest());
        oldest.min().map(|(_, step)| step)
    }

    /// Number of runs that hold resources here.
    pub fn running(&self) -> usize {
        self.accounts
            .values()
            .map(|account| account.runs.len())
            .sum()
    }

    /// The head with a nomination for which nothing was preempted.
    pub fn soft_nomination(&self) -> Option<&StepId> {
        self.soft_nomination.as_ref()
    }

    /// All hosts of the pool.
    pub(crate) fn hosts(&self) -> &HostTable {
        &self.hosts
    }

    pub(crate) fn accounts(&self) -> &BTreeMap<Subject, Account> {
        &self.accounts
    }

    pub(crate) fn account(&self, subject: &Subject) -> Option<&Account> {
        self.accounts.get(subject)
    }

    /// Capacity of a resource: the declared amount, but no more than the hosts have; or what the hosts have. `None`
    /// means unbounded.
    pub fn capacity(&self, key: &str) -> Option<u64> {
        let detected = self.detected(key);
        match (self.terms.declared.get(key), detected) {
            (Some(declared), Some(detected)) if !self.hosts.is_empty() => {
                Some((*declared).min(detected))
            }
            (Some(declared), _) => Some(*declared),
            (None, Some(_)) if key != MGPU => None,
            (None, Some(detected)) => Some(detected),
            (None, None) if key == STEP_RUN => None,
            (None, None) => Some(0),
        }
    }

    /// Sum over the hosts of a resource that they report.
    pub fn detected(&self, key: &str) -> Option<u64> {
        self.detected
            .iter()
            .find(|(host_key, _)| *host_key == key && HOST_KEYS.contains(&key))
            .map(|(_, n)| n)
    }

    /// Declared amount of a resource.
    pub fn declared(&self, key: &str) -> Option<u64> {
        self.terms.declared.get(key).copied()
    }

    /// Whether policies and the pool meter a resource: declared resources and GPUs always, other resources of hosts
    /// if a policy names them.
    pub fn is_metered(&self, key: &str) -> bool {
        key == MGPU
            || self.terms.declared.contains_key(key)
            || (HOST_KEYS.contains(&key) && self.named.contains_key(key))
    }

    /// Whether a resource counts in the reserved share of a subject.
    pub(crate) fn counts_in_share(&self, account: &Account, key: &str) -> bool {
        self.is_metered(key) && account.reserved(key).is_some()
    }

    /// Whether a request asks for anything that counts in the reserved share of a subject.
    pub(crate) fn asks_for_what_counts(&self, account: &Account, request: &Request) -> bool {
        let mut keys = request.demand.iter().map(|(key, _)| key.as_str());
        keys.any(|key| self.counts_in_share(account, key))
    }

    /// Whether a subject holds more than its reserved share of any resource.
    pub(crate) fn holds_excess(&self, account: &Account) -> bool {
        self.excess(account).next().is_some()
    }

    /// Resources of which a subject holds more than its reserved share, with the used and reserved amounts.
    pub(crate) fn excess<'a>(
        &self,
        account: &'a Account,
    ) -> impl Iterator<Item = (&'a str, u64, u64)> + use<'a> {
        let keys = account.used.iter().map(|(key, used)| (key.as_str(), used));
        let excess = keys.filter(|(key, _)| account.above_reserved(key, 0) > 0);
        excess.map(|(key, used)| (key, used, account.reserved(key).unwrap_or(0)))
    }

    /// The account of a subject, opened if there is none.
    fn account_mut(&mut self, subject: &Subject) -> &mut Account {
        self.reservations.clear();
        let default_policy = self.default_policy();
        let by_user = self.terms.fair_users;
        let account = self.accounts.entry(subject.clone());
        let account = account.or_insert_with(|| Account {
            policy: default_policy,
            queue: Queue::new(by_user),
            ..Account::default()
        });
        account.victims.clear();
        account
    }

    /// The account of a subject, if there is one.
    fn known_account_mut(&mut self, subject: &Subject) -> Option<&mut Account> {
        self.reservations.clear();
        let account = self.accounts.get_mut(subject)?;
        account.victims.clear();
        Some(account)
    }

    /// Rebuilds the queue of a subject.
    pub(crate) fn rebuild_queue<'a>(
        &mut self,
        subject: &Subject,
        waiting: impl Iterator<Item = &'a Request>,
        is_nominated: impl Fn(&StepId) -> bool,
    ) {
        let by_user = self.terms.fair_users;
        let account = self.account_mut(subject);
        account.queue = Queue::new(by_user);
        if account.policy.is_some() {
            // In their order each is the last of its lists.
            let mut waiting: Vec<&Request> = waiting.collect();
            waiting.sort_unstable_by_key(|request| request.place);
            for request in waiting {
                account.queue.insert(request);
                if is_nominated(&request.step) {
                    account.queue.set_nominated(request.place);
                }
            }
        }
        self.drop_if_empty(subject);
    }

    fn drop_if_empty(&mut self, subject: &Subject) {
        if self.accounts.get(subject).is_some_and(Account::is_empty) {
            self.accounts.remove(subject);
        }
    }

    /// Adds a request. The subject must have a policy here.
    pub(crate) fn enqueue(&mut self, request: &Request) {
        self.account_mut(&request.subject).queue.insert(request);
    }

    pub(crate) fn dequeue(&mut self, request: &Request) {
        if let Some(account) = self.known_account_mut(&request.subject) {
            account.queue.remove(request);
        }
        self.drop_if_empty(&request.subject);
    }

    pub(crate) fn set_nominated(&mut self, request: &Request) {
        if let Some(account) = self.known_account_mut(&request.subject) {
            account.queue.set_nominated(request.place);
        }
    }

    pub(crate) fn unset_nominated(&mut self, request: &Request) {
        if let Some(account) = self.known_account_mut(&request.subject) {
            account.queue.unset_nominated(request.place);
        }
    }

    /// Records a nomination; returns the soft nomination that it replaces.
    pub(crate) fn nominate(&mut self, step: &StepId, nomination: &Nomination) -> Option<StepId> {
        self.reservations.clear();
        if nomination.is_firm() {
            self.firm_nominations.insert(step.clone());
            return None;
        }
        self.soft_nomination.replace(step.clone())
    }

    pub(crate) fn withdraw(&mut self, step: &StepId) {
        self.reservations.clear();
        self.firm_nominations.remove(step);
        if self.soft_nomination.as_ref() == Some(step) {
            self.soft_nomination = None;
        }
    }

    pub(crate) fn hold(&mut self, attempt: &AttemptId, run: &Run) {
        let request = &run.request;
        self.used.add(run.demand());
        self.demand_profile.add(run.each(), request.hosts);
        self.account_mut(&request.subject).charge(attempt, run);
        self.index_times(attempt, run.times());
        if run.is_releasing() {
            self.releasing.insert(attempt.clone());
        }
        for waiter in &run.backfill {
            self.backfill
                .entry(waiter.clone())
                .or_default()
                .insert(attempt.clone());
        }
    }

    /// Returns the resources of a run that has released everything.
    pub(crate) fn refund(&mut self, attempt: &AttemptId, run: &Run) {
        self.releasing.remove(attempt);
        self.unindex_times(attempt, run.times());
        self.used.subtract(run.demand());
        self.demand_profile.take(run.each(), run.request.hosts);
        if let Some(account) = self.known_account_mut(&run.request.subject) {
            account.refund(attempt, run);
        }
        self.drop_if_empty(&run.request.subject);
        for waiter in &run.backfill {
            if let Some(runs) = self.backfill.get_mut(waiter) {
                runs.remove(attempt);
                if runs.is_empty() {
                    self.backfill.remove(waiter);
                }
            }
        }
    }
}
