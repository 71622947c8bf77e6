//! Amounts of the resources that hosts bound, as a small value that is copied and compared cheaply. Scheduling
//! computes with these, the rest of the product with [`Amounts`].

use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU, STEP_RUN, STORAGE_MB};

/// The resources that hosts report, in the order in which messages name shortages.
pub const HOST_KEYS: [&str; 4] = [MGPU, MCPU, MEMORY_MB, STORAGE_MB];

/// The resources that hosts bound: those, and the number of steps at once.
const BOUNDED: [&str; 5] = [MGPU, MCPU, MEMORY_MB, STORAGE_MB, STEP_RUN];

/// Amount of each resource in [`BOUNDED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostResources([u64; 5]);

impl HostResources {
    /// The part of `amounts` that hosts bound.
    pub fn from_amounts(amounts: &Amounts) -> Self {
        Self(BOUNDED.map(|key| amounts.get(key)))
    }

    /// Converts to amounts by key.
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

    /// Thousandths of a GPU.
    pub const fn mgpu(self) -> u64 {
        self.0[0]
    }

    pub(crate) const fn mcpu(self) -> u64 {
        self.0[1]
    }

    /// A copy with another number of steps.
    pub const fn with_steps(mut self, steps: u64) -> Self {
        self.0[4] = steps;
        self
    }

    /// A copy with other thousandths of a GPU.
    pub const fn with_mgpu(mut self, mgpu: u64) -> Self {
        self.0[0] = mgpu;
        self
    }

    /// Whether `self` is at least `request` in every resource.
    pub fn cover(self, request: Self) -> bool {
        self.0.iter().zip(request.0).all(|(have, ask)| *have >= ask)
    }

    /// Multiplies every resource.
    pub(crate) fn times(self, n: u64) -> Self {
        Self(self.0.map(|amount| amount.saturating_mul(n)))
    }

    /// The resources other than GPUs and steps: CPU, memory and disk.
    pub(crate) fn beside_gpus(self) -> impl Iterator<Item = u64> {
        self.beside_gpus_by_key().map(|(_, amount)| amount)
    }

    /// The same, each with its key.
    pub(crate) fn beside_gpus_by_key(self) -> impl Iterator<Item = (&'static str, u64)> {
        self.iter().skip(1).take(3)
    }

    /// Adds each resource; saturates on overflow.
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// Subtracts each resource; saturates at 0.
    pub fn less(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }

    /// The part of a host's resources that `mgpu` thousandths of a GPU out of `all` on the host carry: the same fraction
    /// of CPU, memory and disk. All of them if the host has no GPUs.
    pub(crate) fn carried_by(self, mgpu: u64, all: u64) -> Self {
        let Self([_, mcpu, memory, storage, steps]) = self;
        if all == 0 {
            return self;
        }
        let part = |n: u64| {
            let part = u128::from(n) * u128::from(mgpu) / u128::from(all);
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        Self([mgpu, part(mcpu), part(memory), part(storage), steps])
    }

    /// The amounts of those resources of which some is missing.
    pub(crate) fn where_missing(self, missing: Self) -> Self {
        self.zip(missing, |have, missing| if missing > 0 { have } else { 0 })
    }

    /// A copy with 0 of the resources for which `keep` does not hold.
    pub(crate) fn retain(self, keep: impl Fn(&str) -> bool) -> Self {
        Self(core::array::from_fn(|i| {
            if keep(BOUNDED[i]) { self.0[i] } else { 0 }
        }))
    }

    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self(core::array::from_fn(|i| f(self.0[i], other.0[i])))
    }

    /// The first resource of which `request` asks for more than there is, with the amount asked and the amount there
    /// is.
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

    fn units(mgpu: u64, mcpu: u64) -> HostResources {
        HostResources::from_amounts(&Amounts::new().with(MGPU, mgpu).with(MCPU, mcpu))
    }

    #[test]
    fn covering_and_shortage_are_two_sides_of_one_rule() {
        for (have, ask, short) in [
            (units(2, 1000), units(2, 1000), None),
            (units(2, 1000), units(3, 2000), Some((MGPU, 3, 2))),
            (units(2, 1000), units(0, 1001), Some((MCPU, 1001, 1000))),
        ] {
            assert_eq!(have.first_shortage(ask), short);
            assert_eq!(have.cover(ask), short.is_none());
        }
    }

    #[test]
    fn what_vanished_under_a_grant_leaves_nothing_rather_than_less() {
        assert_eq!(units(1, 500).less(units(2, 200)), units(0, 300));
        assert_eq!(units(1, 500).plus(units(2, 200)).amounts().get(MGPU), 3);
    }
}
