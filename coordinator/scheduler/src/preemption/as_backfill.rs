//! Preemption for a request that would run as backfill to the head of its pool: on what is kept for the head, but not
//! where the head would then start instead.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, StepId};

use crate::model::reservations::Reservations;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::cache::HeadCache;
use crate::preemption::candidate_list::Candidates;
use crate::preemption::index::CandidateIndex;
use crate::preemption::stability::would_be_taken_back_by;
use crate::preemption::what_if::WhatIf;
use crate::preemption::{Plan, PreemptionOutcome, outcome_beside};

/// Number of sets of victims that are tried, if the head would start on what each of them frees.
const MAX_SETS: usize = 4;

/// The outcome with what is kept for the head; `None` if the head would start on what each set of victims frees. Victims
/// whose end alone lets it start are left out and the next set is tried; if only several together do, each is left out
/// in turn.
pub(super) fn outcome_as_backfill<'a>(
    in_pool: RequestInPool<'a>,
    (head, firm): (&StepId, &Reservations),
    candidates: &Candidates<'a>,
    heads: &HeadCache<'a>,
) -> Option<PreemptionOutcome> {
    let outcome = |candidates: &Candidates<'a>| {
        let index = CandidateIndex::new(in_pool, candidates, heads);
        outcome_beside(WhatIf::new(in_pool, firm), &index)
    };
    let starts = |plan: &Plan| would_be_taken_back_by(in_pool, head, firm, plan);
    let mut untried: Vec<BTreeSet<AttemptId>> = Vec::from([BTreeSet::new()]);
    for _ in 0..MAX_SETS {
        let left_out = untried.pop()?;
        let found = match left_out.is_empty() {
            true => outcome(candidates),
            false => outcome(&candidates.filtered(|it| !left_out.contains(it.id))),
        };
        match &found {
            PreemptionOutcome::Preempt(plan) if starts(plan) => {
                let ways = ways_around(plan, starts).into_iter().rev();
                untried.extend(ways.map(|more| left_out.union(&more).cloned().collect()));
            }
            PreemptionOutcome::Impossible(_) if !left_out.is_empty() => {}
            PreemptionOutcome::Preempt(_)
            | PreemptionOutcome::AwaitRelease(_)
            | PreemptionOutcome::Impossible(_) => return Some(found),
        }
    }
    None
}

/// Sets of victims to leave out, so that the head does not start.
fn ways_around(plan: &Plan, starts: impl Fn(&Plan) -> bool) -> Vec<BTreeSet<AttemptId>> {
    let each = plan.victims.iter();
    let each = each.map(|id| BTreeSet::from([id.clone()]));
    let alone = each.clone().filter(|victims| {
        let victims = victims.clone();
        starts(&Plan {
            victims,
            ..plan.clone()
        })
    });
    let alone: BTreeSet<AttemptId> = alone.flatten().collect();
    match alone.is_empty() {
        true => each.collect(),
        false => Vec::from([alone]),
    }
}
