//! A simulated cluster: the scheduler of the live coordinator, with a driver in place of its hosts. The owner feeds
//! events and lets each settle: a granted job starts at once, a preempted one stops at once, and time passes when the
//! owner says so. Scenarios and a benchmark of placement drive it.
//!
//! ```text
//! owner --(put_pool, submit, finish, lose, advance ...)--> Simulation --(next_move)--> Scheduler
//!   ^------------------------(settle: Happening ...)-----------|  ^---(hold, release)---|
//! ```
//!
//! The simulation leaves out the coordinator's records, because orders to agents and restarts do not change who gets
//! what. A [`TraceRun`](crate::TraceRun) includes them, with rules of pools and everything else that the core does
//! with a submit.

mod frozen;
mod host;
pub(crate) mod impossible;
mod tries;

use std::collections::{BTreeMap, BTreeSet};

use sluice_common::amount::{Amounts, ResourceKey, STEP_RUN};
use sluice_common::id::{
    AttemptId, LevelName, NodeName, PlatformName, PoolName, StepId, Subject, UserName,
};
use sluice_common::mig::GpuClass;
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::step::OnPreempt;
use sluice_common::time::{Span, Time};
use sluice_common::topology::DomainRequest;
use sluice_scheduler::{
    Decision, HostInventory, HostResources, Infeasible, PolicyError, PoolTerms, Request, Run,
    Scheduler, demand,
};

use tries::JobTries;

pub use host::HostSize;
use host::SimulatedHost;
pub use impossible::Impossible;

/// A simulated cluster with the scheduler alone.
#[derive(Clone, Debug, Default)]
pub struct Simulation {
    scheduler: Scheduler,
    now: Time,
    submitted: u64,
    jobs: BTreeMap<StepId, JobTries>,
    /// Time since which each frozen job is frozen.
    frozen_since: BTreeMap<StepId, Time>,
    hosts: BTreeMap<NodeName, SimulatedHost>,
    events: Vec<SimulationEvent>,
}

/// A job to submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Name, unique within the simulation.
    pub step: StepId,
    pub subject: Subject,
    /// User who submits it, if that is known.
    pub user: Option<UserName>,
    /// Resources on each of its hosts; `step_run: 1` is added if absent.
    pub resources: Amounts,
    /// Class of the GPUs in `resources`.
    pub gpu_class: GpuClass,
    /// Number of hosts that it runs on at once.
    pub nodes: u32,
    /// Level of the topology within which these hosts are near to each other.
    pub within: Option<DomainRequest>,
    /// Order among the jobs of its subject.
    pub priority: i64,
    pub preemptible: bool,
    /// The only pool that it may run in.
    pub pool: Option<PoolName>,
    /// Platforms that it may run on, most preferred first; any if empty.
    pub platforms: Vec<PlatformName>,
    /// Number of retries.
    pub retries: u32,
    /// Whether preemptions and lost hosts spend no retry.
    pub free_preemptions: bool,
    /// Treatment when it is preempted.
    pub on_preempt: OnPreempt,
    /// Longest time from its start to its end.
    pub time_limit: Option<Span>,
}

/// A result of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SimulationEvent {
    /// A job began to run on these hosts.
    Started { step: StepId, hosts: Vec<NodeName> },
    /// A job was preempted, frozen or stopped.
    Preempted { step: StepId },
    /// A job ended with its host.
    Lost { step: StepId },
}

impl Simulation {
    /// Makes an empty cluster at a point in time.
    pub fn new(now: Time) -> Self {
        let mut simulation = Self::default();
        simulation.go_to(now);
        simulation
    }

    /// The scheduler with its pools and queues.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The current time of the simulation.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Makes or changes a pool.
    pub fn put_pool(&mut self, name: &PoolName, terms: PoolTerms) {
        self.scheduler.put_pool(name, terms);
    }

    /// Sets the policy of a subject in a pool.
    ///
    /// # Errors
    /// There is no such pool. The inner error is that the pool cannot keep the policy, which changes nothing.
    pub fn put_policy(
        &mut self,
        pool: &PoolName,
        subject: &Subject,
        policy: PolicySpec,
    ) -> Result<Result<(), PolicyError>, Impossible> {
        let known = self.scheduler.pool(pool);
        let known = known.ok_or_else(|| Impossible::UnknownPool(pool.clone()))?;
        let vetted = known.check_policy(subject, &policy);
        if vetted.is_ok() {
            self.scheduler.put_policy(pool, subject, policy);
        }
        Ok(vetted)
    }

    /// Adds or changes a host that takes work, with the model of its GPUs if that is known.
    ///
    /// # Errors
    /// There is no such pool, or such a host is impossible.
    pub fn put_host(
        &mut self,
        node: &NodeName,
        pool: &PoolName,
        size: HostSize,
        model: Option<&str>,
    ) -> Result<(), Impossible> {
        if self.scheduler.pool(pool).is_none() {
            return Err(Impossible::UnknownPool(pool.clone()));
        }
        impossible::host(&size)?;
        let host = SimulatedHost::of(pool.clone(), size, model);
        self.hosts.insert(node.clone(), host);
        self.open(node, true)
    }

    /// Sets the levels of the topology, the widest first.
    pub fn set_levels(&mut self, levels: Vec<LevelName>) {
        self.scheduler.set_levels(levels);
    }

    /// Puts a host into the domain with this path: the values of the levels, the widest first.
    ///
    /// # Errors
    /// There is no such host.
    pub fn put_in_domain(
        &mut self,
        node: &NodeName,
        domain_path: Vec<String>,
    ) -> Result<(), Impossible> {
        let host = self.hosts.get_mut(node);
        let host = host.ok_or_else(|| Impossible::UnknownNode(node.clone()))?;
        host.domain_path = domain_path;
        self.open(node, true)
    }

    /// Opens a host for new work or closes it; its runs go on.
    ///
    /// # Errors
    /// There is no such host.
    pub fn open(&mut self, node: &NodeName, open: bool) -> Result<(), Impossible> {
        let host = self.hosts.get(node);
        let host = host.ok_or_else(|| Impossible::UnknownNode(node.clone()))?;
        let size = HostInventory {
            domain_path: host.domain_path.clone(),
            ..HostInventory::healthy(host.units, host.hardware.clone())
        };
        self.scheduler.put_host(node, &host.pool, size, open);
        Ok(())
    }

    /// Loses a host with all that runs there.
    ///
    /// # Errors
    /// There is no such host.
    pub fn lose(&mut self, node: &NodeName) -> Result<(), Impossible> {
        self.open(node, false)?;
        for id in self.scheduler.runs_on(node) {
            if !self.end_attempt(&id, JobTries::may_run_again_after_loss) {
                self.events.push(SimulationEvent::Lost { step: id.step });
            }
        }
        Ok(())
    }

    /// Queues a job, or rejects it forever: the inner error is the reason.
    ///
    /// # Errors
    /// A job of this name was submitted before.
    pub fn submit(&mut self, job: Job) -> Result<Result<(), ReasonCode>, Impossible> {
        self.remember(&job)?;
        let named = job.pool.as_ref();
        if named.is_some_and(|pool| self.scheduler.pool(pool).is_none()) {
            return Ok(Err(ReasonCode::UnknownPool));
        }
        let request = request(job, self.submitted);
        let admitted = self.scheduler.admit(&request, false);
        if let Err(never) = admitted {
            let first = never.into_iter().next();
            return Ok(Err(
                first.map_or(ReasonCode::NoPolicy, |(_, never)| never_code(&never))
            ));
        }
        self.scheduler.enqueue(request);
        Ok(Ok(()))
    }

    fn remember(&mut self, job: &Job) -> Result<(), Impossible> {
        if self.jobs.contains_key(&job.step) {
            return Err(Impossible::Repeated(job.step.clone()));
        }
        self.submitted += 1;
        let tries = JobTries {
            attempts: 0,
            retries_left: job.retries,
            free_preemptions: job.free_preemptions,
            on_preempt: job.on_preempt,
            runs: false,
        };
        self.jobs.insert(job.step.clone(), tries);
        Ok(())
    }

    /// Ends a running job, or withdraws a queued one. Does nothing to a job that is over.
    ///
    /// # Errors
    /// No job of this name was submitted.
    pub fn finish(&mut self, step: &StepId) -> Result<(), Impossible> {
        let tries = self.jobs.get_mut(step);
        let tries = tries.ok_or_else(|| Impossible::UnknownRequest(step.clone()))?;
        self.frozen_since.remove(step);
        if std::mem::take(&mut tries.runs) {
            let id = attempt(step, tries.attempts);
            self.scheduler.dequeue(step);
            self.release(&id);
        } else {
            self.scheduler.dequeue(step);
        }
        Ok(())
    }

    /// Lets time pass, with the events that come due.
    pub fn advance(&mut self, until: Time) {
        while let Some(at) = self.wakes_at().filter(|at| *at < until) {
            self.go_to(at);
            self.settle();
        }
        self.go_to(self.now.max(until));
    }

    fn go_to(&mut self, now: Time) {
        self.now = now;
        self.scheduler.set_clock(now);
    }

    /// The next time at which a queued job may start although nothing else happens.
    fn wakes_at(&self) -> Option<Time> {
        let pools = self.scheduler.pools();
        let spared = pools.filter_map(|(name, _)| self.scheduler.protected_until(name, self.now));
        let runs = self.scheduler.runs();
        let ends = runs.filter_map(|(_, run)| run.latest_end());
        spared.chain(self.overdue_at()).chain(ends).min()
    }

    /// Makes every decision that is possible.
    pub fn settle(&mut self) {
        self.stop_overdue();
        self.end_by_time_limit();
        while let Some(next) = self.next_decision() {
            self.make(next);
        }
    }

    fn end_by_time_limit(&mut self) {
        let scheduler = &self.scheduler;
        let pools = scheduler.pools().map(|(name, _)| name);
        let over = pools.flat_map(|pool| scheduler.beyond_time_limit(pool, self.now));
        // In their order, as they were submitted.
        let over: BTreeSet<StepId> = over.map(|id| id.step.clone()).collect();
        for step in over {
            self.finish(&step).expect("what runs was submitted");
        }
    }

    fn next_decision(&self) -> Option<Decision> {
        let mut pools = self.scheduler.pools();
        pools.find_map(|(name, _)| self.scheduler.next_decision(name, self.now))
    }

    fn make(&mut self, next: Decision) {
        match next {
            Decision::Withdraw { step } => self.scheduler.withdraw(&step),
            Decision::Nominate {
                step,
                nomination,
                victims,
                frozen,
                evicted,
            } => {
                self.scheduler.nominate(&step, nomination);
                for id in &evicted {
                    self.scheduler.evict(id, self.now);
                }
                for id in victims {
                    match frozen.contains(&id) {
                        true => self.suspend(&id),
                        false => self.preempt(&id),
                    }
                }
            }
            Decision::Grant {
                step,
                pool,
                hosts,
                platform: _,
                backfill,
            } => self.grant(step, pool, hosts, backfill),
        }
    }

    /// The results since the last call, in order.
    pub(crate) fn events(&mut self) -> Vec<SimulationEvent> {
        std::mem::take(&mut self.events)
    }

    fn grant(
        &mut self,
        step: StepId,
        pool: PoolName,
        hosts: Vec<NodeName>,
        backfill: BTreeSet<StepId>,
    ) {
        let request = self.scheduler.request(&step).cloned();
        let request = request.expect("what is granted has waited");
        let tries = self.jobs.get_mut(&step).expect("what waits was submitted");
        if let Some(resumes) = &request.resumes {
            self.frozen_since.remove(&step);
            self.scheduler.dequeue(&step);
            self.scheduler.thaw(&resumes.attempt, &backfill);
            return;
        }
        tries.attempts += 1;
        tries.runs = true;
        let id = attempt(&step, tries.attempts);
        self.scheduler.dequeue(&step);
        let named = hosts.iter().map(|node| {
            let wanted = request.each.mgpu() / request.class.mgpu();
            let gpus = self.name_gpus(node, &request.class, wanted);
            (node.clone(), gpus.into_iter().collect())
        });
        let run = Run {
            gpus: named.collect(),
            frozen: None,
            request,
            pool,
            holding: hosts.iter().cloned().collect(),
            granted: self.now,
            started: Some(self.now),
            saved: None,
            stopping: false,
            backfill,
        };
        self.scheduler.hold(&id, run);
        self.events.push(SimulationEvent::Started { step, hosts });
    }

    /// Frees the resources of an attempt and queues its job again, in its old place, if it may run again. Returns
    /// whether it was queued.
    fn end_attempt(&mut self, id: &AttemptId, may: impl FnOnce(&mut JobTries) -> bool) -> bool {
        let request = self.scheduler.run(id).map(|run| run.request.clone());
        // A frozen job does not wait for its resumption any more.
        self.scheduler.dequeue(&id.step);
        self.frozen_since.remove(&id.step);
        self.release(id);
        let tries = self.jobs.get_mut(&id.step);
        let again = tries.is_some_and(|tries| {
            tries.runs = false;
            may(tries)
        });
        if let Some(request) = request.filter(|_| again) {
            self.scheduler.enqueue(request);
        }
        again
    }

    fn release(&mut self, id: &AttemptId) {
        let holding = self.scheduler.run(id).map(|run| run.holding.clone());
        for node in holding.into_iter().flatten() {
            self.scheduler.release(id, &node);
        }
    }
}

fn attempt(step: &StepId, number: u32) -> AttemptId {
    AttemptId {
        step: step.clone(),
        number,
    }
}

fn request(job: Job, place: u64) -> Request {
    let mut each = job.resources;
    if each.get(STEP_RUN) == 0 {
        each.set(
            ResourceKey::new(STEP_RUN).expect("a constant key is well-formed"),
            1,
        );
    }
    Request {
        step: job.step,
        subject: job.subject,
        user: job.user,
        place,
        priority: job.priority,
        preemptible: job.preemptible,
        hosts: job.nodes.max(1),
        each: HostResources::from_amounts(&each),
        class: job.gpu_class,
        demand: demand(&each, job.nodes.max(1)),
        pool: job.pool,
        suspends: job.on_preempt == OnPreempt::Suspend,
        resumes: None,
        avoided_hosts: BTreeSet::new(),
        spread_in: None,
        time_limit: job.time_limit,
        evictions: Vec::new(),
        takes_default: false,
        platforms: job.platforms,
        accepted_at: None,
        excluded_pools: BTreeSet::new(),
        guards: BTreeMap::new(),
        image: None,
        within: job.within,
    }
}

/// The reason code for a request that could never be granted.
fn never_code(never: &Infeasible) -> ReasonCode {
    match never {
        Infeasible::UnknownResource { .. } => ReasonCode::UnknownResource,
        Infeasible::ExceedsPoolCapacity { .. } => ReasonCode::ExceedsPoolCapacity,
        Infeasible::ExceedsLimit { .. } => ReasonCode::ExceedsLimit,
        Infeasible::ExceedsReserved { .. } => ReasonCode::ExceedsReserved,
        Infeasible::ExceedsEntitlement { .. } => ReasonCode::ExceedsEntitlement,
        Infeasible::NoHostFits { .. }
        | Infeasible::NoLevel { .. }
        | Infeasible::NoDomainFits { .. } => ReasonCode::NoHostFits,
    }
}
