//! A simulated cluster: the scheduler that decides for the live coordinator, with a driver in place of its hosts. Whoever
//! owns one says what happens and lets it settle; whom it starts begins at once, whom it stops is gone at once, and time
//! passes when its owner says so. Scenarios and a benchmark of placement drive it.
//!
//! ```text
//! owner --(put_pool, submit, finish, lose, advance ...)--> Simulation --(next_move)--> Scheduler
//!   ^------------------------(settle: Happening ...)-----------|  ^---(hold, release)---|
//! ```
//!
//! It does not go through the coordinator's records: those say how agents are told and what survives a restart, and
//! neither changes who gets what. A [`TraceRun`](crate::TraceRun) does: it plays rules of pools and all else that the core makes of what is
//! submitted.

mod frozen;
mod host;
pub(crate) mod impossible;
mod life;

use std::collections::{BTreeMap, BTreeSet};

use sluice_common::amount::{Amounts, ResourceKey, STEP_RUN};
use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId, Subject};
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::step::OnPreempt;
use sluice_common::time::Time;
use sluice_scheduler::{
    Decision, HostInventory, HostResources, Infeasible, PolicyError, PoolTerms, Request, Run,
    Scheduler, demand,
};

use life::JobLife;

pub use host::HostSize;
use host::SimulatedHost;
pub use impossible::Impossible;

/// A simulated cluster under the scheduler alone.
#[derive(Clone, Debug, Default)]
pub struct Simulation {
    scheduler: Scheduler,
    now: Time,
    submitted: u64,
    jobs: BTreeMap<StepId, JobLife>,
    /// Time since which each frozen job is.
    frozen_since: BTreeMap<StepId, Time>,
    hosts: BTreeMap<NodeName, SimulatedHost>,
    events: Vec<SimulationEvent>,
}

/// What is submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The name, unlike any other.
    pub step: StepId,
    /// On whose behalf.
    pub subject: Subject,
    /// What it asks of each of its hosts; `step_run: 1` is added where absent.
    pub resources: Amounts,
    /// On how many hosts it runs at once.
    pub nodes: u32,
    /// Order among its subject's own.
    pub priority: i64,
    /// Whether it may be preempted.
    pub preemptible: bool,
    /// The one pool that it may run in.
    pub pool: Option<PoolName>,
    /// The platforms that it may run on, the one that it likes best first; none of them: any.
    pub platforms: Vec<PlatformName>,
    /// Number of times it may be tried again.
    pub retries: u32,
    /// Whether preemptions and lost hosts spend none of these.
    pub free_preemptions: bool,
    /// What becomes of it when it is preempted.
    pub on_preempt: OnPreempt,
}

/// What came of it.
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
    /// An empty cluster at a point in time.
    pub fn new(now: Time) -> Self {
        Self {
            now,
            ..Self::default()
        }
    }

    /// Who has what and who waits.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    pub fn now(&self) -> Time {
        self.now
    }

    /// Makes a pool, or gives one other terms.
    pub fn put_pool(&mut self, name: &PoolName, terms: PoolTerms) {
        self.scheduler.put_pool(name, terms);
    }

    /// Binds a subject to a pool.
    ///
    /// # Errors
    /// There is no such pool; the inner error is that the pool cannot keep the policy, which changes nothing.
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

    /// Adds a host that takes work, or changes one, with the model of its GPUs if that is known.
    ///
    /// # Errors
    /// There is no such pool, or no such host can be.
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

    /// Lets a host take work, or no more; what runs there runs on.
    ///
    /// # Errors
    /// There is no such host.
    pub fn open(&mut self, node: &NodeName, open: bool) -> Result<(), Impossible> {
        let host = self.hosts.get(node);
        let host = host.ok_or_else(|| Impossible::UnknownNode(node.clone()))?;
        let size = HostInventory::healthy(host.units, host.hardware.clone());
        self.scheduler.put_host(node, &host.pool, size, open);
        Ok(())
    }

    /// A host is lost with all that runs there.
    ///
    /// # Errors
    /// There is no such host.
    pub fn lose(&mut self, node: &NodeName) -> Result<(), Impossible> {
        self.open(node, false)?;
        for id in self.scheduler.runs_on(node) {
            if !self.end_attempt(&id, JobLife::may_run_again_after_loss) {
                self.events.push(SimulationEvent::Lost { step: id.step });
            }
        }
        Ok(())
    }

    /// A job begins to wait, or is rejected forever: the inner error is why.
    ///
    /// # Errors
    /// A job of its name was submitted before.
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
        let life = JobLife {
            attempts: 0,
            retries_left: job.retries,
            free_preemptions: job.free_preemptions,
            on_preempt: job.on_preempt,
            runs: false,
        };
        self.jobs.insert(job.step.clone(), life);
        Ok(())
    }

    /// A job ends by itself, or is withdrawn where it waits. One that is over already stays so.
    ///
    /// # Errors
    /// Nothing of this name was submitted.
    pub fn finish(&mut self, step: &StepId) -> Result<(), Impossible> {
        let life = self.jobs.get_mut(step);
        let life = life.ok_or_else(|| Impossible::UnknownRequest(step.clone()))?;
        self.frozen_since.remove(step);
        if std::mem::take(&mut life.runs) {
            let id = attempt(step, life.attempts);
            self.scheduler.dequeue(step);
            self.release(&id);
        } else {
            self.scheduler.dequeue(step);
        }
        Ok(())
    }

    /// Lets time pass, with what falls due meanwhile.
    pub fn advance(&mut self, until: Time) {
        while let Some(at) = self.wakes_at().filter(|at| *at < until) {
            self.now = at;
            self.settle();
        }
        self.now = self.now.max(until);
    }

    /// When a caller who waits may be let in though nothing else happens.
    fn wakes_at(&self) -> Option<Time> {
        let pools = self.scheduler.pools();
        let spared = pools.filter_map(|(name, _)| self.scheduler.protected_until(name, self.now));
        spared.chain(self.overdue_at()).min()
    }

    /// Makes every move that there is.
    pub fn settle(&mut self) {
        self.stop_overdue();
        while let Some(next) = self.next_decision() {
            self.make(next);
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

    /// What came of everything since it was asked last, in order.
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
        let life = self.jobs.get_mut(&step).expect("what waits was submitted");
        if let Some(resumes) = &request.resumes {
            self.frozen_since.remove(&step);
            self.scheduler.dequeue(&step);
            self.scheduler.thaw(&resumes.attempt, &backfill);
            return;
        }
        life.attempts += 1;
        life.runs = true;
        let id = attempt(&step, life.attempts);
        self.scheduler.dequeue(&step);
        let named = hosts.iter().map(|node| {
            let gpus = self.name_gpus(node, request.each.gpus());
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

    /// Frees what an attempt holds and lets its job wait again, in its old place, where it may; whether it does.
    fn end_attempt(&mut self, id: &AttemptId, may: impl FnOnce(&mut JobLife) -> bool) -> bool {
        let request = self.scheduler.run(id).map(|run| run.request.clone());
        // What is frozen waits to be resumed no longer.
        self.scheduler.dequeue(&id.step);
        self.frozen_since.remove(&id.step);
        self.release(id);
        let life = self.jobs.get_mut(&id.step);
        let again = life.is_some_and(|life| {
            life.runs = false;
            may(life)
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
        place,
        priority: job.priority,
        preemptible: job.preemptible,
        hosts: job.nodes.max(1),
        each: HostResources::from_amounts(&each),
        demand: demand(&each, job.nodes.max(1)),
        pool: job.pool,
        suspends: job.on_preempt == OnPreempt::Suspend,
        resumes: None,
        avoided_hosts: BTreeSet::new(),
        evictions: Vec::new(),
        takes_default: false,
        platforms: job.platforms,
        accepted_at: None,
        excluded_pools: BTreeSet::new(),
        guards: BTreeMap::new(),
    }
}

/// The reason code of the rule by which a request could never be granted.
fn never_code(never: &Infeasible) -> ReasonCode {
    match never {
        Infeasible::UnknownResource { .. } => ReasonCode::UnknownResource,
        Infeasible::ExceedsPoolCapacity { .. } => ReasonCode::ExceedsPoolCapacity,
        Infeasible::ExceedsLimit { .. } => ReasonCode::ExceedsLimit,
        Infeasible::ExceedsReserved { .. } => ReasonCode::ExceedsReserved,
        Infeasible::ExceedsEntitlement { .. } => ReasonCode::ExceedsEntitlement,
        Infeasible::NoHostFits { .. } => ReasonCode::NoHostFits,
    }
}
