//! Assigns the free GPUs of a host to requests that each accept some kinds. Where the accepted kinds overlap,
//! requests with more choice leave the scarce kinds to those with less. This is a bipartite flow that grows by one
//! request at a time: earlier requests may be moved to another kind but never lose GPUs.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Free GPUs of each kind, and what each request was assigned.
#[derive(Clone, Debug, Default)]
pub struct Matching {
    free: Vec<u64>,
    assignments: Vec<Assignment>,
}

/// One request with its assigned groups.
#[derive(Clone, Debug)]
struct Assignment {
    /// Kinds that it accepts.
    takes: Vec<bool>,
    /// Number assigned of each kind.
    by_kind: Vec<u64>,
}

/// One step of the search to a kind: the request that accepts it, and the kind that this request gives up for it;
/// `None` for the new request.
type PathStep = (usize, Option<usize>);

impl Matching {
    /// Starts with this many free GPUs of each kind.
    pub(crate) fn new(free: Vec<u64>) -> Self {
        let assignments = Vec::new();
        Self { free, assignments }
    }

    /// Assigns up to `wanted` GPUs of the accepted kinds to a new request; returns how many it got.
    pub fn assign(&mut self, takes: Vec<bool>, wanted: u64) -> u64 {
        let by_kind = vec![0; self.free.len()];
        self.assignments.push(Assignment { takes, by_kind });
        let mut got = 0;
        while got < wanted {
            let Some((path, end)) = self.path() else {
                break;
            };
            got += self.push(&path, end, wanted - got);
        }
        got
    }

    /// Number of each kind that the last request was assigned.
    pub fn last_assigned(&self) -> &[u64] {
        self.assignments
            .last()
            .map_or(&[], |assignment| &assignment.by_kind)
    }

    /// The shortest augmenting path from the new request to a kind with free GPUs, and that kind.
    fn path(&self) -> Option<(Vec<Option<PathStep>>, usize)> {
        let newcomer = self.assignments.len().checked_sub(1)?;
        let mut by: Vec<Option<PathStep>> = vec![None; self.free.len()];
        let mut next = VecDeque::new();
        let mut visit = |asker: usize, from: Option<usize>, next: &mut VecDeque<usize>| {
            for (kind, takes) in self.assignments[asker].takes.iter().enumerate() {
                if *takes && by[kind].is_none() {
                    by[kind] = Some((asker, from));
                    next.push_back(kind);
                }
            }
        };
        visit(newcomer, None, &mut next);
        while let Some(kind) = next.pop_front() {
            if self.free[kind] > 0 {
                return Some((by, kind));
            }
            for (asker, assignment) in self.assignments.iter().enumerate() {
                if assignment.by_kind[kind] > 0 {
                    visit(asker, Some(kind), &mut next);
                }
            }
        }
        None
    }

    /// Assigns as many GPUs along the path as it carries; returns how many.
    fn push(&mut self, by: &[Option<PathStep>], end: usize, wanted: u64) -> u64 {
        let mut steps = Vec::new();
        let mut many = wanted.min(self.free[end]);
        let mut kind = end;
        while let Some((asker, from)) = by[kind] {
            steps.push((asker, from, kind));
            let Some(from) = from else { break };
            many = many.min(self.assignments[asker].by_kind[from]);
            kind = from;
        }
        self.free[end] -= many;
        for (asker, from, kind) in steps {
            let assigned = &mut self.assignments[asker].by_kind;
            assigned[kind] += many;
            if let Some(from) = from {
                assigned[from] -= many;
            }
        }
        many
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_has_the_choice_makes_room_for_who_has_not() {
        // Two plain, one large. The request with more choice comes first, the other needs the large one.
        let mut matching = Matching::new(vec![2, 1]);
        assert_eq!(matching.assign(vec![true, true], 2), 2);
        assert_eq!(matching.assign(vec![false, true], 1), 1);
        assert_eq!(matching.last_assigned(), [0, 1]);
        assert_eq!(matching.assign(vec![true, true], 1), 0);
    }

    /// The most that a new request can get by Hall's theorem: for every subset of the others, the kinds that they
    /// accept must hold what they ask for.
    fn by_hall(free: &[u64], others: &[(Vec<bool>, u64)], takes: &[bool]) -> Option<u64> {
        let holds = |chosen: u32, with: bool| {
            let mut reached: Vec<bool> = takes.iter().map(|it| *it && with).collect();
            let mut asked = 0;
            for (n, (takes, amount)) in others.iter().enumerate() {
                if chosen & (1 << n) != 0 {
                    reached.iter_mut().zip(takes).for_each(|(r, t)| *r |= *t);
                    asked += amount;
                }
            }
            let there: u64 = free
                .iter()
                .zip(&reached)
                .filter(|it| *it.1)
                .map(|it| *it.0)
                .sum();
            there.checked_sub(asked)
        };
        let all = 0..(1u32 << others.len());
        let served = all.clone().all(|chosen| holds(chosen, false).is_some());
        served.then(|| {
            all.filter_map(|chosen| holds(chosen, true))
                .min()
                .unwrap_or(0)
        })
    }

    proptest! {
        #[test]
        fn a_newcomer_has_all_that_the_others_can_spare(
            free in prop::collection::vec(0u64..5, 3),
            others in prop::collection::vec((prop::collection::vec(any::<bool>(), 3), 0u64..5), 0..4),
            takes in prop::collection::vec(any::<bool>(), 3),
        ) {
            let mut matching = Matching::new(free.clone());
            let mut served = true;
            for (takes, amount) in &others {
                served &= matching.assign(takes.clone(), *amount) == *amount;
            }
            let expected = by_hall(&free, &others, &takes);
            prop_assert_eq!(served, expected.is_some());
            if let Some(expected) = expected {
                prop_assert_eq!(matching.assign(takes, 100), expected);
            }
            let assigned: u64 = matching.assignments.iter().flat_map(|assignment| &assignment.by_kind).sum();
            prop_assert_eq!(assigned + matching.free.iter().sum::<u64>(), free.iter().sum::<u64>());
        }
    }
}
