//! Frozen runs: what they keep, what they release, and what they wait for.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId};

use super::amounts::{JudgedAmounts, MEM, less};
use super::facts::{JudgedReservations, RemovedRuns};
use super::victims::JudgedPreemption;
use super::{Judge, JudgedRequest, JudgedRun, RuleResult, rule};

/// A frozen run for whose units a request waits: "a request with one candidate: its own host and its own GPUs".
#[derive(Clone, Debug, PartialEq)]
pub(in crate::tests) struct FrozenRun {
    pub(in crate::tests) attempt: AttemptId,
    pub(in crate::tests) node: NodeName,
    pub(in crate::tests) gpus: BTreeSet<String>,
    pub(in crate::tests) reservations: JudgedAmounts,
}

/// Progress of freezing a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tests) enum FreezePhase {
    #[default]
    No,
    Coming,
    Done,
}

fn memory(units: JudgedAmounts) -> JudgedAmounts {
    let mut memory = JudgedAmounts::default();
    memory[MEM] = units[MEM];
    memory
}

impl JudgedRun {
    /// "A suspended attempt keeps its `memory_mb` and releases every other key."
    pub(super) fn each(&self) -> JudgedAmounts {
        match self.freeze_phase {
            FreezePhase::No | FreezePhase::Coming => self.ask.each,
            FreezePhase::Done => memory(self.ask.each),
        }
    }

    pub(super) fn total(&self) -> JudgedAmounts {
        match self.freeze_phase {
            FreezePhase::No | FreezePhase::Coming => self.ask.total(),
            FreezePhase::Done => memory(self.ask.total()),
        }
    }

    /// Resources that the run still holds when it has done what it was told.
    pub(super) fn left(&self) -> JudgedAmounts {
        match self.freeze_phase {
            FreezePhase::Coming => memory(self.ask.each),
            FreezePhase::No | FreezePhase::Done => JudgedAmounts::default(),
        }
    }

    /// Gangs, frozen runs and stopping runs are not frozen.
    fn may_be_frozen(&self) -> bool {
        self.ask.suspends
            && self.ask.nodes == 1
            && self.freeze_phase == FreezePhase::No
            && !self.stopping
    }

    fn has_gpus_of(&self, node: &NodeName, gpus: &BTreeSet<String>) -> bool {
        let held = self.gpus.get(node).filter(|_| self.holding.contains(node));
        self.freeze_phase != FreezePhase::Done && held.is_some_and(|held| !held.is_disjoint(gpus))
    }
}

impl Judge {
    /// The request's own GPUs that others hold, without `gone`, or that are reserved.
    pub(super) fn own_gpus_taken(
        &self,
        node: &NodeName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
        reservations: &JudgedReservations,
    ) -> bool {
        let Some(frozen_run) = &ask.frozen_run else {
            return false;
        };
        let runs = self.runs.iter().filter(|(id, _)| !gone.contains(*id));
        let mut runs = runs.map(|(_, run)| run);
        runs.any(|run| run.has_gpus_of(node, &frozen_run.gpus))
            || !reservations.gpus.is_disjoint(&frozen_run.gpus)
    }

    /// Thousandths of the request's own GPUs that the awaited runs do not hold.
    pub(super) fn own_gpus_kept(
        &self,
        ask: &JudgedRequest,
        frozen_run: &FrozenRun,
        awaits: &RemovedRuns,
    ) -> u64 {
        let runs = || awaits.iter().filter_map(|id| self.runs.get(id));
        let coming = |gpu: &&String| {
            let one = BTreeSet::from([(*gpu).clone()]);
            runs().any(|run| run.has_gpus_of(&frozen_run.node, &one))
        };
        let kept = frozen_run.gpus.iter().filter(|gpu| !coming(gpu));
        kept.count() as u64 * ask.class.thousandths()
    }

    /// No GPU is granted twice, a resumed run gets its own, and all are of the class that is asked for.
    pub(in crate::tests) fn judge_gpus(&self, id: &AttemptId, run: &JudgedRun) -> RuleResult {
        for (node, gpus) in &run.gpus {
            let class = run.ask.class;
            let all = gpus.len() as u64 * class.thousandths() == run.ask.each[class.key()];
            let mut names = gpus.iter();
            let all = all && names.all(|gpu| gpu.starts_with(&class.prefix(node)));
            rule("gpus_are_those_asked_for", all, || {
                format!("{id}: {gpus:?}")
            })?;
            let mut others = self.runs.iter().filter(|(other, _)| *other != id);
            let other = others.find(|(_, other)| other.has_gpus_of(node, gpus));
            rule("gpus_are_granted_once", other.is_none(), || {
                format!("{gpus:?} of {node} to {id}, and {other:?}")
            })?;
            self.nobody_is_given_promised_gpus(id, node, gpus)?;
        }
        Ok(())
    }

    /// "Nobody else can take them": not the GPUs that a frozen run is promised either.
    fn nobody_is_given_promised_gpus(
        &self,
        id: &AttemptId,
        node: &NodeName,
        gpus: &BTreeSet<String>,
    ) -> RuleResult {
        let firm = self
            .nominations
            .iter()
            .filter(|(_, nomination)| nomination.firm);
        let mut pins =
            firm.filter_map(|(step, _)| Some((step, self.waiting.get(step)?.frozen_run.as_ref()?)));
        let robbed = pins.find(|(step, frozen_run)| {
            frozen_run.node == *node && **step != id.step && !frozen_run.gpus.is_disjoint(gpus)
        });
        rule("nobody_is_given_promised_gpus", robbed.is_none(), || {
            format!("{gpus:?} of {node} to {id}, promised to {robbed:?}")
        })
    }

    /// "It holds no units, nobody else can take them": what is frozen counts on none of its own GPUs that is free now and
    /// that others need, in number, when what they await is over.
    pub(super) fn own_gpus_are_not_promised(&self, preemption: JudgedPreemption<'_>) -> RuleResult {
        let JudgedPreemption {
            ask, pool, awaits, ..
        } = preemption;
        let Some(frozen_run) = &ask.frozen_run else {
            return Ok(());
        };
        let reservations = self.firm_promises(pool, ask, &RemovedRuns::new());
        let reservations = reservations
            .hosts
            .get(&frozen_run.node)
            .map_or(0, |reservations| reservations[ask.class.key()]);
        let left = self.free_on(&frozen_run.node, &RemovedRuns::new())[ask.class.key()];
        let left = left.saturating_sub(reservations);
        let protection = reservations == 0 || self.own_gpus_kept(ask, frozen_run, awaits) <= left;
        rule("own_gpus_are_not_promised", protection, || {
            format!("{} awaits {awaits:?}, others keep {reservations}", ask.step)
        })
    }

    /// "What cannot be suspended falls back to `requeue`": what can be and whose memory is not needed is frozen, and what
    /// that leaves is enough.
    pub(super) fn what_may_be_frozen_is(
        &self,
        preemption: JudgedPreemption<'_>,
        frozen: &RemovedRuns,
    ) -> RuleResult {
        let JudgedPreemption {
            ask, pool, hosts, ..
        } = preemption;
        let unfit = frozen.iter().find(|id| {
            !preemption.victims.contains(*id)
                || !self.runs.get(*id).is_some_and(JudgedRun::may_be_frozen)
        });
        rule("only_what_may_be_is_frozen", unfit.is_none(), || {
            format!("{unfit:?} for {}", ask.step)
        })?;
        let cures = |frozen: &RemovedRuns| {
            let mut then = self.clone();
            for id in frozen {
                let run = then.runs.get_mut(id).expect("it was just found");
                run.freeze_phase = FreezePhase::Coming;
            }
            let reservations = (preemption.keeps)(&then, pool, ask, preemption.awaits);
            then.fits(pool, ask, hosts, preemption.awaits, &reservations)
                && then.leaves_promises_possible(pool, ask, preemption.awaits)
        };
        rule("frozen_victims_suffice", cures(frozen), || {
            format!("{frozen:?} for {} on {hosts:?}", ask.step)
        })?;
        let stopped = preemption.victims.iter().filter(|id| !frozen.contains(*id));
        let mut needless = stopped.filter(|id| {
            let mut more = frozen.clone();
            more.insert((*id).clone());
            self.runs[*id].may_be_frozen() && cures(&more)
        });
        let needless = needless.next();
        rule("what_may_be_frozen_is", needless.is_none(), || {
            format!("{needless:?} is stopped for {}", ask.step)
        })
    }

    pub(in crate::tests) fn suspend(&mut self, attempt: &AttemptId, by: &StepId) {
        self.stop(attempt, Some(by));
        let run = self.runs.get_mut(attempt).expect("what is frozen runs");
        run.freeze_phase = FreezePhase::Coming;
        run.ask.time_limit = None;
    }

    /// Freezing failed: the run is stopped.
    pub(in crate::tests) fn fail_freeze(&mut self, attempt: &AttemptId) {
        self.runs
            .get_mut(attempt)
            .expect("what is frozen runs")
            .freeze_phase = FreezePhase::No;
    }

    /// The run is frozen and waits to be resumed.
    pub(in crate::tests) fn freeze(&mut self, attempt: &AttemptId) -> JudgedRequest {
        let run = self.runs.get_mut(attempt).expect("what is frozen runs");
        run.freeze_phase = FreezePhase::Done;
        run.stopping = false;
        run.backfill = BTreeSet::new();
        for nomination in self.nominations.values_mut() {
            nomination.awaits.remove(attempt);
        }
        let ask = run.resumption(attempt);
        self.waiting.insert(ask.step.clone(), ask.clone());
        ask
    }

    /// The run holds everything again.
    pub(in crate::tests) fn thaw(&mut self, attempt: &AttemptId, backfill: BTreeSet<StepId>) {
        self.leave_queue(&attempt.step);
        let run = self
            .runs
            .get_mut(attempt)
            .expect("what is frozen is remembered");
        run.freeze_phase = FreezePhase::No;
        run.backfill = backfill;
    }

    /// Whether a frozen run is about to be resumed: "victims are not revoked", so it is no victim itself.
    pub(super) fn is_resuming(&self, run: &JudgedRun) -> bool {
        let nomination = self.nominations.get(&run.ask.step);
        run.freeze_phase == FreezePhase::Done
            && nomination.is_some_and(|nomination| nomination.firm)
    }

    /// The only host that a resumption can use.
    pub(super) fn own_choice(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
    ) -> Option<alloc::vec::Vec<NodeName>> {
        let frozen_run = ask.frozen_run.as_ref()?;
        let host = self.hosts.get(&frozen_run.node);
        let open = host.is_some_and(|host| host.schedulable && host.pool == *pool);
        Some(open.then(|| frozen_run.node.clone()).into_iter().collect())
    }
}

impl JudgedRun {
    fn resumption(&self, attempt: &AttemptId) -> JudgedRequest {
        let node = self.holding.first().expect("it holds its memory").clone();
        JudgedRequest {
            each: less(self.ask.each, memory(self.ask.each)),
            pool: Some(self.pool.clone()),
            frozen_run: Some(FrozenRun {
                attempt: attempt.clone(),
                gpus: self.gpus.get(&node).cloned().unwrap_or_default(),
                reservations: memory(self.ask.total()),
                node,
            }),
            ..self.ask.clone()
        }
    }
}
