//! How the free GPUs of a host can be dealt out among those who ask for some of its kinds: each names the kinds that it
//! takes, and where kinds overlap, whoever has the choice makes room for who has not. It is the flow of a bipartite graph,
//! grown one asker at a time: what earlier ones were dealt is moved from kind to kind as it must, and never taken away.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// What is left of each kind, and who was dealt what.
#[derive(Clone, Debug, Default)]
pub struct Matching {
    left: Vec<u64>,
    dealt: Vec<Dealt>,
}

/// One who asks.
#[derive(Clone, Debug)]
struct Dealt {
    /// Which kinds it takes.
    takes: Vec<bool>,
    /// How many of each it was dealt.
    of: Vec<u64>,
}

/// How a kind is reached: as one that an asker takes, who gives up another for it; `None` for the newcomer itself.
type Step = (usize, Option<usize>);

impl Matching {
    /// With so many free of each kind.
    pub(crate) fn new(free: Vec<u64>) -> Self {
        let dealt = Vec::new();
        Self { left: free, dealt }
    }

    /// Deals up to `wanted` of the kinds that a newcomer takes; gives back how many there were for it.
    pub fn deal(&mut self, takes: Vec<bool>, wanted: u64) -> u64 {
        let of = vec![0; self.left.len()];
        self.dealt.push(Dealt { takes, of });
        let mut got = 0;
        while got < wanted {
            let Some((path, end)) = self.path() else {
                break;
            };
            got += self.push(&path, end, wanted - got);
        }
        got
    }

    /// How many of each kind the last newcomer was dealt.
    pub fn last(&self) -> &[u64] {
        self.dealt.last().map_or(&[], |dealt| &dealt.of)
    }

    /// The shortest way for the newcomer to a kind of which some are left, and that kind.
    fn path(&self) -> Option<(Vec<Option<Step>>, usize)> {
        let newcomer = self.dealt.len().checked_sub(1)?;
        let mut by: Vec<Option<Step>> = vec![None; self.left.len()];
        let mut next = VecDeque::new();
        let mut visit = |asker: usize, from: Option<usize>, next: &mut VecDeque<usize>| {
            for (kind, takes) in self.dealt[asker].takes.iter().enumerate() {
                if *takes && by[kind].is_none() {
                    by[kind] = Some((asker, from));
                    next.push_back(kind);
                }
            }
        };
        visit(newcomer, None, &mut next);
        while let Some(kind) = next.pop_front() {
            if self.left[kind] > 0 {
                return Some((by, kind));
            }
            for (asker, dealt) in self.dealt.iter().enumerate() {
                if dealt.of[kind] > 0 {
                    visit(asker, Some(kind), &mut next);
                }
            }
        }
        None
    }

    /// Deals as many along a way as it carries; gives back how many.
    fn push(&mut self, by: &[Option<Step>], end: usize, wanted: u64) -> u64 {
        let mut steps = Vec::new();
        let mut many = wanted.min(self.left[end]);
        let mut kind = end;
        while let Some((asker, from)) = by[kind] {
            steps.push((asker, from, kind));
            let Some(from) = from else { break };
            many = many.min(self.dealt[asker].of[from]);
            kind = from;
        }
        self.left[end] -= many;
        for (asker, from, kind) in steps {
            let of = &mut self.dealt[asker].of;
            of[kind] += many;
            if let Some(from) = from {
                of[from] -= many;
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
        // Two plain, one large. The wide asker is dealt first, the narrow one wants the large one.
        let mut matching = Matching::new(vec![2, 1]);
        assert_eq!(matching.deal(vec![true, true], 2), 2);
        assert_eq!(matching.deal(vec![false, true], 1), 1);
        assert_eq!(matching.last(), [0, 1]);
        assert_eq!(matching.deal(vec![true, true], 1), 0);
    }

    /// The most that a newcomer can have, by Hall's condition: whichever of the others are looked at together with it,
    /// what they take must hold them all.
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
                served &= matching.deal(takes.clone(), *amount) == *amount;
            }
            let expected = by_hall(&free, &others, &takes);
            prop_assert_eq!(served, expected.is_some());
            if let Some(expected) = expected {
                prop_assert_eq!(matching.deal(takes, 100), expected);
            }
            let dealt: u64 = matching.dealt.iter().flat_map(|dealt| &dealt.of).sum();
            prop_assert_eq!(dealt + matching.left.iter().sum::<u64>(), free.iter().sum::<u64>());
        }
    }
}
