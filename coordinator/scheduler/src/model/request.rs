//! Requests that wait and runs that hold resources, as the scheduler sees them.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_common::amount::{Amounts, STEP_RUN};
use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId, Subject, UserName};
use sluice_common::image::{Image, ImageKind};
use sluice_common::mig::GpuClass;
use sluice_common::platform;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::time::{Span, Time};
use sluice_common::topology::DomainRequest;

use crate::model::frozen::{FreezeState, GpuUuids, Resumption};
use crate::model::guard::Guard;
use crate::model::replicas::ReplicaGroup;
use crate::model::resources::HostResources;

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub step: StepId,
    pub subject: Subject,
    /// User who submitted the step; `None` if the caller was not a user.
    pub user: Option<UserName>,
    /// Order of first submission.
    pub place: u64,
    /// Order among the requests of its subject; higher goes first.
    pub priority: i64,
    /// Whether the run may be preempted.
    pub preemptible: bool,
    /// Number of distinct hosts that it needs at once; at least 1.
    pub hosts: u32,
    /// Resources on each host.
    pub each: HostResources,
    /// Class of the GPUs in `each`.
    pub class: GpuClass,
    /// Resources of the pool: every key multiplied by the number of hosts, `step_run` once.
    pub demand: Amounts,
    /// The only pool that it may run in; `None` means any.
    pub pool: Option<PoolName>,
    /// Number of the record that accepted the step; pools created later are not open to it. `None` for a request that
    /// is being checked now.
    pub accepted_at: Option<u64>,
    /// Pools in which it may not run, whatever policies say.
    pub excluded_pools: BTreeSet<PoolName>,
    /// Restrictions by the platforms of each pool.
    pub guards: BTreeMap<PoolName, Guard>,
    /// Hosts that it takes only if no other fits: their prolog failed for it before.
    pub avoided_hosts: BTreeSet<NodeName>,
    /// The replicas with which it shares a host only if each host that fits has one; `None` if it is not spread.
    pub spread_in: Option<ReplicaGroup>,
    /// Longest time from its start to its end: the time limit of the step and the grace period after it. `None` is
    /// unlimited.
    pub time_limit: Option<Span>,
    /// Times at which the step was stopped by priority, oldest first; at most [`crate::MAX_EVICTIONS`].
    pub evictions: Vec<Time>,
    /// Whether it prefers to be frozen rather than stopped when preempted.
    pub suspends: bool,
    /// The frozen run that it resumes; `None` for a new start.
    pub resumes: Option<Box<Resumption>>,
    /// Platforms that it may run on, most preferred first; empty means any.
    pub platforms: Vec<PlatformName>,
    /// Whether the step names no platform and takes the pool's default.
    pub takes_default: bool,
    /// Level of the topology within which its hosts are near to each other.
    pub within: Option<DomainRequest>,
    /// Form of the image that its hosts must be able to run; `None` if it runs on the host itself.
    pub image: Option<ImageKind>,
}

/// A run that holds resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The request that was granted; its `pool` may differ from the pool of the run.
    pub request: Request,
    /// The pool that granted it.
    pub pool: PoolName,
    /// Hosts whose resources it still holds.
    pub holding: BTreeSet<NodeName>,
    pub granted: Time,
    /// When it started, if it did.
    pub started: Option<Time>,
    /// When it last saved a checkpoint, if it did.
    pub saved: Option<Time>,
    /// Whether it is stopping or has ended; its resources are released without a decision.
    pub stopping: bool,
    /// Waiting requests that it went past; they may take its resources back.
    pub backfill: BTreeSet<StepId>,
    /// GPUs of the run by host.
    pub gpus: BTreeMap<NodeName, GpuUuids>,
    /// Set while it is frozen or being frozen.
    pub frozen: Option<Box<FreezeState>>,
}

/// When a run started, until when it is protected from priority, and when it ends at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunTimes {
    pub(crate) start: Time,
    pub(crate) protected_until: Option<Time>,
    pub(crate) latest_end: Option<Time>,
}

/// Work of a run that is lost if it stops: thousandths of GPU-seconds (of core-seconds without GPUs, which count whole
/// cores) since it started or last saved a checkpoint. A run that has not started loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunWork {
    /// When the run started or last saved a checkpoint; `None` if it has not started.
    since: Option<Time>,
    /// Thousandths of a GPU, or of a core without GPUs.
    per_second: u128,
    pub(crate) has_gpus: bool,
    /// Whether the run can be frozen instead of stopped, so that nothing is lost.
    pub(crate) is_kept_frozen: bool,
}

impl RunWork {
    /// Time since the run started or last saved a checkpoint; none if it has not started.
    pub(crate) fn elapsed(self, now: Time) -> Span {
        self.since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// The work until a time. Only whole seconds count, so that the choice of victims does not depend on how fast
    /// a host starts processes.
    pub(crate) fn until(self, now: Time) -> u128 {
        let seconds = self.elapsed(now).millis() / Span::from_secs(1).millis();
        self.per_second * u128::from(seconds)
    }
}

/// The platforms that a step asks for; for slices, a model of GPUs means its slices too. Malformed names were rejected
/// at submission.
fn asked_by(spec: &StepSpec) -> Vec<PlatformName> {
    let asked = spec.platform.as_deref().map(platform::parse_platforms);
    let asked = asked.and_then(Result::ok).unwrap_or_default();
    match &spec.resources.mig {
        None => asked,
        Some(mig) => platform::of_slices_too(asked, mig.profile.as_str()),
    }
}

/// The demand on a pool of `hosts` hosts that take `each`.
pub fn demand(each: &Amounts, hosts: u32) -> Amounts {
    each.iter()
        .map(|(key, n)| match key.as_str() {
            STEP_RUN => (key.clone(), n),
            _ => (key.clone(), n.saturating_mul(u64::from(hosts))),
        })
        .collect()
}

/// Groups requests of one subject that are alike for every rule but their place: if the first must wait, all must. A
/// later one may run in newer pools too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestClass {
    preemptible: bool,
    hosts: u32,
    each: HostResources,
    class: GpuClass,
    demand: Amounts,
    pool: Option<PoolName>,
    platforms: Vec<PlatformName>,
    takes_default: bool,
    within: Option<DomainRequest>,
    image: Option<ImageKind>,
    excluded_pools: BTreeSet<PoolName>,
    guards: BTreeMap<PoolName, Guard>,
    priority: i64,
    time_limit: Option<Span>,
    /// User, if the pool shares fairly among users.
    user: Option<UserName>,
    /// A frozen run is alike to itself only.
    resumes: Option<AttemptId>,
}

impl Request {
    /// The request of a step at a place in the queue.
    pub fn from_spec(step: StepId, place: u64, spec: &StepSpec) -> Self {
        Self {
            step,
            subject: spec.subject.clone(),
            user: spec.submitted_by.clone(),
            place,
            priority: spec.priority,
            preemptible: spec.preemptible,
            hosts: spec.nodes.max(1),
            each: HostResources::from_amounts(&spec.request),
            class: spec.gpu_class(),
            demand: demand(&spec.request, spec.nodes.max(1)),
            pool: spec.pool.clone(),
            accepted_at: None,
            excluded_pools: BTreeSet::new(),
            guards: BTreeMap::new(),
            avoided_hosts: BTreeSet::new(),
            spread_in: ReplicaGroup::of(spec),
            time_limit: spec.timeout.map(|timeout| timeout + spec.grace),
            evictions: Vec::new(),
            suspends: spec.on_preempt == OnPreempt::Suspend,
            resumes: None,
            platforms: asked_by(spec),
            takes_default: spec.platform.is_none(),
            within: spec.within.clone(),
            image: spec.image.as_ref().map(Image::form),
        }
    }

    /// The same request with other amounts on each host.
    pub fn with_amounts(&self, amounts: &Amounts) -> Self {
        Self {
            each: HostResources::from_amounts(amounts),
            demand: demand(amounts, self.hosts),
            ..self.clone()
        }
    }

    /// Class of the GPUs that it asks for; `None` if it asks for none.
    pub(crate) fn gpu_class(&self) -> Option<&GpuClass> {
        (self.each.mgpu() > 0).then_some(&self.class)
    }

    /// Whether it may run in a pool that was created by record `made`, if its subject has a policy there.
    pub fn may_run_in(&self, name: &PoolName, made: u64) -> bool {
        self.pool.as_ref().is_none_or(|only| only == name)
            && !self.excluded_pools.contains(name)
            && !self.is_older_than(made)
    }

    /// Whether it was accepted before the pool was created. Frozen runs stay in the pool in which they started.
    pub fn is_older_than(&self, made: u64) -> bool {
        self.accepted_at.is_some_and(|at| at < made) && self.resumes.is_none()
    }

    /// The class of the request; `by_user` if requests of different users are not alike.
    pub(crate) fn class(&self, by_user: bool) -> RequestClass {
        RequestClass {
            preemptible: self.preemptible,
            hosts: self.hosts,
            each: self.each,
            class: self.class.clone(),
            demand: self.demand.clone(),
            pool: self.pool.clone(),
            platforms: self.platforms.clone(),
            takes_default: self.takes_default,
            within: self.within.clone(),
            image: self.image,
            excluded_pools: self.excluded_pools.clone(),
            guards: self.guards.clone(),
            priority: self.priority,
            time_limit: self.time_limit,
            user: self.user.clone().filter(|_| by_user),
            resumes: self.resumes.as_ref().map(|it| it.attempt.clone()),
        }
    }
}

impl RequestClass {
    /// The group of the class: the same for all that differ only in amounts other than GPUs, and in their time limits.
    pub(crate) fn group(&self) -> RequestClass {
        let keys = self.demand.iter().map(|(key, _)| (key.clone(), 1));
        RequestClass {
            each: HostResources::default().with_mgpu(self.each.mgpu()),
            demand: keys.collect(),
            time_limit: None,
            ..self.clone()
        }
    }

    /// Demand and time limit of its requests.
    pub(crate) fn size(&self) -> (&Amounts, Option<Span>) {
        (&self.demand, self.time_limit)
    }
}

impl Run {
    /// The work that stopping the run would lose.
    pub(crate) fn unsaved_work(&self) -> RunWork {
        let Request { each, hosts, .. } = &self.request;
        let per_host = match each.mgpu() {
            0 => each.mcpu() - each.mcpu() % 1000,
            mgpu => mgpu,
        };
        let saved = |start: Time| self.saved.map_or(start, |saved| saved.max(start));
        RunWork {
            since: self.started.map(saved),
            per_second: u128::from(per_host) * u128::from(*hosts),
            has_gpus: each.mgpu() > 0,
            is_kept_frozen: self.may_be_frozen(),
        }
    }

    /// When the run started, or when it was granted if it has not started.
    pub(crate) fn start_time(&self) -> Time {
        self.started.unwrap_or(self.granted)
    }

    /// Time at which it ends at the latest; `None` if nothing bounds it.
    pub fn latest_end(&self) -> Option<Time> {
        let limit = self.request.time_limit?;
        Some(self.start_time() + limit)
    }
}

/// Resources by host.
pub(crate) type ResourcesByHost = BTreeMap<NodeName, HostResources>;

#[cfg(test)]
mod tests {
    use sluice_common::amount::MCPU;

    use super::*;

    impl Request {
        /// A preemptible request for amounts on each of some hosts.
        pub(crate) fn for_tests(each: &Amounts, hosts: u32) -> Self {
            Self {
                step: "a".parse().unwrap(),
                subject: "s".parse().unwrap(),
                user: None,
                place: 0,
                priority: 0,
                preemptible: true,
                hosts,
                each: HostResources::from_amounts(each),
                class: GpuClass::Whole,
                demand: demand(each, hosts),
                pool: None,
                accepted_at: None,
                excluded_pools: BTreeSet::new(),
                guards: BTreeMap::new(),
                avoided_hosts: BTreeSet::new(),
                spread_in: None,
                time_limit: None,
                evictions: Vec::new(),
                suspends: false,
                resumes: None,
                platforms: Vec::new(),
                takes_default: false,
                within: None,
                image: None,
            }
        }
    }

    #[test]
    fn a_run_costs_what_it_holds_times_the_whole_seconds_since_its_start() {
        let start = Time::from_unix_millis(1_000_000);
        let each = Amounts::new().with_gpus(4).with(MCPU, 9000);
        let request = Request::for_tests(&each, 2);
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
        for (millis, work) in [(0, 0), (999, 0), (1000, 8000), (2999, 16_000)] {
            assert_eq!(
                run.unsaved_work().until(start + Span::from_millis(millis)),
                work
            );
        }
        run.request.each = HostResources::from_amounts(&Amounts::new().with(MCPU, 9000));
        assert_eq!(run.unsaved_work().until(start + Span::from_secs(1)), 18_000);
        run.saved = Some(start + Span::from_secs(60));
        assert_eq!(
            run.unsaved_work().until(start + Span::from_secs(61)),
            18_000,
            "from there"
        );
        run.started = Some(start + Span::from_secs(60));
        run.saved = Some(start);
        assert_eq!(
            run.unsaved_work().until(start + Span::from_secs(61)),
            18_000,
            "never before"
        );
        run.started = None;
        assert_eq!(run.unsaved_work().until(start + Span::from_secs(1)), 0);
    }
}
