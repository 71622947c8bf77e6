//! The runs that may be preempted for a request, in victim order and by host.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{OnceCell, RefCell};
use core::cmp::Reverse;

use sluice_common::amount::ResourceKey;
use sluice_common::id::AttemptId;
use sluice_common::time::Time;

use crate::model::held_run::HeldRun;
use crate::model::host::{HardwareFilter, Host};
use crate::model::loss_budget::LossBudget;
use crate::model::pool::host_table::HostNumber;
use crate::model::request::Run;
use crate::model::resources::HostResources;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::entitlement::ResourceHolder;
use crate::preemption::rule::PreemptionRule;

/// Order of victims; the lowest is preempted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VictimRank {
    pub(crate) foreign: bool,
    pub(crate) priority: u64,
    pub(crate) work: u128,
    pub(crate) start_time: Reverse<Time>,
    pub(crate) place: Reverse<u64>,
}

/// A run that may be preempted for a request, and by which rule.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) rank: VictimRank,
    pub(crate) id: &'a AttemptId,
    pub(crate) held: &'a HeldRun,
    pub(crate) rule: PreemptionRule,
    /// Resources that the run holds within its subject's reserved share, if the request must borrow: the run is not
    /// preempted for these.
    pub(crate) in_share: &'a [ResourceKey],
    /// Whether the run does not fit in its subject's share of something metered. Known only if the request is inside
    /// its own share.
    pub(crate) is_left_over: bool,
    /// Part of the pool's budget that stopping it spends.
    pub(crate) loss: u64,
}

impl<'a> Candidate<'a> {
    /// A run as a candidate by a rule. `priority` is that of its subject.
    pub(crate) fn new(
        (id, held): (&'a AttemptId, &'a HeldRun),
        rule: PreemptionRule,
        priority: u64,
        now: Time,
    ) -> Self {
        let rank = VictimRank {
            foreign: rule != PreemptionRule::Own,
            priority,
            work: held.ranked_work(now),
            start_time: Reverse(held.times.start),
            place: Reverse(held.place),
        };
        Self {
            rank,
            id,
            held,
            rule,
            in_share: &[],
            is_left_over: false,
            loss: 0,
        }
    }

    pub(crate) fn run(&self) -> &'a Run {
        &self.held.run
    }

    /// The run as the rule for resources that are not metered sees it.
    pub(crate) fn as_holder(&self) -> ResourceHolder<'a> {
        ResourceHolder {
            run: self.run(),
            priority: self.rank.priority,
            is_left_over: self.is_left_over,
        }
    }
}

/// Runs that may be preempted for a request.
#[derive(Clone, Debug)]
pub(crate) struct Candidates<'a> {
    runs: Vec<Candidate<'a>>,
    /// Positions in `runs` in victim order, once that was asked for.
    in_order: OnceCell<Vec<usize>>,
    by_host: RunsByHost,
    /// Resources of each host that they hold, by the GPUs that count.
    held: RefCell<Vec<(HardwareFilter<'a>, HeldByHost)>>,
    /// Work that may be lost by preempting them together; `None` if nothing bounds it.
    pub(crate) budget: Option<LossBudget>,
    /// Whether runs are set apart.
    pub(crate) has_returning: bool,
}

impl<'a> Candidates<'a> {
    /// Indexes runs by host. `has_returning` if others are set apart, which their subjects would reclaim at once.
    pub(crate) fn new(
        runs: Vec<Candidate<'a>>,
        budget: Option<LossBudget>,
        has_returning: bool,
    ) -> Self {
        Self {
            by_host: RunsByHost::new(&runs),
            runs,
            in_order: OnceCell::new(),
            held: RefCell::default(),
            budget,
            has_returning,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// All candidates, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Candidate<'a>> {
        self.runs.iter()
    }

    /// All candidates, in victim order.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Candidate<'a>> + Clone {
        let positions = self.in_order.get_or_init(|| {
            let mut positions: Vec<usize> = (0..self.runs.len()).collect();
            positions.sort_unstable_by_key(|position| self.runs[*position].rank);
            positions
        });
        positions.iter().map(|position| &self.runs[*position])
    }

    /// Those on a host, in victim order.
    pub(crate) fn on(
        &self,
        host: HostNumber,
    ) -> impl Iterator<Item = &Candidate<'a>> + Clone + use<'a, '_> {
        self.at(self.by_host.on(host))
    }

    fn at<'c>(
        &'c self,
        positions: &'c [(HostNumber, usize)],
    ) -> impl Iterator<Item = &'c Candidate<'a>> + Clone + use<'a, 'c> {
        positions.iter().map(|(_, position)| &self.runs[*position])
    }

    /// Counts the resources of each host that all of them hold, once for each kind of GPUs that requests may be granted.
    pub(crate) fn held(&self, in_pool: RequestInPool<'a>) -> HeldByHost {
        let mut known = self.held.borrow_mut();
        if let Some((_, held)) = known.iter().find(|(filter, _)| *filter == in_pool.filter) {
            return Rc::clone(held);
        }
        let held = self.by_host.hosts().filter_map(|there| {
            let (number, _) = *there.first()?;
            let (_, host) = in_pool.pool.hosts().at(number)?;
            Some((number, held_by(in_pool, host, self.at(there))))
        });
        let held: HeldByHost = held.collect();
        known.push((in_pool.filter, Rc::clone(&held)));
        held
    }

    /// The same without the runs for which `keeps` is false.
    pub(crate) fn filtered(&self, keeps: impl Fn(&Candidate<'a>) -> bool) -> Self {
        let runs = self.runs.iter().filter(|it| keeps(it));
        Self::new(runs.cloned().collect(), self.budget, false)
    }
}

/// Hosts by number, each with the resources that runs hold together there.
pub(crate) type HeldByHost = Rc<[(HostNumber, HostResources)]>;

/// Positions of runs, sorted by the host on which they are and then in victim order.
#[derive(Clone, Debug)]
struct RunsByHost(Vec<(HostNumber, usize)>);

impl RunsByHost {
    fn new(runs: &[Candidate<'_>]) -> Self {
        let hosts = runs.iter().map(|candidate| candidate.held.hosts());
        let hosts = hosts.enumerate();
        let pairs = hosts.flat_map(|(position, hosts)| hosts.iter().map(move |it| (*it, position)));
        let mut pairs: Vec<(HostNumber, usize)> = pairs.collect();
        pairs.sort_unstable();
        for there in pairs.chunk_by_mut(|(host, _), (other, _)| host == other) {
            there.sort_unstable_by_key(|(_, position)| runs[*position].rank);
        }
        Self(pairs)
    }

    /// Positions of the runs on a host.
    fn on(&self, host: HostNumber) -> &[(HostNumber, usize)] {
        let first = self.0.partition_point(|(other, _)| *other < host);
        let rest = &self.0[first..];
        let count = rest.iter().take_while(|(other, _)| *other == host).count();
        &rest[..count]
    }

    /// Hosts with runs, each with their positions.
    fn hosts(&self) -> impl Iterator<Item = &[(HostNumber, usize)]> {
        self.0.chunk_by(|(host, _), (other, _)| host == other)
    }
}

/// Resources of a host that candidates hold together, of the GPUs that the request may be granted.
pub(crate) fn held_by<'c, 'a: 'c>(
    in_pool: RequestInPool<'a>,
    host: &Host,
    candidates: impl Iterator<Item = &'c Candidate<'a>>,
) -> HostResources {
    let held = candidates.map(|it| host.released_for(in_pool.filter, it.id, it.held.each));
    held.fold(HostResources::default(), HostResources::plus)
}
