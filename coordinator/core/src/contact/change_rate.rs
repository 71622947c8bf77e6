//! Limits how often a host may report changes of itself (inventory, labels, GPUs, health, supervisor). Each change is
//! a record and runs the scheduler in its pool, so a flapping or lying host could cause any number. Each change takes
//! one token from a bucket of [`BURST`], which gains one every [`EVERY`]. While it is empty, the latest change of
//! each kind is held until there is a token again, so that nothing is lost.
//!
//! Changes that take something away from the host (a lost or unfit GPU, a failing check, a missing supervisor) are
//! never held, because steps would be sent there in vain. They go into debt instead: a host can only take away what
//! it added before, and additions wait until the debt is paid.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;

use sluice_common::gpu_state::GpuStates;
use sluice_common::host_health::{HostHealth, SupervisorState};
use sluice_common::inventory::Inventory;
use sluice_common::time::{Span, Time};

/// Changes that a host may make at once: more than a host with eight GPUs, each checked twice, needs.
const BURST: u64 = 60;

/// Time to gain one token.
const EVERY: Span = Span::from_secs(2);

/// Most changes that a host may be in debt: 30 s of waiting.
const DEEPEST: u64 = 15;

/// Time to gain this many tokens.
const fn refilled_in(changes: u64) -> Span {
    Span::from_millis(EVERY.millis() * changes)
}

/// A report of a host between two hellos.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostChange {
    Supervisor(SupervisorState),
    Health(HostHealth),
    GpuStates(Box<GpuStates>),
    Inventory(Box<Inventory>),
    Labels(BTreeMap<String, String>),
}

/// Recent changes of a host, and those that are held.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeRate {
    /// Time at which the bucket is full again.
    full_at: Time,
    /// The latest change of each kind that is held, in the order in which they are applied.
    held: [Option<HostChange>; 5],
    /// Whether the note is shown that this host is held back.
    pub(crate) is_noted: bool,
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
    /// Time at which the next token is there.
    pub(crate) fn next_at(&self) -> Time {
        self.full_at.before(refilled_in(BURST - 1))
    }

    /// Time at which the host counts as quiet: half of the bucket is full again.
    pub(crate) fn quiet_at(&self) -> Time {
        self.full_at.before(refilled_in(BURST / 2))
    }

    /// Takes one token, into debt if there is none. The debt is bounded by [`DEEPEST`], so that a host is heard soon
    /// after its trouble ends.
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

    /// Drops the held change of the same kind, which is out of date.
    pub(crate) fn drop_like(&mut self, change: &HostChange) {
        self.held[change.place()] = None;
    }

    /// Drops all held changes, because a new connection reports everything again.
    pub(crate) fn drop_all(&mut self) {
        self.held = Default::default();
    }

    pub(crate) fn next_held(&mut self) -> Option<HostChange> {
        self.held.iter_mut().find_map(Option::take)
    }
}
