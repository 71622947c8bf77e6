//! A cache of the runs that may be preempted for what their subject holds beyond its share, valid until the subject's
//! account changes. An optimisation only; decides nothing.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::fmt;

use sluice_common::amount::ResourceKey;
use sluice_common::id::AttemptId;

/// A run that requests of others may preempt for what its subject holds beyond its share, as far as that does not depend
/// on the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PossibleVictim {
    pub(crate) attempt: AttemptId,
    /// Resources that it holds within its subject's share.
    pub(crate) in_share: Vec<ResourceKey>,
    /// Whether it does not fit in its subject's share of something metered.
    pub(crate) is_left_over: bool,
    /// Whether its subject would reclaim at once what it loses, from a request that must borrow.
    pub(crate) returns: bool,
}

/// The possible victims among the runs of an account. Two accounts are equal whatever is cached; a copy has nothing cached.
#[derive(Default)]
pub(crate) struct VictimCache(OnceCell<Box<[PossibleVictim]>>);

impl VictimCache {
    pub(crate) fn get_or_find(
        &self,
        find: impl FnOnce() -> Box<[PossibleVictim]>,
    ) -> &[PossibleVictim] {
        self.0.get_or_init(find)
    }

    pub(crate) fn clear(&mut self) {
        self.0.take();
    }
}

impl Clone for VictimCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for VictimCache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for VictimCache {}

impl fmt::Debug for VictimCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VictimCache")
    }
}
