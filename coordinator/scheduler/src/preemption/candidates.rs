//! Finds the runs that may be preempted for a request: those of each subject by its rule, and those that went past it.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::amount::STEP_RUN;
use sluice_common::id::{AttemptId, Subject};
use sluice_common::time::Time;

use crate::model::account::{Account, PossibleVictim};
use crate::model::held_run::HeldRun;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::candidate_list::{Candidate, Candidates};
use crate::preemption::held_runs::{held_run, held_runs};
use crate::preemption::protection::{excess_protection, is_protected};
use crate::preemption::rule::{PreemptionRule, rule};

/// Candidates with or without the runs that their subjects would reclaim at once from a request that must borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VictimChoice {
    /// Without them: they are set apart.
    Lasting,
    All,
}

/// All runs that may be preempted by some rule. `victims_of` finds the runs of a subject that holds more than its share.
pub(crate) fn candidates<'a>(
    in_pool: RequestInPool<'a>,
    now: Time,
    choice: VictimChoice,
    victims_of: impl Fn(&'a Subject, &'a Account) -> &'a [Option<PossibleVictim>],
) -> Candidates<'a> {
    let RequestInPool { pool, request, .. } = in_pool;
    let in_share = in_pool.is_in_share();
    let by_priority = in_pool.preempts_by_priority(in_share);
    let budget = pool.loss_budget(now).filter(|_| by_priority);
    let mut found: Vec<Candidate<'a>> = Vec::new();
    let mut has_returning = false;
    for (subject, other) in pool.accounts() {
        match rule(in_pool, in_share, subject, other) {
            Ok(PreemptionRule::Excess) if holds_what_may_be_short(in_pool, other) => {
                let beyond_share = BeyondShare {
                    in_pool,
                    in_share,
                    by_priority,
                    bounds_loss: budget.is_some(),
                    account: other,
                    now,
                };
                let runs = held_runs(in_pool.scheduler, pool, other);
                for (run, victim) in runs.zip(victims_of(subject, other)) {
                    match victim {
                        Some(victim)
                            if !in_share && victim.returns && choice == VictimChoice::Lasting =>
                        {
                            has_returning = true;
                        }
                        Some(victim) => found.extend(beyond_share.candidate(run, victim)),
                        None => {}
                    }
                }
            }
            Ok(rule @ (PreemptionRule::Own | PreemptionRule::Backfill)) => {
                let runs = held_runs(in_pool.scheduler, pool, other);
                let runs = runs.filter(|(_, held)| !is_protected(in_pool, held));
                found.extend(runs.map(|run| Candidate::new(run, rule, other.priority(), now)));
            }
            Ok(PreemptionRule::Excess) | Err(_) => {}
        }
    }
    if let Some(backfill) = pool.backfill.get(&request.step) {
        add_backfill(&mut found, in_pool, backfill, now);
    }
    Candidates::new(found, budget, has_returning)
}

/// The view that a request has of the runs of one subject beyond its share.
struct BeyondShare<'a> {
    in_pool: RequestInPool<'a>,
    in_share: bool,
    by_priority: bool,
    bounds_loss: bool,
    account: &'a Account,
    now: Time,
}

impl<'a> BeyondShare<'a> {
    /// A run as a candidate; `None` if it is protected now. For a request in its share, the share of the run's subject counts
    /// as a sum; for one that must borrow it does not matter whether the run is left over.
    fn candidate(
        &self,
        (id, held): (&'a AttemptId, &'a HeldRun),
        victim: &'a PossibleVictim,
    ) -> Option<Candidate<'a>> {
        let pool = self.in_pool.pool;
        if excess_protection(pool, self.by_priority, held.times, held.work, self.now).is_some() {
            return None;
        }
        let (rule, priority) = (PreemptionRule::Excess, self.account.priority());
        let mut found = Candidate::new((id, held), rule, priority, self.now);
        if self.bounds_loss {
            found.loss = pool.loss_of(held.work, self.now);
        }
        match self.in_share {
            true => found.is_left_over = victim.is_left_over,
            false => found.in_share = &victim.in_share,
        }
        Some(found)
    }
}

/// Adds backfill runs of the request: they may be preempted by this rule, whatever other rule applies.
fn add_backfill<'a>(
    found: &mut Vec<Candidate<'a>>,
    in_pool: RequestInPool<'a>,
    backfill: &'a BTreeSet<AttemptId>,
    now: Time,
) {
    let RequestInPool {
        scheduler, pool, ..
    } = in_pool;
    for candidate in found.iter_mut() {
        if candidate.rule == PreemptionRule::Excess && backfill.contains(candidate.id) {
            candidate.rule = PreemptionRule::Backfill;
            candidate.loss = 0;
        }
    }
    let known: BTreeSet<&AttemptId> = found.iter().map(|candidate| candidate.id).collect();
    let others = backfill.iter().filter(|id| !known.contains(id));
    let others = others.filter_map(|id| Some((id, held_run(scheduler, pool, id)?)));
    let others = others.filter(|(_, (_, held))| !is_protected(in_pool, held));
    let others = others.map(|(id, (account, held))| {
        let rule = PreemptionRule::Backfill;
        Candidate::new((id, held), rule, account.priority(), now)
    });
    let others: Vec<Candidate<'a>> = others.collect();
    found.extend(others);
}

/// Whether a subject holds more than its share of anything that the request could be short of; otherwise none of its
/// runs is preempted.
fn holds_what_may_be_short(in_pool: RequestInPool<'_>, other: &Account) -> bool {
    let RequestInPool { pool, request, .. } = in_pool;
    let mut excess = pool.excess(other);
    excess.any(|(key, ..)| {
        let asks = request.demand.get(key) > 0;
        asks && (key != STEP_RUN || pool.may_be_short_of_steps())
    })
}
