//! Runs that are frozen instead of stopped: what they keep, what they give back, and for what they wait.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId};

use super::facts::{Gone, Kept};
use super::units::{GPU, MEM, Units, less};
use super::victims::Taking;
use super::{Ask, Judge, JudgedRun, Verdict, rule};

/// A frozen run for whose units a request waits: "a request with one candidate: its own host and its own GPUs".
#[derive(Clone, Debug, PartialEq)]
pub(in crate::tests) struct Pin {
    pub(in crate::tests) attempt: AttemptId,
    pub(in crate::tests) node: NodeName,
    pub(in crate::tests) gpus: BTreeSet<String>,
    pub(in crate::tests) kept: Units,
}

/// How a run stands with being frozen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tests) enum Ice {
    #[default]
    No,
    Coming,
    Done,
}

fn memory(units: Units) -> Units {
    let mut memory = Units::default();
    memory[MEM] = units[MEM];
    memory
}

impl JudgedRun {
    /// "A suspended attempt keeps its `memory_mb` and releases every other key."
    pub(super) fn each(&self) -> Units {
        match self.ice {
            Ice::No | Ice::Coming => self.ask.each,
            Ice::Done => memory(self.ask.each),
        }
    }

    pub(super) fn total(&self) -> Units {
        match self.ice {
            Ice::No | Ice::Coming => self.ask.total(),
            Ice::Done => memory(self.ask.total()),
        }
    }

    /// What it still holds when it has gone as far as it was told to.
    pub(super) fn left(&self) -> Units {
        match self.ice {
            Ice::Coming => memory(self.ask.each),
            Ice::No | Ice::Done => Units::default(),
        }
    }

    /// A gang is not frozen, nor what is frozen or goes already.
    fn may_be_frozen(&self) -> bool {
        self.ask.suspends && self.ask.nodes == 1 && self.ice == Ice::No && !self.stopping
    }

    fn has_gpus_of(&self, node: &NodeName, gpus: &BTreeSet<String>) -> bool {
        let held = self.gpus.get(node).filter(|_| self.holding.contains(node));
        self.ice != Ice::Done && held.is_some_and(|held| !held.is_disjoint(gpus))
    }
}

impl Judge {
    /// Those of a request's own GPUs that others hold, with `gone` thought away, or are promised.
    pub(super) fn own_gpus_taken(
        &self,
        node: &NodeName,
        ask: &Ask,
        gone: &Gone,
        kept: &Kept,
    ) -> bool {
        let Some(pin) = &ask.pin else { return false };
        let runs = self.runs.iter().filter(|(id, _)| !gone.contains(*id));
        let mut runs = runs.map(|(_, run)| run);
        runs.any(|run| run.has_gpus_of(node, &pin.gpus)) || !kept.gpus.is_disjoint(&pin.gpus)
    }

    /// How many of a request's own GPUs the runs that it awaits do not hold.
    pub(super) fn own_gpus_kept(&self, pin: &Pin, awaits: &Gone) -> u64 {
        let runs = || awaits.iter().filter_map(|id| self.runs.get(id));
        let coming = |gpu: &&String| {
            let one = BTreeSet::from([(*gpu).clone()]);
            runs().any(|run| run.has_gpus_of(&pin.node, &one))
        };
        pin.gpus.iter().filter(|gpu| !coming(gpu)).count() as u64
    }

    /// Nobody is given a GPU that another holds, and what is resumed has its own.
    pub(in crate::tests) fn judge_gpus(&self, id: &AttemptId, run: &JudgedRun) -> Verdict {
        for (node, gpus) in &run.gpus {
            let whole = gpus.len() as u64 == run.ask.each[GPU];
            rule("gpus_are_given_whole", whole, || format!("{id}: {gpus:?}"))?;
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
    ) -> Verdict {
        let firm = self.promises.iter().filter(|(_, promise)| promise.firm);
        let mut pins =
            firm.filter_map(|(step, _)| Some((step, self.waiting.get(step)?.pin.as_ref()?)));
        let robbed = pins.find(|(step, pin)| {
            pin.node == *node && **step != id.step && !pin.gpus.is_disjoint(gpus)
        });
        rule("nobody_is_given_promised_gpus", robbed.is_none(), || {
            format!("{gpus:?} of {node} to {id}, promised to {robbed:?}")
        })
    }

    /// "It holds no units, nobody else can take them": what is frozen counts on none of its own GPUs that is free now and
    /// that others need, in number, when what they await is over.
    pub(super) fn own_gpus_are_not_promised(&self, taking: Taking<'_>) -> Verdict {
        let Taking {
            ask, pool, awaits, ..
        } = taking;
        let Some(pin) = &ask.pin else { return Ok(()) };
        let kept = self.firm_promises(pool, ask, &Gone::new());
        let kept = kept.hosts.get(&pin.node).map_or(0, |kept| kept[GPU]);
        let left = self.free_on(&pin.node, &Gone::new())[GPU].saturating_sub(kept);
        let spared = kept == 0 || self.own_gpus_kept(pin, awaits) <= left;
        rule("own_gpus_are_not_promised", spared, || {
            format!("{} awaits {awaits:?}, others keep {kept}", ask.step)
        })
    }

    /// "What cannot be suspended falls back to `requeue`": what can be and whose memory is not needed is frozen, and what
    /// that leaves is enough.
    pub(super) fn what_may_be_frozen_is(&self, taking: Taking<'_>, frozen: &Gone) -> Verdict {
        let Taking {
            ask, pool, hosts, ..
        } = taking;
        let unfit = frozen.iter().find(|id| {
            !taking.victims.contains(*id)
                || !self.runs.get(*id).is_some_and(JudgedRun::may_be_frozen)
        });
        rule("only_what_may_be_is_frozen", unfit.is_none(), || {
            format!("{unfit:?} for {}", ask.step)
        })?;
        let cures = |frozen: &Gone| {
            let mut then = self.clone();
            for id in frozen {
                let run = then.runs.get_mut(id).expect("it was just found");
                run.ice = Ice::Coming;
            }
            let kept = (taking.keeps)(&then, pool, ask, taking.awaits);
            then.fits(pool, ask, hosts, taking.awaits, &kept)
                && then.leaves_promises_possible(pool, ask, taking.awaits)
        };
        rule("frozen_victims_suffice", cures(frozen), || {
            format!("{frozen:?} for {} on {hosts:?}", ask.step)
        })?;
        let stopped = taking.victims.iter().filter(|id| !frozen.contains(*id));
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
        self.runs.get_mut(attempt).expect("what is frozen runs").ice = Ice::Coming;
    }

    /// It could not be frozen: it is stopped.
    pub(in crate::tests) fn thwart(&mut self, attempt: &AttemptId) {
        self.runs.get_mut(attempt).expect("what is frozen runs").ice = Ice::No;
    }

    /// It is frozen, and waits.
    pub(in crate::tests) fn freeze(&mut self, attempt: &AttemptId) -> Ask {
        let run = self.runs.get_mut(attempt).expect("what is frozen runs");
        run.ice = Ice::Done;
        run.stopping = false;
        run.backfill = BTreeSet::new();
        for promise in self.promises.values_mut() {
            promise.awaits.remove(attempt);
        }
        let ask = run.resumption(attempt);
        self.waiting.insert(ask.step.clone(), ask.clone());
        ask
    }

    /// It holds again all that it asks for.
    pub(in crate::tests) fn thaw(&mut self, attempt: &AttemptId, backfill: BTreeSet<StepId>) {
        self.leave_queue(&attempt.step);
        let run = self
            .runs
            .get_mut(attempt)
            .expect("what is frozen is remembered");
        run.ice = Ice::No;
        run.backfill = backfill;
    }

    /// Whether a frozen run is about to be resumed: "victims are not revoked", so it is no victim itself.
    pub(super) fn is_resuming(&self, run: &JudgedRun) -> bool {
        let promise = self.promises.get(&run.ask.step);
        run.ice == Ice::Done && promise.is_some_and(|promise| promise.firm)
    }

    /// A host of which a request waits for nothing but its own place.
    pub(super) fn own_choice(
        &self,
        pool: &PoolName,
        ask: &Ask,
    ) -> Option<alloc::vec::Vec<NodeName>> {
        let pin = ask.pin.as_ref()?;
        let host = self.hosts.get(&pin.node);
        let open = host.is_some_and(|host| host.open && host.pool == *pool);
        Some(open.then(|| pin.node.clone()).into_iter().collect())
    }
}

impl JudgedRun {
    fn resumption(&self, attempt: &AttemptId) -> Ask {
        let node = self.holding.first().expect("it holds its memory").clone();
        Ask {
            each: less(self.ask.each, memory(self.ask.each)),
            pool: Some(self.pool.clone()),
            pin: Some(Pin {
                attempt: attempt.clone(),
                gpus: self.gpus.get(&node).cloned().unwrap_or_default(),
                kept: memory(self.ask.total()),
                node,
            }),
            ..self.ask.clone()
        }
    }
}
