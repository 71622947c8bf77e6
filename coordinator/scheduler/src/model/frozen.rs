//! Suspended runs: what a run keeps while it is frozen, what it releases, and the request with which it waits to be
//! resumed. A frozen run keeps its memory and releases all else; it waits on its own host, for its own GPUs if it had
//! any.
//!
//! ```text
//!          suspend              freeze              thaw (granted again)
//! run --------------> freezing --------> frozen ------------------------------> run
//!                         \________________/  stop: like any other run
//! ```

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;

use sluice_common::amount::{Amounts, MEMORY_MB};
use sluice_common::id::{AttemptId, NodeName};

use crate::model::request::{Request, Run};
use crate::model::resources::HostResources;

/// UUIDs of GPUs.
pub(crate) type GpuUuids = BTreeSet<String>;

/// Progress of freezing a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreezeState {
    /// Whether the run is frozen; else freezing is under way.
    pub(crate) is_done: bool,
    /// Resources that the run holds now.
    held: Holdings,
    /// Resources that the run keeps while frozen.
    retained: Holdings,
}

/// Resources of one host as the host counts them and as the pool counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holdings {
    each: HostResources,
    demand: Amounts,
}

/// The host and GPUs that a frozen run waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumption {
    pub attempt: AttemptId,
    pub node: NodeName,
    pub(crate) gpus: GpuUuids,
    /// Resources that the run keeps meanwhile.
    pub(crate) retained: Amounts,
}

impl Holdings {
    fn whole(request: &Request) -> Self {
        Self {
            each: request.each,
            demand: request.demand.clone(),
        }
    }

    /// The memory of a request, plus `moved_mb`.
    fn memory(request: &Request, moved_mb: u64) -> Self {
        let asked = request.demand.get(MEMORY_MB);
        let demand = Amounts::new().with(MEMORY_MB, asked.saturating_add(moved_mb));
        Self {
            each: HostResources::from_amounts(&demand),
            demand,
        }
    }

    fn plus_memory(mut self, mb: u64) -> Self {
        let more = Amounts::new().with(MEMORY_MB, mb);
        self.each = self.each.plus(HostResources::from_amounts(&more));
        self.demand.add(&more);
        self
    }
}

impl FreezeState {
    /// A run that is being frozen: all that it held, plus room for the GPU memory that is moved to the host.
    pub fn freezing(request: &Request, room_mb: u64) -> Box<Self> {
        Box::new(Self {
            is_done: false,
            held: Holdings::whole(request).plus_memory(room_mb),
            retained: Holdings::memory(request, room_mb),
        })
    }

    /// A frozen run, with `moved_mb` of GPU memory moved to the host.
    pub fn frozen(request: &Request, moved_mb: u64) -> Box<Self> {
        let retained = Holdings::memory(request, moved_mb);
        Box::new(Self {
            is_done: true,
            held: retained.clone(),
            retained,
        })
    }
}

impl Run {
    /// Resources that the run holds on each of its hosts.
    pub(crate) fn each(&self) -> HostResources {
        let frozen = self.frozen.as_ref();
        frozen.map_or(self.request.each, |frozen| frozen.held.each)
    }

    /// Resources that the run holds of its pool.
    pub fn demand(&self) -> &Amounts {
        let frozen = self.frozen.as_ref();
        frozen.map_or(&self.request.demand, |frozen| &frozen.held.demand)
    }

    /// Whether the run is frozen and has freed its GPUs.
    pub fn is_frozen(&self) -> bool {
        self.frozen.as_ref().is_some_and(|frozen| frozen.is_done)
    }

    /// Whether the run is stopping or freezing or has ended: its resources are released without a decision.
    pub fn is_releasing(&self) -> bool {
        self.stopping || self.is_freezing()
    }

    pub(crate) fn is_freezing(&self) -> bool {
        self.frozen.as_ref().is_some_and(|frozen| !frozen.is_done)
    }

    /// Resources that the run will release on each of its hosts and in its pool: all, or all but its memory if it is
    /// being frozen.
    pub(crate) fn releases(&self) -> (HostResources, Amounts) {
        match &self.frozen {
            Some(frozen) if !self.stopping && !frozen.is_done => (
                frozen.held.each.less(frozen.retained.each),
                frozen.held.demand.saturating_sub(&frozen.retained.demand),
            ),
            Some(_) | None => (self.each(), self.demand().clone()),
        }
    }

    /// Resources that freezing the run would release.
    pub(crate) fn releases_when_frozen(&self) -> (HostResources, Amounts) {
        let retained = Holdings::memory(&self.request, 0);
        (
            self.request.each.less(retained.each),
            self.request.demand.saturating_sub(&retained.demand),
        )
    }

    /// Whether the run may be frozen instead of stopped: the step allows it, and the run has started and uses one
    /// host. Parts of a gang would lose each other, and a run that has not started loses nothing.
    pub(crate) fn may_be_frozen(&self) -> bool {
        let stays = self.frozen.is_none() && !self.stopping;
        stays && self.request.suspends && self.request.hosts == 1 && self.started.is_some()
    }

    /// The GPUs that the run holds on a host.
    pub fn gpus_on(&self, node: &NodeName) -> Option<&GpuUuids> {
        let holds = !self.is_frozen() && self.holding.contains(node);
        self.gpus.get(node).filter(|_| holds)
    }

    /// The request with which a frozen run waits to be resumed.
    pub(crate) fn resumption(&self, attempt: &AttemptId) -> Option<Request> {
        let frozen = self.frozen.as_ref().filter(|frozen| frozen.is_done)?;
        let node = self.holding.first()?.clone();
        let resumes = Resumption {
            attempt: attempt.clone(),
            gpus: self.gpus.get(&node).cloned().unwrap_or_default(),
            node,
            retained: frozen.retained.demand.clone(),
        };
        Some(Request {
            each: self.request.each.less(frozen.retained.each),
            demand: self.request.demand.saturating_sub(&frozen.retained.demand),
            pool: Some(self.pool.clone()),
            resumes: Some(Box::new(resumes)),
            ..self.request.clone()
        })
    }
}
