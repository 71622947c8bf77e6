//! Counting off: who of the candidates goes so that a request fits on given hosts, and who of these is spared after all.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};

use crate::preemption::candidates::{Candidate, PreemptionRule};
use crate::preemption::index::CandidateIndex;
use crate::preemption::what_if::{Shortage, WhatIf};

/// How many of those that stand in the way are left out in turn: of one candidate, and of the next where of one it is fewer.
const MAX_OBSTACLES: usize = 2;
/// How often counting is begun again elsewhere when it has come to an end short: a bound on what a request costs that
/// nobody makes room for, as most that are blocked are.
const MAX_DEAD_ENDS: usize = 8;

/// Takes candidates in their order until the request would fit on `hosts`, counted off as one set for all of them; `None`
/// where it never does. A small run that goes first may bring its subject down to its share, or be enough of the one key for
/// which a large one may go, and so spare the large one that would have been enough of all: then the small one is left
/// out, and they are counted again. Where several stand in the way and what is left without one is not enough, it is
/// another that is left out.
pub(crate) fn fill<'a, 'c>(
    what_if: &WhatIf<'a>,
    index: &CandidateIndex<'a, 'c>,
    hosts: &[NodeName],
) -> Option<(Vec<&'c Candidate<'a>>, WhatIf<'a>)> {
    let mut dead_ends = MAX_DEAD_ENDS;
    let mut untried = Vec::from([BTreeSet::new()]);
    let mut was_short_end = false;
    while let Some(left_out) = untried.pop() {
        if was_short_end {
            dead_ends = dead_ends.checked_sub(1)?;
        }
        match count_victims(what_if, index, hosts, &left_out) {
            CountResult::Enough(taken, after) => return Some((taken, *after)),
            CountResult::Short { obstacles } => {
                was_short_end = obstacles.is_empty();
                let ways = obstacles.into_iter().rev().map(|one| {
                    let mut left_out = left_out.clone();
                    left_out.insert(one);
                    left_out
                });
                untried.extend(ways);
            }
        }
    }
    None
}

/// What came of taking candidates in their order.
enum CountResult<'a, 'c> {
    /// These, and the pool without them.
    Enough(Vec<&'c Candidate<'a>>, Box<WhatIf<'a>>),
    /// Where a run was spared only because others went first: those others, in victim order.
    Short { obstacles: Vec<&'a AttemptId> },
}

/// A subject is counted down by each run that is taken, so it is not pushed below its share but by the one that straddles
/// the line of its share.
fn count_victims<'a, 'c>(
    what_if: &WhatIf<'a>,
    index: &CandidateIndex<'a, 'c>,
    hosts: &[NodeName],
    left_out: &BTreeSet<&'a AttemptId>,
) -> CountResult<'a, 'c> {
    let mut what_if = what_if.clone();
    let mut taken: Vec<&'c Candidate<'a>> = Vec::new();
    let mut obstacles = Vec::new();
    let whole = what_if.shortage(hosts);
    let mut shortage = whole.clone();
    // A shortage only shrinks by what is taken, so who does not help now never does.
    let helpful = match shortage.is_only_of_hosts() {
        true => index.on_any(hosts),
        false => Cow::Borrowed(&*index.all),
    };
    for candidate in helpful.iter() {
        if shortage.is_none() {
            break;
        }
        let awaited = what_if.is_reserved_for_others(candidate.id);
        if awaited || what_if.is_removed(candidate.id) || left_out.contains(candidate.id) {
            continue;
        }
        if may_go(&what_if, &shortage, candidate) {
            what_if.remove(candidate.id, candidate.run);
            taken.push(*candidate);
            what_if.shrink(&mut shortage, candidate.run);
        } else if obstacles.len() < MAX_OBSTACLES
            && shortage.is_helped_by(&what_if, false, candidate.id, candidate.run)
        {
            for obstacle in obstacles_to(&what_if, hosts, candidate, &taken, &whole) {
                if !obstacles.contains(&obstacle) {
                    obstacles.push(obstacle);
                }
            }
        }
    }
    if shortage.is_none() {
        return CountResult::Enough(taken, Box::new(what_if));
    }
    CountResult::Short { obstacles }
}

/// Whether the loss of a run would help, on the ground on which it may be taken.
fn may_go(what_if: &WhatIf<'_>, shortage: &Shortage<'_>, candidate: &Candidate<'_>) -> bool {
    let (id, run) = (candidate.id, candidate.run);
    match candidate.rule {
        PreemptionRule::Own => shortage.is_helped_by(what_if, true, id, run),
        PreemptionRule::Backfill => shortage.is_helped_by_backfill(what_if, id, run),
        PreemptionRule::Excess => shortage.is_helped_by_excess(what_if, candidate),
    }
}

/// The first of those taken but for any of whom a run could be taken too: others of its subject, or those whose loss was
/// enough of the key of which its subject holds more than its share. Where no single one is, the first of its subject.
fn obstacles_to<'a>(
    what_if: &WhatIf<'a>,
    hosts: &[NodeName],
    protection: &Candidate<'a>,
    taken: &[&Candidate<'a>],
    whole: &Shortage<'a>,
) -> Vec<&'a AttemptId> {
    let others = taken
        .iter()
        .filter(|other| other.rule != PreemptionRule::Own);
    let subject = &protection.run.request.subject;
    let mut same = others
        .clone()
        .filter(|other| other.run.request.subject == *subject);
    let same = same.next().map(|other| other.id);
    if same.is_none() && !may_go(what_if, whole, protection) {
        return Vec::new();
    }
    let alone = others.filter(|other| {
        let without = what_if.without(other.id);
        may_go(&without, &without.shortage(hosts), protection)
    });
    let alone: Vec<&AttemptId> = alone.map(|other| other.id).take(MAX_OBSTACLES).collect();
    match alone.is_empty() {
        true => same.into_iter().collect(),
        false => alone,
    }
}

/// Spares every victim without which the request still fits, the last in victim order first.
pub(crate) fn prune<'a>(
    mut what_if: WhatIf<'a>,
    hosts: &[NodeName],
    taken: &mut Vec<&Candidate<'a>>,
) {
    taken.sort_unstable_by_key(|candidate| candidate.rank);
    let mut needed = Vec::new();
    while let Some(candidate) = taken.pop() {
        what_if.restore(candidate.id);
        if !what_if.fits_despite(hosts, candidate.run) {
            what_if.remove(candidate.id, candidate.run);
            needed.push(candidate);
        }
    }
    needed.reverse();
    *taken = needed;
}
