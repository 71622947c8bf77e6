//! Test harness: plays events on a scheduler, shows every decision to the [`Judge`] before it takes effect, and asks
//! once more when there is none left. Victims are gone at once, or host by host when the test says so.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use sluice_common::amount::{Amounts, ResourceKey};
use sluice_common::id::{
    AttemptId, LevelName, NodeName, PlatformName, PoolName, StepId, Subject, UserName,
};
use sluice_common::mig::{GpuClass, MigProfile};
use sluice_common::platform;
use sluice_common::pool::{FairShare, HostPlacement, PolicySpec, ResourceTable};
use sluice_common::priority_preemption::PriorityPreemption;
use sluice_common::time::{Span, Time};
use sluice_common::topology::DomainRequest;

use super::judge::{
    FreezePhase, GPU, Judge, JudgedAmounts, JudgedClass, JudgedHost, JudgedPolicy, JudgedPool,
    JudgedRequest, JudgedRun, KEYS, RuleViolation, STEP_RUN, counted, counted_table, with_gpus,
};
use crate::HostResources;
use crate::remedy::dry_run::DryRun;
use crate::{
    Change, Decision, FairUses, GpuKind, Hardware, HostInventory, PlatformSet, PoolTerms, Request,
    Run, Scheduler, demand,
};

/// A half-life in which nothing decays, so that sums are exact.
const NO_DECAY: Span = Span::from_millis(u64::MAX);
/// More decisions than any event of these tests needs.
const MOVES: usize = 200;

/// A scheduler and its judge.
#[derive(Clone, Debug, Default)]
pub(super) struct SchedulerHarness {
    pub(super) scheduler: Scheduler,
    pub(super) judge: Judge,
    /// Whether victims take time to stop.
    slow: bool,
    submitted: u64,
    attempts: u32,
    /// Runs that do not wait again after they ended.
    over: BTreeSet<AttemptId>,
    /// Copy of what the scheduler counted for fair share.
    fair_uses: FairUses,
    /// All granted or resumed steps, in order.
    pub(super) granted: Vec<StepId>,
    /// All decisions as text, to compare runs of a test.
    pub(super) history: String,
}

/// A table with the given amounts of the judge.
fn table(amounts: &BTreeMap<usize, u64>) -> ResourceTable {
    let amounts = amounts.iter();
    amounts
        .map(|(key, n)| (ResourceKey::new(KEYS[*key]).unwrap(), *n))
        .collect()
}

/// The amounts that pools know. GPUs by class are in the class of a request or the hardware of a host.
fn amounts(units: JudgedAmounts) -> Amounts {
    let amounts = units.into_iter().enumerate().take(KEYS.len());
    let amounts = amounts.filter(|(_, n)| *n > 0).collect();
    table(&amounts).into_iter().collect()
}

fn host_units(units: JudgedAmounts) -> HostResources {
    HostResources::from_amounts(&amounts(units)).with_steps(1 << 40)
}

/// Rules of the pools of a scenario.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PoolRules {
    /// Whether non-preemptible steps may borrow from GPUs.
    pub(super) open_gpu_hosts: bool,
    pub(super) no_priority_preemption: bool,
    /// Percent of the pool's time that priority may lose, if that is bounded.
    pub(super) budget: Option<u8>,
    pub(super) fair_share: bool,
    pub(super) fair_users: bool,
    /// Whether steps go to the host with the most free.
    pub(super) spread: bool,
}

/// A submission of a test.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    pub(super) subject: Subject,
    pub(super) each: JudgedAmounts,
    /// Class of the GPUs in `each`.
    pub(super) class: JudgedClass,
    pub(super) nodes: u32,
    pub(super) user: Option<usize>,
    pub(super) priority: i64,
    pub(super) preemptible: bool,
    pub(super) pool: Option<PoolName>,
    pub(super) suspends: bool,
    pub(super) platforms: Vec<PlatformName>,
    /// Whether all its hosts must be of one rack; `None` if that does not matter.
    pub(super) one_rack: Option<bool>,
    /// Longest time from its start to its end, in milliseconds.
    pub(super) time_limit: Option<u64>,
}

impl SchedulerHarness {
    pub(super) fn new(slow: bool) -> Self {
        let mut harness = Self {
            slow,
            ..Self::default()
        };
        harness.judge.now = 1_000_000;
        harness.scheduler.set_clock(harness.now());
        harness.scheduler.set_levels(levels());
        harness
    }

    pub(super) fn now(&self) -> Time {
        Time::from_unix_millis(self.judge.now)
    }

    pub(super) fn put_pool(
        &mut self,
        pool: &PoolName,
        declared: &[(usize, u64)],
        min_runtime: u64,
        rules: PoolRules,
    ) {
        let judged = self.judge.pools.entry(pool.clone()).or_default();
        judged.declared = counted_table(declared);
        judged.min_runtime = min_runtime;
        judged.open_gpu_hosts = rules.open_gpu_hosts;
        judged.no_priority_preemption = rules.no_priority_preemption;
        judged.budget = rules.budget.map(u64::from);
        judged.fair_share = rules.fair_share;
        judged.fair_users = rules.fair_users;
        judged.spread = rules.spread;
        self.scheduler.put_pool(pool, terms(judged));
        self.judge.disturb();
    }

    /// Sets a policy if the pool accepts it.
    pub(super) fn put_policy(
        &mut self,
        pool: &PoolName,
        subject: &Subject,
        priority: u64,
        reserved: &[(usize, u64)],
        limit: &[(usize, u64)],
    ) {
        let judged = JudgedPolicy {
            priority,
            weight: weight_of(subject),
            reserved: counted_table(reserved),
            limit: counted_table(limit),
        };
        let policy = policy(&judged);
        let vetted = self
            .scheduler
            .pool(pool)
            .unwrap()
            .check_policy(subject, &policy);
        if vetted.is_err() {
            return;
        }
        self.scheduler.put_policy(pool, subject, policy);
        let pool = self.judge.pools.get_mut(pool).unwrap();
        pool.policies.insert(subject.clone(), judged);
        self.judge.disturb();
    }

    pub(super) fn remove_policy(&mut self, pool: &PoolName, subject: &Subject) {
        self.scheduler.remove_policy(pool, subject);
        let pool = self.judge.pools.get_mut(pool).unwrap();
        pool.policies.remove(subject);
        self.judge.disturb();
    }

    pub(super) fn put_host(
        &mut self,
        node: &NodeName,
        pool: &PoolName,
        has: JudgedAmounts,
        open: bool,
    ) {
        let unnamed = platform::from_slug(platform::GENERIC_GPU);
        self.put_host_of(node, pool, has, open, &[unnamed].into());
    }

    /// The same with platforms for its GPUs; a host without GPUs is of `cpu`.
    pub(super) fn put_host_of(
        &mut self,
        node: &NodeName,
        pool: &PoolName,
        has: JudgedAmounts,
        open: bool,
        platforms: &PlatformSet,
    ) {
        let platforms = match has[GPU] {
            0 => PlatformSet::from([platform::cpu()]),
            _ => platforms.clone(),
        };
        let host = JudgedHost {
            rack: self.judge.hosts.get(node).and_then(|host| host.rack),
            pool: pool.clone(),
            has: counted(has, JudgedClass::Whole),
            schedulable: open,
            platforms,
            cut: 0,
        };
        self.put_judged_host(node, host);
    }

    fn put_judged_host(&mut self, node: &NodeName, host: JudgedHost) {
        self.scheduler
            .put_host(node, &host.pool, inventory(node, &host), host.schedulable);
        self.judge.hosts.insert(node.clone(), host);
        self.judge.disturb();
    }

    /// Moves a host into a rack, or out of all.
    pub(super) fn put_in_rack(&mut self, node: &NodeName, rack: Option<usize>) {
        let host = JudgedHost {
            rack,
            ..self.judge.hosts[node].clone()
        };
        self.put_judged_host(node, host);
    }

    /// Cuts whole GPUs of a host into slices, the given number of each class.
    pub(super) fn cut_gpus(&mut self, node: &NodeName, cut: u64, slices: &[(JudgedClass, u64)]) {
        let mut host = self.judge.hosts[node].clone();
        let mut gpus = Vec::from([(JudgedClass::Whole, host.has[GPU] / 1000 - cut)]);
        gpus.extend_from_slice(slices);
        host.has[GPU] = 0;
        for (class, n) in gpus {
            host.has[class.key()] = n * class.thousandths();
            host.has[GPU] += host.has[class.key()];
        }
        host.cut = cut;
        self.put_judged_host(node, host);
    }

    /// Sets whether a host takes new work.
    pub(super) fn open(&mut self, node: &NodeName, open: bool) {
        let host = JudgedHost {
            schedulable: open,
            ..self.judge.hosts[node].clone()
        };
        self.put_judged_host(node, host);
    }

    /// Loses a host with all its runs; they wait again.
    pub(super) fn lose_host(&mut self, node: &NodeName) {
        self.open(node, false);
        for id in self.scheduler.runs_on(node) {
            self.end(&id);
        }
    }

    /// Submits a step; `None` if it could never be granted.
    pub(super) fn submit(&mut self, submission: &Submission) -> Option<StepId> {
        self.submitted += 1;
        let class = submission.class;
        let mut each = counted(submission.each, class);
        each[STEP_RUN] = 1;
        // "With `mig`, a model means its slices too."
        let of_model = |model: &PlatformName| {
            let mut names = Vec::from([model.clone()]);
            names.extend(
                class
                    .profile()
                    .map(|profile| platform::of_slice(model, profile)),
            );
            names
        };
        let ask = JudgedRequest {
            step: StepId::new(format!("r{}", self.submitted)).unwrap(),
            subject: submission.subject.clone(),
            place: self.submitted,
            priority: submission.priority,
            preemptible: submission.preemptible,
            nodes: u64::from(submission.nodes),
            each,
            class,
            pool: submission.pool.clone(),
            suspends: submission.suspends,
            frozen_run: None,
            user: submission.user,
            platforms: submission.platforms.iter().flat_map(of_model).collect(),
            one_rack: submission.one_rack,
            time_limit: submission.time_limit,
            evictions: Vec::new(),
        };
        if self.scheduler.admit(&request(&ask), false).is_err() {
            return None;
        }
        self.scheduler.enqueue(request(&ask));
        self.judge.waiting.insert(ask.step.clone(), ask.clone());
        Some(ask.step)
    }

    /// Cancels a waiting step.
    pub(super) fn cancel(&mut self, step: &StepId) {
        let frozen_run = self
            .judge
            .waiting
            .get(step)
            .and_then(|ask| ask.frozen_run.clone());
        self.scheduler.dequeue(step);
        self.judge.leave_queue(step);
        if let Some(frozen_run) = frozen_run {
            self.finish(&frozen_run.attempt);
        }
    }

    /// A frozen run no longer waits once it is stopped.
    fn wait_no_longer(&mut self, id: &AttemptId) {
        if self
            .judge
            .runs
            .get(id)
            .is_some_and(|run| run.freeze_phase == FreezePhase::Done)
        {
            self.scheduler.dequeue(&id.step);
            self.judge.leave_queue(&id.step);
        }
    }

    /// Finishes freezing a run.
    fn freeze(&mut self, id: &AttemptId) {
        self.scheduler.freeze(id, 0);
        self.scheduler.await_resumption(id);
        self.judge.freeze(id);
    }

    /// Freezing failed: the run is stopped.
    pub(super) fn fail_freeze(&mut self, id: &AttemptId) {
        let backfill = self.judge.runs[id].backfill.clone();
        self.scheduler.thaw(id, &backfill);
        self.scheduler.stop(id);
        self.judge.fail_freeze(id);
    }

    /// A run ends by itself.
    pub(super) fn finish(&mut self, id: &AttemptId) {
        self.over.insert(id.clone());
        self.wait_no_longer(id);
        if self.slow {
            self.scheduler.stop(id);
            self.judge.stop(id, None);
        } else {
            self.end(id);
        }
    }

    /// Releases everything that a run holds.
    fn end(&mut self, id: &AttemptId) {
        self.wait_no_longer(id);
        if self
            .judge
            .runs
            .get(id)
            .is_some_and(|run| run.freeze_phase == FreezePhase::Coming)
        {
            self.fail_freeze(id);
        }
        let holding = self.judge.runs.get(id).map(|run| run.holding.clone());
        for node in holding.into_iter().flatten() {
            self.release(id, &node);
        }
    }

    /// A host releases a run; after the last host the step waits again unless it is over.
    pub(super) fn release(&mut self, id: &AttemptId, node: &NodeName) {
        if self
            .judge
            .runs
            .get(id)
            .is_some_and(|run| run.freeze_phase == FreezePhase::Coming)
        {
            return self.freeze(id);
        }
        self.scheduler.release(id, node);
        let gone = self.judge.release(id, node);
        if let Some(ask) = gone.filter(|_| !self.over.remove(id)) {
            self.scheduler.enqueue(request(&ask));
            self.judge.waiting.insert(ask.step.clone(), ask);
        }
    }

    /// Applies the changes of a remedy.
    pub(super) fn change(&mut self, step: &StepId, pool: &PoolName, changes: &[Change]) {
        let mut dry_run = DryRun::new(&self.scheduler);
        dry_run.change(step, pool, changes).unwrap();
        self.scheduler = dry_run.scheduler().clone();
        let key = |key: &str| KEYS.iter().position(|known| *known == key).unwrap();
        let Judge {
            pools,
            hosts,
            waiting,
            ..
        } = &mut self.judge;
        let judged = pools.get_mut(pool).unwrap();
        let ask = waiting.get_mut(step).unwrap();
        let policy = judged.policies.get_mut(&ask.subject).unwrap();
        for change in changes {
            match change {
                Change::FreeOnHost { node, key: k, more } => {
                    let host = hosts.get_mut(node).unwrap();
                    host.has[key(k)] += more;
                    host.has = with_gpus(host.has, JudgedClass::Whole, host.has[GPU]);
                }
                Change::FreeInPool { key: k, more } => {
                    *judged.declared.get_mut(&key(k.as_str())).unwrap() += more;
                }
                Change::MakeSchedulable { node } => hosts.get_mut(node).unwrap().schedulable = true,
                Change::RaiseLimit { key: k, to } => {
                    policy.limit.insert(key(k.as_str()), *to);
                }
                Change::RaiseReserved { key: k, to } => {
                    policy.reserved.insert(key(k.as_str()), *to);
                }
                Change::ReduceRequest { key: k, to } => {
                    ask.each[key(k.as_str())] = *to;
                    ask.each = with_gpus(ask.each, ask.class, ask.each[GPU]);
                }
                Change::MakePreemptible => ask.preemptible = true,
            }
        }
        if self.scheduler.nomination(step).is_none() {
            self.judge.nominations.remove(step);
        }
        self.judge.disturb();
    }

    /// Lets time pass, with the decisions that fall due.
    pub(super) fn pass(&mut self, millis: u64) -> Result<(), RuleViolation> {
        let until = self.judge.now + millis;
        loop {
            let pools = self.judge.pools.keys();
            let due = pools.filter_map(|pool| self.scheduler.protected_until(pool, self.now()));
            let due = due.map(Time::unix_millis).min();
            let Some(due) = due.filter(|due| *due < until) else {
                break;
            };
            self.go_to(due);
            self.settle()?;
        }
        self.go_to(until);
        Ok(())
    }

    fn go_to(&mut self, now: u64) {
        self.judge.pass(now);
        self.scheduler.set_clock(self.now());
    }

    /// Makes all decisions, each judged before it takes effect, and judges the final state.
    pub(super) fn settle(&mut self) -> Result<(), RuleViolation> {
        self.settle_with(|_| ())
    }

    /// The same, calling `look` after each decision.
    pub(super) fn settle_with(&mut self, look: impl Fn(&Scheduler)) -> Result<(), RuleViolation> {
        self.judge.happens();
        self.history.push_str("-- event\n");
        for _ in 0..MOVES {
            let mut pools = self.judge.pools.keys();
            let next = pools.find_map(|pool| {
                let next = self.scheduler.next_decision(pool, self.now());
                // Neither checks of groups as a whole nor what is cached changes a decision. A copy has nothing cached.
                let copy = self.scheduler.clone();
                for classes in [1, usize::MAX] {
                    let same = copy.next_decision_by(pool, self.now(), classes);
                    assert_eq!(next, same, "groups of {classes} classes\n{}", self.history);
                }
                next
            });
            let Some(next) = next else {
                self.scheduler.copy_fair_uses(&mut self.fair_uses);
                return self.judge.judge_rest();
            };
            self.history.push_str(&format!("{next:?}\n"));
            self.judge.judge(&next)?;
            self.make(next)?;
            look(&self.scheduler);
        }
        Err(RuleViolation {
            rule: "finitely_many_decisions",
            what: format!("more than {MOVES} moves"),
        })
    }

    fn make(&mut self, next: Decision) -> Result<(), RuleViolation> {
        match next {
            Decision::Withdraw { step } => {
                self.scheduler.withdraw(&step);
                self.judge.nominations.remove(&step);
            }
            Decision::Grant {
                step,
                pool,
                hosts,
                platform: _,
                backfill,
            } => self.grant(&step, &pool, &hosts, backfill)?,
            Decision::Nominate {
                step,
                nomination,
                victims,
                frozen,
                evicted,
            } => {
                self.judge.nomination(&step, Judge::promise_of(&nomination));
                self.scheduler.nominate(&step, nomination);
                for id in &victims {
                    if frozen.contains(id) {
                        self.scheduler.suspend(id, 0);
                        self.judge.suspend(id, &step);
                    } else {
                        self.wait_no_longer(id);
                        self.scheduler.stop(id);
                        self.judge.stop(id, Some(&step));
                        if evicted.contains(id) {
                            self.scheduler.evict(id, self.now());
                            self.judge.evict(id);
                        }
                    }
                }
                let at_once = victims.iter().take(if self.slow { 0 } else { usize::MAX });
                for id in at_once {
                    match frozen.contains(id) {
                        true => self.freeze(id),
                        false => self.end(id),
                    }
                }
            }
        }
        Ok(())
    }

    fn grant(
        &mut self,
        step: &StepId,
        pool: &PoolName,
        hosts: &[NodeName],
        backfill: BTreeSet<StepId>,
    ) -> Result<(), RuleViolation> {
        self.granted.push(step.clone());
        if let Some(frozen_run) = self.judge.waiting[step].frozen_run.clone() {
            self.scheduler.dequeue(step);
            self.scheduler.thaw(&frozen_run.attempt, &backfill);
            self.judge.thaw(&frozen_run.attempt, backfill);
            let run = &self.judge.runs[&frozen_run.attempt];
            return self.judge.judge_gpus(&frozen_run.attempt, run);
        }
        self.attempts += 1;
        let id = AttemptId {
            step: step.clone(),
            number: self.attempts,
        };
        let ask = self.judge.waiting[step].clone();
        let run = JudgedRun {
            ask,
            pool: pool.clone(),
            holding: hosts.iter().cloned().collect(),
            start_time: self.judge.now,
            stopping: false,
            backfill,
            gpus: self.name_gpus(hosts, &self.judge.waiting[step]),
            freeze_phase: FreezePhase::No,
        };
        self.judge.judge_gpus(&id, &run)?;
        self.scheduler.dequeue(step);
        self.scheduler.hold(&id, market_run(&run));
        self.judge.grant(id, run);
        Ok(())
    }

    /// GPU names of a run, from host, class and number.
    fn name_gpus(
        &self,
        hosts: &[NodeName],
        ask: &JudgedRequest,
    ) -> BTreeMap<NodeName, BTreeSet<String>> {
        let named = hosts.iter().map(|node| {
            let free = gpus_of(node, &self.judge.hosts[node], ask.class);
            let held = self
                .judge
                .runs
                .values()
                .filter(|run| run.freeze_phase != FreezePhase::Done);
            let held = held.filter(|run| run.holding.contains(node));
            let held: BTreeSet<&String> = held
                .filter_map(|run| run.gpus.get(node))
                .flatten()
                .collect();
            let free: Vec<String> = free.filter(|name| !held.contains(name)).collect();
            let free = free.iter().map(|name| (name, name.clone()));
            let wanted = ask.each[GPU] / ask.class.thousandths();
            let wanted = usize::try_from(wanted).unwrap();
            let chosen = self.scheduler.gpus_by_wait(node, free).concat();
            let chosen = chosen.into_iter().take(wanted);
            (node.clone(), chosen.collect())
        });
        named.collect()
    }

    /// A scheduler rebuilt from the facts.
    pub(super) fn rebuilt(&self) -> Scheduler {
        let mut scheduler = Scheduler::default();
        scheduler.set_levels(levels());
        for (name, pool) in &self.judge.pools {
            scheduler.put_pool(name, terms(pool));
            for (subject, policy) in &pool.policies {
                scheduler.put_policy(name, subject, self::policy(policy));
            }
        }
        for (node, host) in &self.judge.hosts {
            scheduler.put_host(node, &host.pool, inventory(node, host), host.schedulable);
        }
        let fresh = self
            .judge
            .waiting
            .values()
            .filter(|ask| ask.frozen_run.is_none());
        fresh.for_each(|ask| scheduler.enqueue(request(ask)));
        for (id, run) in &self.judge.runs {
            scheduler.hold(id, market_run(run));
            match run.freeze_phase {
                FreezePhase::Coming => scheduler.suspend(id, 0),
                FreezePhase::Done => {
                    scheduler.freeze(id, 0);
                    if !run.stopping {
                        scheduler.await_resumption(id);
                    }
                }
                FreezePhase::No => {}
            }
            if run.stopping && run.freeze_phase != FreezePhase::Coming {
                scheduler.stop(id);
            }
        }
        for (step, judged) in &self.judge.nominations {
            let nomination = self.scheduler.nomination(step).cloned();
            let nomination = nomination.unwrap_or_else(|| panic!("{step} has no {judged:?}"));
            scheduler.nominate(step, nomination);
        }
        scheduler.set_clock(self.now());
        scheduler.set_fair_uses(&self.fair_uses);
        let pools = self.judge.pools.keys();
        let lost = pools.map(|pool| (pool.clone(), self.scheduler.lost_work(pool)));
        scheduler.set_lost_work(&lost.collect());
        scheduler
    }
}

/// Weights differ between subjects.
fn weight_of(subject: &Subject) -> u32 {
    1 + u32::from(subject.as_str().ends_with('1'))
}

fn priority_preemption(pool: &JudgedPool) -> PriorityPreemption {
    match (pool.no_priority_preemption, pool.budget) {
        (true, _) => PriorityPreemption::Off,
        (false, None) => PriorityPreemption::Unlimited,
        (false, Some(percent)) => PriorityPreemption::Budget(u8::try_from(percent).unwrap()),
    }
}

fn policy(policy: &JudgedPolicy) -> PolicySpec {
    PolicySpec {
        priority: policy.priority,
        reserved: table(&policy.reserved),
        limit: table(&policy.limit),
        weight: NonZeroU32::new(policy.weight),
    }
}

/// Names of the GPUs of a class on a host.
fn gpus_of(
    node: &NodeName,
    host: &JudgedHost,
    class: JudgedClass,
) -> impl Iterator<Item = String> + use<> {
    let node = node.clone();
    let number = host.has[class.key()] / class.thousandths();
    (0..number).map(move |n| class.gpu(&node, n))
}

fn gpu_class(class: JudgedClass) -> GpuClass {
    let profile = class.profile().map(MigProfile::detected);
    profile.map_or(GpuClass::Whole, GpuClass::Slice)
}

fn inventory(node: &NodeName, host: &JudgedHost) -> HostInventory {
    let whole = host.has[JudgedClass::Whole.key()] / 1000;
    let hardware = match host.cut {
        0 => Hardware::uniform(host.platforms.clone(), whole),
        cut => {
            let gpus = JudgedClass::ALL.into_iter().flat_map(|class| {
                let kind = GpuKind {
                    class: gpu_class(class),
                    platforms: class.platforms(&host.platforms),
                };
                gpus_of(node, host, class).map(move |gpu| (gpu, kind.clone()))
            });
            Hardware::from_gpus(gpus, whole + cut)
        }
    };
    HostInventory {
        domain_path: domain_path(host.rack),
        ..HostInventory::healthy(host_units(host.has), hardware)
    }
}

fn terms(pool: &JudgedPool) -> PoolTerms {
    PoolTerms {
        declared: table(&pool.declared),
        min_runtime: Span::from_millis(pool.min_runtime),
        open_gpu_hosts: pool.open_gpu_hosts,
        priority_preemption: priority_preemption(pool),
        fair_share: pool.fair_share.then_some(FairShare {
            half_life: NO_DECAY,
        }),
        fair_users: pool.fair_users,
        placement: match pool.spread {
            true => HostPlacement::Spread,
            false => HostPlacement::Pack,
        },
        ..PoolTerms::default()
    }
}

fn request(ask: &JudgedRequest) -> Request {
    let each = amounts(ask.each);
    let hosts = u32::try_from(ask.nodes).unwrap();
    Request {
        step: ask.step.clone(),
        subject: ask.subject.clone(),
        user: ask.user.map(|n| UserName::new(format!("u{n}")).unwrap()),
        place: ask.place,
        priority: ask.priority,
        preemptible: ask.preemptible,
        hosts,
        each: HostResources::from_amounts(&each),
        class: gpu_class(ask.class),
        demand: demand(&each, hosts),
        pool: ask.pool.clone(),
        suspends: ask.suspends,
        resumes: None,
        platforms: ask.platforms.clone(),
        avoided_hosts: BTreeSet::new(),
        spread_in: None,
        time_limit: ask.time_limit.map(Span::from_millis),
        evictions: ask
            .evictions
            .iter()
            .copied()
            .map(Time::from_unix_millis)
            .collect(),
        takes_default: false,
        accepted_at: None,
        excluded_pools: BTreeSet::new(),
        guards: BTreeMap::new(),
        image: None,
        within: ask.one_rack.map(|required| DomainRequest {
            level: levels().remove(0),
            required,
        }),
    }
}

/// The levels of the topology: racks.
fn levels() -> Vec<LevelName> {
    Vec::from([LevelName::new("rack").unwrap()])
}

fn domain_path(rack: Option<usize>) -> Vec<String> {
    rack.map(|rack| format!("r{rack}")).into_iter().collect()
}

fn market_run(run: &JudgedRun) -> Run {
    let start_time = Time::from_unix_millis(run.start_time);
    Run {
        request: request(&run.ask),
        pool: run.pool.clone(),
        holding: run.holding.clone(),
        granted: start_time,
        started: Some(start_time),
        saved: None,
        stopping: false,
        gpus: run.gpus.clone(),
        frozen: None,
        backfill: run.backfill.clone(),
    }
}
