//! Limits how often a host may report changes of itself (inventory, labels, GPUs, health, supervisor). Each change is
//! a record and makes the scheduler look at its pool, so a flapping or lying host could cause any number. Each change
//! takes one token from a bucket of [`BURST`], which gains one every [`EVERY`]. While it is empty, the latest change
//! of each kind is held until there is a token again, so that nothing is lost.
//!
//! Changes that take something away from the host (a GPU that is gone or unfit, a failing check, a missing
//! supervisor) are never held, because steps would be sent there in vain. They go into debt instead: what a host
//! takes away it must have added before, and additions wait until the debt is paid.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;

use sluice_common::gpu_state::GpuStates;
use sluice_common::host_health::{HostHealth, SupervisorState};
use sluice_common::inventory::Inventory;
use sluice_common::time::{Span, Time};

/// Changes that a host may make at once: more than a host with eight GPUs of which each is checked twice.
const BURST: u64 = 60;

/// After how long it may make one more.
const EVERY: Span = Span::from_secs(2);

/// Number of changes a host may be in debt: 30 s of waiting.
const DEEPEST: u64 = 15;

/// How long so many take to come in.
const fn refilled_in(changes: u64) -> Span {
    Span::from_millis(EVERY.millis() * changes)
}

/// What a host says of itself between two hellos.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostChange {
    Supervisor(SupervisorState),
    Health(HostHealth),
    GpuStates(Box<GpuStates>),
    Inventory(Box<Inventory>),
    Labels(BTreeMap<String, String>),
}

/// How much a host has changed lately, and what of that is still to be taken in.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeRate {
    /// When all that it took will have come in again.
    full_at: Time,
    /// The latest of each kind that is held, in the order in which they are taken in.
    held: [Option<HostChange>; 5],
    /// Whether it is told that this host is held back.
    pub(crate) told: bool,
}

impl HostChange {
    fn place(&self) -> usize {
        match self {
            Self::Supervisor(_) => 0,
            Self::Health(_) => 1,
            Self::GpuStates(_) => 2,
            Self::Inventory(_) => 3,
            Self::Labels(_) => 4,
        }
    }
}

impl ChangeRate {
    /// From when on there is one to be taken.
    pub(crate) fn next_at(&self) -> Time {
        self.full_at.before(refilled_in(BURST - 1))
    }

    /// When it counts as quiet: half of what it may have is there again.
    pub(crate) fn quiet_at(&self) -> Time {
        self.full_at.before(refilled_in(BURST / 2))
    }

    /// Takes one, into debt if there is none; no deeper than [`DEEPEST`], so that a host that has long been in trouble is
    /// heard soon after it is well.
    pub(crate) fn take(&mut self, now: Time) {
        let full_at = self.full_at.max(now) + EVERY;
        self.full_at = full_at.min(now + refilled_in(BURST + DEEPEST));
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.held.iter().any(Option::is_some)
    }

    pub(crate) fn hold(&mut self, change: HostChange) {
        let place = change.place();
        self.held[place] = Some(change);
    }

    /// What is held of a kind is overtaken.
    pub(crate) fn drop_like(&mut self, change: &HostChange) {
        self.held[change.place()] = None;
    }

    /// A new link says all again.
    pub(crate) fn drop_all(&mut self) {
        self.held = Default::default();
    }

    pub(crate) fn next_held(&mut self) -> Option<HostChange> {
        self.held.iter_mut().find_map(Option::take)
    }
}
