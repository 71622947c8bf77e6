//! Chooses victims for given hosts: takes candidates in victim order until the request fits, then drops those that
//! are not needed.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};

use crate::preemption::candidate_list::{Candidate, held_by};
use crate::preemption::index::CandidateIndex;
use crate::preemption::rule::PreemptionRule;
use crate::preemption::what_if::{Shortage, WhatIf};

/// Number of obstacles that are left out in turn.
const MAX_OBSTACLES: usize = 2;
/// Number of dead ends after which the search gives up; bounds the cost of blocked requests that no preemption helps.
const MAX_DEAD_ENDS: usize = 8;

/// Takes candidates in victim order until the request fits on `hosts`, as one set for all of them; `None` if it never
/// fits. A small run that goes first may bring its subject down to its share, or cover the one resource for which a
/// large run could be preempted, and so protect the large run that would have been enough. Then the search leaves the
/// small run out and starts again. If several runs are in the way, each is left out in turn. The runs in `without` are
/// never taken.
pub(crate) fn fill<'a, 'c, 'r>(
    what_if: &WhatIf<'a, 'r>,
    index: &CandidateIndex<'a, 'c>,
    hosts: &[NodeName],
    without: &BTreeSet<&'a AttemptId>,
) -> Option<(Vec<&'c Candidate<'a>>, WhatIf<'a, 'r>)> {
    if let [node] = hosts
        && !could_ever_fit(what_if, &what_if.shortage(hosts), index, node, without)
    {
        return None;
    }
    let mut dead_ends = MAX_DEAD_ENDS;
    let mut untried = Vec::from([without.clone()]);
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
                    left_out.extend(one);
                    left_out
                });
                untried.extend(ways);
            }
        }
    }
    None
}

/// Whether a request would have room on a host if all went that may be taken first for what is short there, if only that is
/// short. Taking one run never lets another be taken, so no set makes room if these do not.
pub(crate) fn could_ever_fit<'a>(
    what_if: &WhatIf<'a, '_>,
    shortage: &Shortage<'_>,
    index: &CandidateIndex<'a, '_>,
    node: &NodeName,
    without: &BTreeSet<&'a AttemptId>,
) -> bool {
    if what_if.shares_with_head() || !shortage.is_only_of_hosts() {
        return true;
    }
    let there = index
        .on(node)
        .filter(|it| is_open(what_if, without, it) && may_go(what_if, shortage, it));
    let host = index.in_pool.pool.hosts().get(node);
    host.is_some_and(|host| {
        what_if.could_cover_on((node, host), held_by(index.in_pool, host, there))
    })
}

/// Whether a candidate is there, left to this request, and not left out.
fn is_open<'a>(
    what_if: &WhatIf<'a, '_>,
    left_out: &BTreeSet<&'a AttemptId>,
    candidate: &Candidate<'a>,
) -> bool {
    let id = candidate.id;
    !(what_if.is_reserved_for_others(id) || what_if.is_removed(id) || left_out.contains(id))
}

/// Runs whose removal together protects another run.
type Obstacle<'a> = Vec<&'a AttemptId>;

/// Result of taking candidates in victim order.
enum CountResult<'a, 'c, 'r> {
    /// These victims are enough; the pool without them.
    Enough(Vec<&'c Candidate<'a>>, Box<WhatIf<'a, 'r>>),
    /// Not enough. `obstacles` are the sets of runs, in victim order, whose removal protected another run.
    Short { obstacles: Vec<Obstacle<'a>> },
}

/// Each victim counts down its subject's excess, so a subject drops below its share only by the run that straddles
/// the line.
fn count_victims<'a, 'c, 'r>(
    what_if: &WhatIf<'a, 'r>,
    index: &CandidateIndex<'a, 'c>,
    hosts: &[NodeName],
    left_out: &BTreeSet<&'a AttemptId>,
) -> CountResult<'a, 'c, 'r> {
    let mut what_if = what_if.clone();
    let mut taken: Vec<&'c Candidate<'a>> = Vec::new();
    let mut obstacles = Vec::new();
    let whole = what_if.shortage(hosts);
    let mut shortage = whole.clone();
    // A shortage only shrinks, so a run that does not help now never does.
    let could_help = match shortage.is_only_of_hosts() {
        true => index.on_any(hosts),
        false => index.candidates.in_order().collect(),
    };
    for candidate in could_help {
        if shortage.is_none() {
            break;
        }
        if !is_open(&what_if, left_out, candidate) {
            continue;
        }
        if may_go(&what_if, &shortage, candidate) {
            what_if.remove(candidate.id, candidate.run());
            taken.push(candidate);
            what_if.shrink(&mut shortage, candidate.run());
        } else if obstacles.len() < MAX_OBSTACLES
            && shortage.is_helped_by(&what_if, false, candidate.id, candidate.run())
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

/// Whether preempting a run would help, under the rule that applies to it.
fn may_go(what_if: &WhatIf<'_, '_>, shortage: &Shortage<'_>, candidate: &Candidate<'_>) -> bool {
    let (id, run) = (candidate.id, candidate.run());
    match candidate.rule {
        PreemptionRule::Own => shortage.is_helped_by(what_if, true, id, run),
        PreemptionRule::Backfill => shortage.is_helped_by_backfill(what_if, candidate),
        PreemptionRule::Excess => shortage.is_helped_by_excess(what_if, candidate),
    }
}

/// The first victims without any one of which a run could be preempted too: victims of the same subject, or those
/// that covered the resource of which its subject holds an excess. If no single one qualifies, the first victim of
/// its subject; if there is none, the first victims without which together it could be.
fn obstacles_to<'a>(
    what_if: &WhatIf<'a, '_>,
    hosts: &[NodeName],
    protection: &Candidate<'a>,
    taken: &[&Candidate<'a>],
    whole: &Shortage<'a>,
) -> Vec<Obstacle<'a>> {
    let others = taken
        .iter()
        .filter(|other| other.rule != PreemptionRule::Own);
    let subject = &protection.run().request.subject;
    let mut same = others
        .clone()
        .filter(|other| other.run().request.subject == *subject);
    let same = same.next().map(|other| other.id);
    if same.is_none() && !may_go(what_if, whole, protection) {
        return Vec::new();
    }
    let alone = others.clone().filter(|other| {
        let without = what_if.without(other.id);
        may_go(&without, &without.shortage(hosts), protection)
    });
    let alone: Vec<Obstacle<'a>> = alone
        .map(|other| Vec::from([other.id]))
        .take(MAX_OBSTACLES)
        .collect();
    if !alone.is_empty() {
        return alone;
    }
    if let Some(same) = same {
        return Vec::from([Vec::from([same])]);
    }
    let mut without = what_if.clone();
    let mut together = Vec::new();
    for other in others {
        without.restore(other.id);
        together.push(other.id);
        if may_go(&without, &without.shortage(hosts), protection) {
            return Vec::from([together]);
        }
    }
    Vec::new()
}

/// Drops every victim without which the request still fits, the last in victim order first.
pub(crate) fn prune<'a>(
    mut what_if: WhatIf<'a, '_>,
    hosts: &[NodeName],
    taken: &mut Vec<&Candidate<'a>>,
) {
    taken.sort_unstable_by_key(|candidate| candidate.rank);
    let mut needed = Vec::new();
    while let Some(candidate) = taken.pop() {
        what_if.restore(candidate.id);
        if !what_if.fits_despite(hosts, candidate.run()) {
            what_if.remove(candidate.id, candidate.run());
            needed.push(candidate);
        }
    }
    needed.reverse();
    *taken = needed;
}
