//! Who gets what: pools, policies, queues, runs and nominations, as far as scheduling sees them, and the next move that
//! the rules ask for. The rules are those of the published semantics of pools; each file here holds one of them.
//!
//! A scheduler is derived from the kept facts and kept in step with each record; it decides and changes nothing by
//! deciding. Whoever drives it turns a [`Decision`] into records, tells the scheduler what they change, and asks again until
//! there is no move:
//!
//! ```text
//! facts --(put_pool, put_host, enqueue, hold, release, nominate ...)--> Scheduler --(next_move)--> Move --> records
//!   ^_____________________________________________________________________________________________________|
//! ```
//!
//! Rooms, each of which imports only from those below it: `remedy` and `inspect` (why a request waits, and what would help),
//! `decide` (the order of the rules: begin there), `preemption` (which runs give way), `placement` (where a request could
//! run), `model` (what scheduling sees).
//!
//! Units are judged on two layers: the pool's (what is declared, reserved and limited) and the hosts' (what is free on
//! one machine). Which GPU of a host is given is not decided here.

#![no_std]
#![allow(
    missing_docs,
    reason = "a field says by its name what it is; where it does not, it has a comment"
)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod decide;
mod inspect;
mod model;
mod placement;
mod preemption;
mod remedy;
#[cfg(test)]
mod tests;

pub use decide::Decision;
pub use inspect::block::BlockReason;
pub use inspect::{Holder, Inspection, PreemptionStatus, ResourceUse};
pub use model::frozen::FreezeState;
pub use model::guard::{Denial, Guard};
pub use model::host::{GpusByKind, Hardware, HostInventory, PlatformSet, matches_platform};
pub use model::matching::Matching;
pub use model::nomination::Nomination;
pub use model::pool::policies::PolicyError;
pub use model::pool::{Pool, PoolTerms};
pub use model::request::{Request, Run, demand};
pub use model::request_kind::RequestKind;
pub use model::reservations::ReservedOnHost;
pub use model::resources::{HOST_KEYS, HostResources};
pub use model::scheduler::Scheduler;
pub use placement::feasibility::Infeasible;
pub use preemption::NoPreemption;
pub use preemption::candidates::Protected;
pub use preemption::preemption_risk::{PossiblePreemptions, PreemptionRisk};
pub use remedy::Remedy;
pub use remedy::change::Change;
pub use remedy::dry_run::Start;
