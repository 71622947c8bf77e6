//! Plays a scenario on a simulated cluster and notes what happens.

use std::collections::BTreeMap;
use std::fmt;

use sluice_common::amount::{MCPU, MEMORY_MB, MGPU, MGPU_A_GPU, ResourceKey, STORAGE_MB};
use sluice_common::id::{NodeName, PoolName};
use sluice_common::mig::{GpuClass, MigRequest};
use sluice_common::platform;
use sluice_common::pool::{FairShare, PolicySpec, ResourceTable};
use sluice_common::time::{Span, Time};
use sluice_common::topology::{DomainRequest, TopologySpec};
use sluice_scheduler::PoolTerms;

use super::expected::names;
use super::{Capacity, Case, End, Event, NodePut, PolicyPut, PoolPut, SubmitEvent};
use crate::simulation::{HostSize, Impossible, Job, Simulation, SimulationEvent, impossible};

/// Any time after the beginning of the epoch will do.
const START: Time = Time::from_unix_millis(1_000_000_000);

/// The place of an object in a case, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasePosition {
    /// Among the pools.
    Pool(usize),
    /// Among the nodes.
    Node(usize),
    /// Among the policies.
    Policy(usize),
    /// Among the events.
    Event(usize),
}

/// An error in a case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {impossible}")]
pub struct Fault {
    pub place: CasePosition,
    pub impossible: Impossible,
}

impl fmt::Display for CasePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CasePosition::Pool(n) => write!(f, "pool {n}"),
            CasePosition::Node(n) => write!(f, "node {n}"),
            CasePosition::Policy(n) => write!(f, "policy {n}"),
            CasePosition::Event(n) => write!(f, "event {n}"),
        }
    }
}

/// A case that is being played.
struct ScenarioRun {
    simulation: Simulation,
    end: End,
    /// Whether each pool has one host with all of its capacity.
    one_host_each: bool,
}

impl Case {
    /// Plays the case to its end.
    ///
    /// # Errors
    /// The case names something that does not exist, or the same name twice.
    pub fn play(&self) -> Result<End, Fault> {
        let mut play = ScenarioRun {
            simulation: Simulation::new(START),
            end: End::default(),
            one_host_each: self.nodes.is_none(),
        };
        play.set_up(self)?;
        for (place, event) in numbered(&self.events, CasePosition::Event) {
            play.on_event(event).map_err(|e| fault(place, e))?;
            play.simulation.settle();
            play.note();
        }
        Ok(play.finish())
    }
}

/// The level that the hosts of a request share, if it asks for one; a required one goes first.
fn within(submit: &SubmitEvent) -> Option<DomainRequest> {
    let (required, preferred) = (submit.within.as_ref(), submit.prefer_within.as_ref());
    let level = required.or(preferred)?;
    Some(DomainRequest {
        level: level.clone(),
        required: required.is_some(),
    })
}

fn numbered<T>(
    things: &[T],
    place: fn(usize) -> CasePosition,
) -> impl Iterator<Item = (CasePosition, &T)> {
    (1..).map(place).zip(things)
}

fn fault(place: CasePosition, impossible: Impossible) -> Fault {
    Fault { place, impossible }
}

impl ScenarioRun {
    fn set_up(&mut self, case: &Case) -> Result<(), Fault> {
        for (place, pool) in numbered(&case.pools, CasePosition::Pool) {
            self.put_pool(pool).map_err(|e| fault(place, e))?;
        }
        let levels = case.topology.levels.iter();
        self.simulation
            .set_levels(levels.map(|level| level.name.clone()).collect());
        for (place, node) in numbered(
            case.nodes.as_deref().unwrap_or_default(),
            CasePosition::Node,
        ) {
            self.put_node(node, &case.topology)
                .map_err(|e| fault(place, e))?;
        }
        for (place, policy) in numbered(&case.policies, CasePosition::Policy) {
            self.put_policy(policy).map_err(|e| fault(place, e))?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: &Event) -> Result<(), Impossible> {
        match event {
            Event::Submit(submit) => self.submit(submit),
            Event::Finish { request } => self.simulation.finish(request),
            Event::NodeLost { node } => self.simulation.lose(node),
            Event::NodeBack { node } => self.simulation.open(node, true),
            Event::Drain { node } => self.simulation.open(node, false),
            Event::Advance { seconds } => {
                let until = self.simulation.now() + Span::from_secs(*seconds);
                self.simulation.advance(until);
                Ok(())
            }
            Event::PutPolicy(policy) => self.put_policy(policy),
            Event::PutPool(pool) => self.put_pool(pool),
        }
    }

    fn put_pool(&mut self, pool: &PoolPut) -> Result<(), Impossible> {
        let declared = match &pool.capacity {
            Capacity::Detected => ResourceTable::new(),
            Capacity::Declared(declared) => declared.clone(),
        };
        impossible::amounts(&declared)?;
        let size = whole(&declared);
        let has_host = self.one_host_each && pool.capacity != Capacity::Detected;
        let terms = PoolTerms {
            declared,
            min_runtime: Span::from_secs(pool.min_runtime),
            fair_share: pool.fair_share.map(|it| FairShare {
                half_life: it.half_life,
            }),
            fair_users: pool.fair_users,
            priority_preemption: pool.priority_preemption,
            placement: pool.placement,
            ..PoolTerms::default()
        };
        self.simulation.put_pool(&pool.name, terms);
        if has_host {
            let node = host_of(&pool.name);
            self.simulation.put_host(&node, &pool.name, size, None)?;
        }
        Ok(())
    }

    fn put_node(&mut self, node: &NodePut, topology: &TopologySpec) -> Result<(), Impossible> {
        let size = HostSize {
            gpus: node.gpus,
            mig: node.mig.clone(),
            mcpu: node.mcpu,
            memory_mb: node.memory_mb,
            storage_mb: node.storage_mb,
        };
        let model = node.gpu_model.as_deref();
        self.simulation
            .put_host(&node.name, &node.pool, size, model)?;
        let levels = topology.levels.iter();
        let path = levels.map_while(|level| node.labels.get(level.label.as_str()).cloned());
        self.simulation.put_in_domain(&node.name, path.collect())
    }

    fn put_policy(&mut self, put: &PolicyPut) -> Result<(), Impossible> {
        let policy = PolicySpec {
            priority: put.priority,
            reserved: put.reserved.clone().unwrap_or_default(),
            limit: put.limit.clone().unwrap_or_default(),
            weight: put.weight,
        };
        impossible::amounts(&policy.reserved)?;
        impossible::amounts(&policy.limit)?;
        let subject = put.subject.to_string();
        match self
            .simulation
            .put_policy(&put.pool, &put.subject, policy)?
        {
            Ok(()) => {
                self.end.policy_accepted.insert(subject);
            }
            Err(why) => {
                self.end.reasons.insert(subject.clone(), why.to_string());
                self.end.policy_refused.insert(subject);
            }
        }
        Ok(())
    }

    fn submit(&mut self, submit: &SubmitEvent) -> Result<(), Impossible> {
        let (resources, gpu_class) = with_slices(submit)?;
        impossible::amounts(&resources)?;
        impossible::gang(submit.nodes)?;
        let platforms = submit.platform.as_deref().map(platform::parse_platforms);
        let platforms = platforms.transpose().map_err(Impossible::BadName)?;
        let platforms = platforms.unwrap_or_default();
        let job = Job {
            step: submit.request.clone(),
            subject: submit.subject.clone(),
            user: submit.user.clone(),
            resources: resources.into_iter().collect(),
            nodes: submit.nodes,
            within: within(submit),
            priority: submit.priority,
            preemptible: submit.preemptible,
            pool: submit.pool.clone(),
            platforms: match &gpu_class {
                GpuClass::Whole => platforms,
                GpuClass::Slice(profile) => platform::of_slices_too(platforms, profile.as_str()),
            },
            gpu_class,
            retries: submit.retries,
            free_preemptions: submit.free_preemptions,
            on_preempt: submit.on_preempt,
            time_limit: submit.timeout,
        };
        if let Some(code) = self.simulation.submit(job)?.err() {
            let request = submit.request.to_string();
            self.end.reasons.insert(request.clone(), code.to_string());
            self.end.rejected.insert(request);
        }
        Ok(())
    }

    fn note(&mut self) {
        for happening in self.simulation.events() {
            match happening {
                SimulationEvent::Started { step, hosts } => {
                    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                    self.end.placed.insert(step.to_string(), hosts);
                }
                SimulationEvent::Preempted { step } => {
                    self.end.preempted.insert(step.to_string());
                }
                SimulationEvent::Lost { step } => {
                    self.end.failed.insert(step.to_string());
                }
            }
        }
    }

    fn finish(mut self) -> End {
        let scheduler = self.simulation.scheduler();
        let (frozen, running): (Vec<_>, Vec<_>) =
            scheduler.runs().partition(|(_, run)| run.is_frozen());
        self.end.allocated = names(running.iter().map(|(id, _)| &id.step));
        self.end.suspended = names(frozen.iter().map(|(id, _)| &id.step));
        let waiting = scheduler
            .requests()
            .filter(|request| request.resumes.is_none());
        self.end.queued = names(waiting.map(|request| &request.step));
        self.end
    }
}

/// The amounts that a request asks for, and the class of its GPUs.
fn with_slices(submit: &SubmitEvent) -> Result<(ResourceTable, GpuClass), Impossible> {
    let mut resources = submit.resources.clone();
    let Some(MigRequest { profile, count }) = &submit.mig else {
        return Ok((resources, GpuClass::Whole));
    };
    let key = ResourceKey::new(MGPU).expect("a constant key is well-formed");
    match resources.insert(key, profile.mgpu().saturating_mul(*count)) {
        None | Some(0) => Ok((resources, GpuClass::Slice(profile.clone()))),
        Some(_) => Err(Impossible::TwoClasses(submit.request.clone())),
    }
}

/// The name of a pool's only host in a scenario without nodes: that of the pool.
fn host_of(pool: &PoolName) -> NodeName {
    NodeName::new(pool.as_str()).expect("names of pools and nodes follow one rule")
}

/// Makes a host with the whole declared capacity of a pool.
fn whole(declared: &ResourceTable) -> HostSize {
    let of = |key: &str| declared.get(key).copied();
    HostSize {
        gpus: of(MGPU).unwrap_or(0) / MGPU_A_GPU,
        mig: BTreeMap::new(),
        mcpu: of(MCPU),
        memory_mb: of(MEMORY_MB),
        storage_mb: of(STORAGE_MB),
    }
}
