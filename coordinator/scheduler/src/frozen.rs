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
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::{Amounts, MEMORY_MB};
use sluice_common::id::{AttemptId, NodeName, StepId};

use super::Market;
use super::fit::Before;
use super::nomination::Kept;
use super::request::{Request, Run};
use crate::ranks::Ranks;
use crate::units::HostUnits;

/// UUIDs of GPUs.
pub(crate) type Gpus = BTreeSet<String>;

/// How a run that is or will be frozen stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// Whether it is; else it is on its way there.
    pub(crate) is_done: bool,
    /// What it holds now.
    held: Units,
    /// What it keeps, or will.
    kept: Units,
}

/// Units on one host, as the host counts them and as the pool does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Units {
    each: HostUnits,
    demand: Amounts,
}

/// What a request of a frozen run waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// The run.
    pub attempt: AttemptId,
    /// Its host.
    pub node: NodeName,
    /// Its GPUs.
    pub(crate) gpus: Gpus,
    /// What it keeps meanwhile.
    pub(crate) kept: Amounts,
}

impl Units {
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
            each: HostUnits::of(&demand),
            demand,
        }
    }

    fn plus_memory(mut self, mb: u64) -> Self {
        let more = Amounts::new().with(MEMORY_MB, mb);
        self.each = self.each.plus(HostUnits::of(&more));
        self.demand.add(&more);
        self
    }
}

impl Frozen {
    /// A run on its way: it holds all that it did, and room for what will be moved from its GPUs.
    pub fn freezing(request: &Request, room_mb: u64) -> Box<Self> {
        Box::new(Self {
            is_done: false,
            held: Units::whole(request).plus_memory(room_mb),
            kept: Units::memory(request, room_mb),
        })
    }

    /// A run that is frozen, for which so much was moved from its GPUs.
    pub fn done(request: &Request, moved_mb: u64) -> Box<Self> {
        let kept = Units::memory(request, moved_mb);
        Box::new(Self {
            is_done: true,
            held: kept.clone(),
            kept,
        })
    }
}

impl Run {
    /// What it holds on each of its hosts.
    pub(crate) fn each(&self) -> HostUnits {
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
    pub fn is_leaving(&self) -> bool {
        self.stopping || self.is_freezing()
    }

    fn is_freezing(&self) -> bool {
        self.frozen.as_ref().is_some_and(|frozen| !frozen.is_done)
    }

    /// What comes back of it, on each of its hosts and in its pool: all but its memory where it is to be frozen, and all
    /// when it goes.
    pub(crate) fn gives(&self) -> (HostUnits, Amounts) {
        match &self.frozen {
            Some(frozen) if !self.stopping && !frozen.is_done => (
                frozen.held.each.less(frozen.kept.each),
                frozen.held.demand.less(&frozen.kept.demand),
            ),
            Some(_) | None => (self.each(), self.demand().clone()),
        }
    }

    /// What would come back if it were frozen.
    pub(crate) fn gives_when_frozen(&self) -> (HostUnits, Amounts) {
        let kept = Units::memory(&self.request, 0);
        (
            self.request.each.less(kept.each),
            self.request.demand.less(&kept.demand),
        )
    }

    /// Whether it may be frozen rather than stopped: where it says so, has begun and runs on one host. The parts of a gang
    /// would lose each other, and one that has not begun loses nothing by starting later.
    pub(crate) fn may_be_frozen(&self) -> bool {
        let stays = self.frozen.is_none() && !self.stopping;
        stays && self.request.suspends && self.request.hosts == 1 && self.started.is_some()
    }

    /// The GPUs that it holds on a host.
    pub fn gpus_on(&self, node: &NodeName) -> Option<&Gpus> {
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
            demand: self.request.demand.less(&frozen.kept.demand),
            pool: Some(self.pool.clone()),
            resumes: Some(Box::new(resumes)),
            ..self.request.clone()
        })
    }
}

impl Market {
    /// A run is to be frozen: all but its memory comes back by itself. Until it has, room for what will be moved from its
    /// GPUs is taken.
    pub fn suspend(&mut self, attempt: &AttemptId, room_mb: u64) {
        if let Some(mut run) = self.lift(attempt) {
            run.frozen = Some(Frozen::freezing(&run.request, room_mb));
            self.hold(attempt, run);
        }
    }

    /// A run is frozen: it keeps its memory, and what was moved from its GPUs.
    pub fn freeze(&mut self, attempt: &AttemptId, moved_mb: u64) {
        let Some(mut run) = self.lift(attempt) else {
            return;
        };
        run.frozen = Some(Frozen::done(&run.request, moved_mb));
        run.backfill = BTreeSet::new();
        self.hold(attempt, run);
        self.await_no_more(attempt);
    }

    /// What others waited for of a run has come.
    pub fn await_no_more(&mut self, attempt: &AttemptId) {
        for waiter in self.awaiting.remove(attempt).into_iter().flatten() {
            if let Some(nomination) = self.nominations.get_mut(&waiter) {
                nomination.awaits.remove(attempt);
            }
        }
    }

    /// A run holds again all that it asks for; `backfill` are the waiters around which that was granted.
    pub fn thaw(&mut self, attempt: &AttemptId, backfill: &BTreeSet<StepId>) {
        if let Some(mut run) = self.lift(attempt) {
            run.frozen = None;
            run.backfill = backfill.clone();
            self.hold(attempt, run);
        }
    }

    /// A frozen run begins to wait for what it gave back.
    pub fn await_resumption(&mut self, attempt: &AttemptId) {
        let request = self.runs.get(attempt).and_then(|r| r.resumption(attempt));
        if let Some(request) = request {
            self.enqueue(request);
        }
    }

    /// How much memory of a run's host, of its pool and of its subject's limit may be taken beside what it holds and what
    /// others are promised: at most so much.
    pub fn room_beside(&self, attempt: &AttemptId, node: &NodeName, wanted: u64) -> u64 {
        let Some(run) = self.runs.get(attempt).filter(|_| wanted > 0) else {
            return 0;
        };
        let home = self.homes.get(node).and_then(|pool| self.pools.get(pool));
        let Some(pool) = home.filter(|_| self.homes.get(node) == Some(&run.pool)) else {
            return 0;
        };
        let mut kept = Kept::default();
        for step in &pool.firm {
            if let (Some(request), Some(nomination)) = (self.request(step), self.nomination(step)) {
                // It is not said to be freezing yet.
                kept.add_where(self, request, nomination, |id, run| match id == attempt {
                    true => run.gives_when_frozen(),
                    false => run.gives(),
                });
            }
        }
        let host = pool.hosts().get(node);
        let free = host.map_or(0, |host| {
            host.free().less(kept.on(node, host, None)).get(MEMORY_MB)
        });
        let declared = pool.declared(MEMORY_MB).map_or(u64::MAX, |declared| {
            let taken = pool.used().get(MEMORY_MB);
            declared.saturating_sub(taken.saturating_add(kept.pool.get(MEMORY_MB)))
        });
        let account = pool.account(&run.request.subject);
        let policy = account.and_then(|account| account.policy.as_ref());
        let limit = policy.and_then(|policy| policy.limit(MEMORY_MB));
        let used = account.map_or(0, |account| account.used.get(MEMORY_MB));
        let limit = limit.map_or(u64::MAX, |limit| limit.saturating_sub(used));
        wanted.min(free).min(declared).min(limit)
    }

    /// Takes a run out of every account, to be held again otherwise.
    pub fn lift(&mut self, attempt: &AttemptId) -> Option<Run> {
        let run = self.runs.remove(attempt)?;
        for node in &run.holding {
            if let Some(home) = self.home_mut(node) {
                home.change_host(node, |host| {
                    host.runs.remove(attempt);
                    host.held.remove(attempt);
                    host.used = host.used.less(run.each());
                });
            }
        }
        self.refund(attempt, &run);
        Some(run)
    }

    /// Which of the free GPUs of a host to give: the first, but those last for which frozen runs wait.
    pub fn choose_gpus<T: Ord>(
        &self,
        node: &NodeName,
        free: impl Iterator<Item = (T, String)>,
        wanted: usize,
    ) -> Vec<String> {
        let awaited = self.awaited_gpus(node);
        let mut free: Vec<(Option<bool>, T, String)> = free
            .map(|(order, gpu)| (awaited.get(&gpu).copied(), order, gpu))
            .collect();
        free.sort_unstable();
        let chosen = free.into_iter().take(wanted);
        chosen.map(|(_, _, gpu)| gpu).collect()
    }

    /// The GPUs for which frozen runs wait that would be given to who takes so many of a host, for want of others. `None`
    /// where others are enough.
    pub(crate) fn awaited_gpus_given(&self, node: &NodeName, wanted: u64) -> Option<Gpus> {
        let home = self.homes.get(node).and_then(|pool| self.pools.get(pool))?;
        // Of hosts with several platforms it is not known which of them are free.
        let host = home.hosts().get(node).filter(|host| !host.is_mixed())?;
        let runs = host.runs.iter().filter_map(|id| self.runs.get(id));
        let held = runs.filter_map(|run| run.gpus_on(node)).flatten();
        let taken: BTreeSet<&String> = held.chain(&host.unfit_gpus).collect();
        let awaited = self.awaited_gpus(node).into_iter();
        let free = awaited.filter(|(gpu, _)| !taken.contains(gpu));
        let mut free: Vec<(bool, &String)> = free.map(|(gpu, promised)| (promised, gpu)).collect();
        free.sort_unstable();
        let others = host.free().gpus().saturating_sub(free.len() as u64);
        let given = usize::try_from(wanted.saturating_sub(others)).unwrap_or(usize::MAX);
        let given = free.into_iter().take(given);
        let given: Gpus = given.map(|(_, gpu)| gpu.clone()).collect();
        (!given.is_empty()).then_some(given)
    }

    /// GPUs of a host for which frozen runs wait, each with whether it is promised.
    pub fn awaited_gpus(&self, node: &NodeName) -> BTreeMap<&String, bool> {
        let mut awaited = BTreeMap::new();
        let home = self.homes.get(node).and_then(|pool| self.pools.get(pool));
        let runs = home.and_then(|pool| pool.hosts().get(node)).into_iter();
        let runs = runs.flat_map(|host| &host.runs);
        for (id, run) in runs.filter_map(|id| Some((id, self.runs.get(id)?))) {
            if run.is_frozen() {
                let promised = self.nominations.contains_key(&id.step);
                for gpu in run.gpus.get(node).into_iter().flatten() {
                    *awaited.entry(gpu).or_default() |= promised;
                }
            }
        }
        awaited
    }
}

impl<'a> Before<'a> {
    /// Whether a host is one on which the request may run at all: one that waits to be resumed has its own alone, and
    /// any other each whose platforms allow what it asks for.
    pub(crate) fn may_be_on(&self, node: &NodeName) -> bool {
        let resumes = self.request.resumes.as_ref();
        resumes.map_or_else(|| self.is_let_in(node), |own| own.node == *node)
    }

    fn is_let_in(&self, node: &NodeName) -> bool {
        if self.request.guards.is_empty() {
            return true;
        }
        let home = self.market.homes.get(node);
        let guard = home.and_then(|pool| self.request.guards.get(pool));
        let host = self.pool.hosts().get(node);
        let judged = guard.zip(host);
        judged.is_none_or(|(guard, host)| host.kinds().all(|kind| guard.lets_in(kind)))
    }

    /// The hosts of a ranking that cover the request and are such, tightest first.
    pub(crate) fn covering(
        self,
        ranks: &'a Ranks,
    ) -> impl Iterator<Item = (&'a NodeName, HostUnits)> + use<'a> {
        let covering = ranks.covering(self.request.each);
        covering.filter(move |(node, _)| self.may_be_on(node))
    }

    /// How many of its own GPUs are another's, promised to another, or not fit to be granted, on a host from which the runs for which `is_gone`
    /// holds are thought away.
    pub(crate) fn own_gpus_taken(
        &self,
        node: &NodeName,
        kept: &Kept,
        is_gone: impl Fn(&AttemptId) -> bool,
    ) -> u64 {
        let Some(resumes) = &self.request.resumes else {
            return 0;
        };
        if resumes.gpus.is_empty() {
            return 0;
        }
        let host = self.pool.hosts().get(node);
        let promised = host.map_or(0, |host| {
            kept.missing_of(node, host, &resumes.gpus, &is_gone)
        });
        let runs = host
            .into_iter()
            .flat_map(|host| &host.runs)
            .filter(|id| !is_gone(id))
            .filter_map(|id| self.market.run(id)?.gpus_on(node));
        let mut taken: BTreeSet<&String> = runs.flatten().collect();
        taken.extend(kept.gpus.get(node).into_iter().flatten());
        taken.extend(host.into_iter().flat_map(|host| &host.unfit_gpus));
        let taken = resumes.gpus.iter().filter(|gpu| taken.contains(gpu));
        promised.max(taken.count() as u64)
    }

    /// Whether those of its own GPUs that are free now are promised to others in number. What these await may be over
    /// first, and then they need them: what comes free for the request is no substitute before it has.
    pub(crate) fn own_gpus_are_promised(&self, kept: &Kept) -> bool {
        let Some(resumes) = &self.request.resumes else {
            return false;
        };
        let node = &resumes.node;
        let Some(host) = self.pool.hosts().get(node) else {
            return false;
        };
        let promised = kept.on(node, host, None).gpus();
        if promised == 0 {
            return false;
        }
        let runs = host.runs.iter().filter_map(|id| self.market.run(id));
        let held: BTreeSet<&String> = runs.filter_map(|run| run.gpus_on(node)).flatten().collect();
        let own = resumes.gpus.iter().filter(|gpu| !held.contains(gpu));
        let own: Gpus = own.cloned().collect();
        let left = host.free().gpus().saturating_sub(promised);
        match host.is_mixed() {
            true => kept.missing_of(node, host, &own, |_| false) > 0,
            false => own.len() as u64 > left,
        }
    }

    /// The GPUs that it waits for, where it waits for its own.
    pub(crate) fn own_gpus(&self) -> Option<&'a Gpus> {
        let resumes = self.request.resumes.as_ref();
        resumes.map(|resumes| &resumes.gpus)
    }
}
