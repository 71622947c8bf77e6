//! Runs that are frozen, or on their way to be: what they keep, what they give back, and the request that they wait
//! with. A frozen run keeps its memory and gives back every other key; it waits for these on its own host and, where
//! it had GPUs, for its own GPUs.
//!
//! ```text
//!          suspend              freeze              thaw (it was granted again)
//! run --------------> freezing --------> frozen ------------------------------> run
//!                         \________________/  stop: it goes like any other run
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

/// How a run that is or will be frozen stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreezeState {
    /// Whether it is; else it is on its way there.
    pub(crate) is_done: bool,
    /// What it holds now.
    held: Holdings,
    /// What it keeps, or will.
    kept: Holdings,
}

/// Units on one host, as the host counts them and as the pool does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holdings {
    each: HostResources,
    demand: Amounts,
}

/// What a request of a frozen run waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumption {
    pub attempt: AttemptId,
    pub node: NodeName,
    pub(crate) gpus: GpuUuids,
    /// What it keeps meanwhile.
    pub(crate) kept: Amounts,
}

impl Holdings {
    fn whole(request: &Request) -> Self {
        Self {
            each: request.each,
            demand: request.demand.clone(),
        }
    }

    /// The memory that a request asks for, and `moved_mb` more.
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
    /// A run on its way: it holds all that it did, and room for what will be moved from its GPUs.
    pub fn freezing(request: &Request, room_mb: u64) -> Box<Self> {
        Box::new(Self {
            is_done: false,
            held: Holdings::whole(request).plus_memory(room_mb),
            kept: Holdings::memory(request, room_mb),
        })
    }

    /// A run that is frozen, for which so much was moved from its GPUs.
    pub fn frozen(request: &Request, moved_mb: u64) -> Box<Self> {
        let kept = Holdings::memory(request, moved_mb);
        Box::new(Self {
            is_done: true,
            held: kept.clone(),
            kept,
        })
    }
}

impl Run {
    /// What it holds on each of its hosts.
    pub(crate) fn each(&self) -> HostResources {
        let frozen = self.frozen.as_ref();
        frozen.map_or(self.request.each, |frozen| frozen.held.each)
    }

    /// What it holds of its pool.
    pub fn demand(&self) -> &Amounts {
        let frozen = self.frozen.as_ref();
        frozen.map_or(&self.request.demand, |frozen| &frozen.held.demand)
    }

    /// Whether it is frozen.
    pub fn is_frozen(&self) -> bool {
        self.frozen.as_ref().is_some_and(|frozen| frozen.is_done)
    }

    /// Whether it was told to go, or to be frozen, or has ended: what it gives back comes by itself.
    pub fn is_releasing(&self) -> bool {
        self.stopping || self.is_freezing()
    }

    /// Whether it is on its way to be frozen.
    pub(crate) fn is_freezing(&self) -> bool {
        self.frozen.as_ref().is_some_and(|frozen| !frozen.is_done)
    }

    /// What comes back of it, on each of its hosts and in its pool: all but its memory where it is to be frozen, and all
    /// when it goes.
    pub(crate) fn releases(&self) -> (HostResources, Amounts) {
        match &self.frozen {
            Some(frozen) if !self.stopping && !frozen.is_done => (
                frozen.held.each.less(frozen.kept.each),
                frozen.held.demand.saturating_sub(&frozen.kept.demand),
            ),
            Some(_) | None => (self.each(), self.demand().clone()),
        }
    }

    /// What would come back if it were frozen.
    pub(crate) fn releases_when_frozen(&self) -> (HostResources, Amounts) {
        let kept = Holdings::memory(&self.request, 0);
        (
            self.request.each.less(kept.each),
            self.request.demand.saturating_sub(&kept.demand),
        )
    }

    /// Whether it may be frozen rather than stopped: where it says so, has begun and runs on one host. The parts of a gang
    /// would lose each other, and one that has not begun loses nothing by starting later.
    pub(crate) fn may_be_frozen(&self) -> bool {
        let stays = self.frozen.is_none() && !self.stopping;
        stays && self.request.suspends && self.request.hosts == 1 && self.started.is_some()
    }

    /// The GPUs that it holds on a host.
    pub fn gpus_on(&self, node: &NodeName) -> Option<&GpuUuids> {
        let holds = !self.is_frozen() && self.holding.contains(node);
        self.gpus.get(node).filter(|_| holds)
    }

    /// The request that it waits with while it is frozen.
    pub(crate) fn resumption(&self, attempt: &AttemptId) -> Option<Request> {
        let frozen = self.frozen.as_ref().filter(|frozen| frozen.is_done)?;
        let node = self.holding.first()?.clone();
        let resumes = Resumption {
            attempt: attempt.clone(),
            gpus: self.gpus.get(&node).cloned().unwrap_or_default(),
            node,
            kept: frozen.kept.demand.clone(),
        };
        Some(Request {
            each: self.request.each.less(frozen.kept.each),
            demand: self.request.demand.saturating_sub(&frozen.kept.demand),
            pool: Some(self.pool.clone()),
            resumes: Some(Box::new(resumes)),
            ..self.request.clone()
        })
    }
}
