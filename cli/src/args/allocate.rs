//! Arguments of `allocate`, `renew` and `release`.

use std::time::Duration;

use sluice_common::allocation::{HolderState, ReclaimTolerance};
use sluice_common::time::Span;

use super::StepFlags;
use super::step::{span, words};
use super::values::{duration, step_id};

#[derive(Debug, clap::Args)]
pub(crate) struct AllocationArgs {
    /// Time until the next renewal must come, such as 10m; 2m if absent.
    #[arg(long, value_name = "DURATION", value_parser = span, help_heading = "Allocation")]
    pub(crate) lease: Option<Span>,
    /// Whether and how it may be taken back: not at all (none), after its grace period (coordinated), or at once (any).
    #[arg(long, value_name = "HOW", value_parser = words::<ReclaimTolerance, _>(["none", "coordinated", "any"]), help_heading = "Allocation")]
    pub(crate) reclaim_tolerance: Option<ReclaimTolerance>,
    #[command(flatten)]
    pub(crate) step: StepFlags,
    /// A program of this machine to run while the allocation lasts, which is renewed meanwhile and released at its end.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RenewalArgs {
    /// Id of the allocation, or its name if no other live step has it.
    #[arg(value_name = "ALLOCATION", value_parser = step_id)]
    pub(crate) allocation: String,
    /// Time until the next renewal must come, if that is not its own lease.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub(crate) lease: Option<Span>,
    /// State of your work with it, for others to see.
    #[arg(long, value_name = "STATE", value_parser = words::<HolderState, _>(HolderState::ALL.map(HolderState::as_str)))]
    pub(crate) state: Option<HolderState>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// Ids of the allocations, or their names.
    #[arg(required = true, value_name = "ALLOCATION", value_parser = step_id)]
    pub(crate) allocations: Vec<String>,
    /// Time that programs inside them get between the stop signal and the kill; none if absent.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
}
