//! What waits and what runs, as far as scheduling sees it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_common::amount::{Amounts, STEP_RUN};
use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId, Subject};
use sluice_common::platform;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::time::{Span, Time};

use crate::model::frozen::{FreezeState, GpuUuids, Resumption};
use crate::model::guard::Guard;
use crate::model::resources::HostResources;

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub step: StepId,
    /// On whose behalf.
    pub subject: Subject,
    /// When it was submitted first, in order.
    pub place: u64,
    /// Order among the requests of its subject; higher goes first.
    pub priority: i64,
    /// Whether it may be made to give way once it runs.
    pub preemptible: bool,
    /// On how many distinct hosts it runs at once; at least 1.
    pub hosts: u32,
    /// What it takes of each of them.
    pub each: HostResources,
    /// What it takes of its pool: every key as often as there are hosts, `step_run` once.
    pub demand: Amounts,
    /// The one pool that it may run in; `None` leaves the choice.
    pub pool: Option<PoolName>,
    /// The number of the record that accepted it: pools that were made later did not judge it. `None` for one that is judged
    /// now.
    pub accepted_at: Option<u64>,
    /// Pools in which it may not run, whoever has a policy there.
    pub excluded_pools: BTreeSet<PoolName>,
    /// What platforms of pools do not allow of it: it runs on no host of such hardware.
    pub guards: BTreeMap<PoolName, Guard>,
    /// Hosts that it takes only where no other has room for it: their prolog has failed before it.
    pub avoided_hosts: BTreeSet<NodeName>,
    /// Whether it would rather be frozen than stopped when it gives way.
    pub suspends: bool,
    /// The frozen run that it would go on with; `None` where it would start anew.
    pub resumes: Option<Box<Resumption>>,
    /// The platforms that it may run on, the one that it likes best first; none of them: any.
    pub platforms: Vec<PlatformName>,
    /// Whether it says nothing of platforms, and takes the default of its pool.
    pub takes_default: bool,
}

/// A run that holds units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What it was before; its own pool may be another now than it named.
    pub request: Request,
    /// The pool that granted it.
    pub pool: PoolName,
    /// Hosts whose units it still holds.
    pub holding: BTreeSet<NodeName>,
    /// When it was granted.
    pub granted: Time,
    /// When it began to work, if it did.
    pub started: Option<Time>,
    /// When it last saved its work, if it did.
    pub saved: Option<Time>,
    /// Whether it is being stopped, or has ended: its units come back by themselves.
    pub stopping: bool,
    /// The waiters around which it was granted: they may take it back.
    pub backfill: BTreeSet<StepId>,
    /// The GPUs that it was given, by host.
    pub gpus: BTreeMap<NodeName, GpuUuids>,
    /// Where it is frozen, or to be.
    pub frozen: Option<Box<FreezeState>>,
}

/// The platforms that a step asks for. What is no name was refused when it was submitted.
fn asked_by(spec: &StepSpec) -> Vec<PlatformName> {
    let asked = spec.platform.as_deref().map(platform::parse_platforms);
    asked.and_then(Result::ok).unwrap_or_default()
}

/// What `each` of `hosts` hosts gives, as a pool counts it.
pub fn demand(each: &Amounts, hosts: u32) -> Amounts {
    each.iter()
        .map(|(key, n)| match key.as_str() {
            STEP_RUN => (key.clone(), n),
            _ => (key.clone(), n.saturating_mul(u64::from(hosts))),
        })
        .collect()
}

/// What makes requests of one subject alike for every rule but their place: where the first of them must wait, all do.
/// One that was submitted later may run in newer pools besides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestClass {
    preemptible: bool,
    hosts: u32,
    each: HostResources,
    demand: Amounts,
    pool: Option<PoolName>,
    platforms: Vec<PlatformName>,
    takes_default: bool,
    excluded_pools: BTreeSet<PoolName>,
    guards: BTreeMap<PoolName, Guard>,
    priority: i64,
    /// What is frozen goes on with itself alone.
    resumes: Option<AttemptId>,
}

impl Request {
    /// What a step asks for, at its place.
    pub fn from_spec(step: StepId, place: u64, spec: &StepSpec) -> Self {
        Self {
            step,
            subject: spec.subject.clone(),
            place,
            priority: spec.priority,
            preemptible: spec.preemptible,
            hosts: spec.nodes.max(1),
            each: HostResources::from_amounts(&spec.request),
            demand: demand(&spec.request, spec.nodes.max(1)),
            pool: spec.pool.clone(),
            accepted_at: None,
            excluded_pools: BTreeSet::new(),
            guards: BTreeMap::new(),
            avoided_hosts: BTreeSet::new(),
            suspends: spec.on_preempt == OnPreempt::Suspend,
            resumes: None,
            platforms: asked_by(spec),
            takes_default: spec.platform.is_none(),
        }
    }

    /// The same request for other amounts on each host.
    pub fn with_amounts(&self, amounts: &Amounts) -> Self {
        Self {
            each: HostResources::from_amounts(amounts),
            demand: demand(amounts, self.hosts),
            ..self.clone()
        }
    }

    /// Whether it may run in a pool in which its subject has a policy and that was made by the record of number `made`: in
    /// none that it was not judged for.
    pub fn may_run_in(&self, name: &PoolName, made: u64) -> bool {
        self.pool.as_ref().is_none_or(|only| only == name)
            && !self.excluded_pools.contains(name)
            && !self.is_older_than(made)
    }

    /// Whether it was judged before a pool was made. What is frozen was started there, and goes on.
    pub fn is_older_than(&self, made: u64) -> bool {
        self.accepted_at.is_some_and(|at| at < made) && self.resumes.is_none()
    }

    pub(crate) fn class(&self) -> RequestClass {
        RequestClass {
            preemptible: self.preemptible,
            hosts: self.hosts,
            each: self.each,
            demand: self.demand.clone(),
            pool: self.pool.clone(),
            platforms: self.platforms.clone(),
            takes_default: self.takes_default,
            excluded_pools: self.excluded_pools.clone(),
            guards: self.guards.clone(),
            priority: self.priority,
            resumes: self.resumes.as_ref().map(|it| it.attempt.clone()),
        }
    }
}

impl Run {
    /// What its loss would cost now, in seconds of a GPU, or of a core where it holds none, since it began or last saved
    /// its work. A run that has not begun costs nothing. Only whole seconds of its age count: who gives way must not hang on how fast a host starts.
    pub(crate) fn work(&self, now: Time) -> u128 {
        let since = self
            .started
            .map(|start_time| self.saved.map_or(start_time, |saved| saved.max(start_time)));
        let age = since.map_or(Span::ZERO, |since| now.since(since));
        let elapsed = age.millis() / Span::from_secs(1).millis();
        let Request { each, hosts, .. } = &self.request;
        let per_host = match each.gpus() {
            0 => u128::from(each.mcpu()) / 1000,
            gpus => u128::from(gpus),
        };
        per_host * u128::from(*hosts) * u128::from(elapsed)
    }

    /// When the attempt began: its start, or its grant where it has not started.
    pub(crate) fn start_time(&self) -> Time {
        self.started.unwrap_or(self.granted)
    }
}

/// Units by host.
pub(crate) type ResourcesByHost = BTreeMap<NodeName, HostResources>;

#[cfg(test)]
mod tests {
    use sluice_common::amount::{GPU, MCPU};

    use super::*;

    #[test]
    fn a_run_costs_what_it_holds_times_the_whole_seconds_since_its_start() {
        let start = Time::from_unix_millis(1_000_000);
        let each = Amounts::new().with(GPU, 4).with(MCPU, 9000);
        let request = Request {
            step: "a".parse().unwrap(),
            subject: "s".parse().unwrap(),
            place: 0,
            priority: 0,
            preemptible: true,
            hosts: 2,
            each: HostResources::from_amounts(&each),
            demand: demand(&each, 2),
            pool: None,
            accepted_at: None,
            excluded_pools: BTreeSet::new(),
            guards: BTreeMap::new(),
            avoided_hosts: BTreeSet::new(),
            suspends: false,
            resumes: None,
            platforms: Vec::new(),
            takes_default: false,
        };
        let mut run = Run {
            request,
            pool: "p".parse().unwrap(),
            holding: BTreeSet::new(),
            granted: start,
            started: Some(start),
            saved: None,
            stopping: false,
            backfill: BTreeSet::new(),
            gpus: BTreeMap::new(),
            frozen: None,
        };
        for (millis, work) in [(0, 0), (999, 0), (1000, 8), (2999, 16)] {
            assert_eq!(run.work(start + Span::from_millis(millis)), work);
        }
        run.request.each = HostResources::from_amounts(&Amounts::new().with(MCPU, 9000));
        assert_eq!(run.work(start + Span::from_secs(1)), 18);
        run.saved = Some(start + Span::from_secs(60));
        assert_eq!(run.work(start + Span::from_secs(61)), 18, "from there");
        run.started = Some(start + Span::from_secs(60));
        run.saved = Some(start);
        assert_eq!(run.work(start + Span::from_secs(61)), 18, "never before");
        run.started = None;
        assert_eq!(run.work(start + Span::from_secs(1)), 0);
    }
}
