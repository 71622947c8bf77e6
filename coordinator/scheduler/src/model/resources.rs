//! Amounts of the keys that hosts bound, as a small value that can be copied and compared: the arithmetic of
//! fitting runs on these, the rest of the product on [`Amounts`].

use sluice_common::amount::{Amounts, GPU, MCPU, MEMORY_MB, STEP_RUN, STORAGE_MB};

/// The keys that hosts report, in the order in which shortages are named.
pub const HOST_KEYS: [&str; 4] = [GPU, MCPU, MEMORY_MB, STORAGE_MB];

/// The keys that hosts bound: those, and how many steps one may hold at once.
const BOUNDED: [&str; 5] = [GPU, MCPU, MEMORY_MB, STORAGE_MB, STEP_RUN];

/// How much of each of [`BOUNDED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostResources([u64; 5]);

impl HostResources {
    /// The part of `amounts` that hosts bound.
    pub fn from_amounts(amounts: &Amounts) -> Self {
        Self(BOUNDED.map(|key| amounts.get(key)))
    }

    /// The same as amounts by key.
    pub fn amounts(self) -> Amounts {
        self.iter()
            .fold(Amounts::new(), |sum, (key, n)| sum.with(key, n))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = (&'static str, u64)> {
        BOUNDED.into_iter().zip(self.0)
    }

    pub(crate) fn get(self, key: &str) -> u64 {
        self.iter()
            .find(|(name, _)| *name == key)
            .map_or(0, |(_, n)| n)
    }

    /// How many GPUs.
    pub const fn gpus(self) -> u64 {
        self.0[0]
    }

    pub(crate) const fn mcpu(self) -> u64 {
        self.0[1]
    }

    /// The same with so many steps at once.
    pub const fn with_steps(mut self, steps: u64) -> Self {
        self.0[4] = steps;
        self
    }

    /// The same with so many GPUs.
    pub const fn with_gpus(mut self, gpus: u64) -> Self {
        self.0[0] = gpus;
        self
    }

    /// Whether `self` holds all of `request`.
    pub fn cover(self, request: Self) -> bool {
        self.0.iter().zip(request.0).all(|(have, ask)| *have >= ask)
    }

    /// So many times as much.
    pub(crate) fn times(self, n: u64) -> Self {
        Self(self.0.map(|amount| amount.saturating_mul(n)))
    }

    /// The amounts of what a GPU needs beside it: cores, memory and disk space.
    pub(crate) fn beside_gpus(self) -> impl Iterator<Item = u64> {
        self.0.into_iter().skip(1).take(3)
    }

    /// Adds each resource; a sum that would overflow is the largest number.
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// What is left; nothing of a key of which more is taken than there is.
    pub fn less(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }

    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self(core::array::from_fn(|i| f(self.0[i], other.0[i])))
    }

    /// The first key of which `request` asks more than there is, with what is asked and what there is.
    pub(crate) fn first_shortage(self, request: Self) -> Option<(&'static str, u64, u64)> {
        let pairs = request.iter().zip(self.0);
        pairs
            .map(|((key, ask), have)| (key, ask, have))
            .find(|(_, ask, have)| ask > have)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(gpu: u64, mcpu: u64) -> HostResources {
        HostResources::from_amounts(&Amounts::new().with(GPU, gpu).with(MCPU, mcpu))
    }

    #[test]
    fn covering_and_shortage_are_two_sides_of_one_rule() {
        for (have, ask, short) in [
            (units(2, 1000), units(2, 1000), None),
            (units(2, 1000), units(3, 2000), Some((GPU, 3, 2))),
            (units(2, 1000), units(0, 1001), Some((MCPU, 1001, 1000))),
        ] {
            assert_eq!(have.first_shortage(ask), short);
            assert_eq!(have.cover(ask), short.is_none());
        }
    }

    #[test]
    fn what_vanished_under_a_grant_leaves_nothing_rather_than_less() {
        assert_eq!(units(1, 500).less(units(2, 200)), units(0, 300));
        assert_eq!(units(1, 500).plus(units(2, 200)).amounts().get(GPU), 3);
    }
}
