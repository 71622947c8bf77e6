//! Decides who gets what: pools, policies, queues, runs and nominations, and the next scheduling decision that
//! follows from the rules. Each file holds one of the published rules.
//!
//! A [`Scheduler`] is derived from stored facts and updated with each record; deciding changes nothing in it. Its
//! driver turns a [`Decision`] into records, applies them, and asks again until there is no decision:
//!
//! ```text
//! facts --(put_pool, put_host, enqueue, hold, release, nominate ...)--> Scheduler --(next_decision)--> Decision --> records
//!   ^____________________________________________________________________________________________________________|
//! ```
//!
//! Modules, each importing only from those after it: `remedy` and `inspect` (why a request waits, and what would
//! help), `decide` (the order of the rules: start reading there), `preemption` (which runs are preempted),
//! `placement` (where a request could run), `model` (pools, hosts, queues and runs).
//!
//! Resources are checked on two levels: the pool (declared, reserved and limited amounts) and the host (what is free
//! on one machine). Which GPUs of a host a step gets is decided by the caller.

#![no_std]
#![allow(
    missing_docs,
    reason = "fields and variants alone may lack docs, if their names say enough: tidy checks the rest"
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
pub use inspect::{FairShareUse, Holder, Inspection, PreemptionStatus, ResourceUse};
pub use model::eviction::{MAX_EVICTIONS, remember_eviction};
pub use model::fair_share::FairUse;
pub use model::frozen::FreezeState;
pub use model::guard::{Denial, Guard};
pub use model::host::{GpuKind, GpusByKind, Hardware, HardwareFilter, HostInventory, PlatformSet};
pub use model::loss_budget::{BeyondBudget, LostWork};
pub use model::matching::Matching;
pub use model::nomination::Nomination;
pub use model::pool::policies::PolicyError;
pub use model::pool::{Pool, PoolTerms};
pub use model::replicas::ReplicaGroup;
pub use model::request::{Request, Run, demand};
pub use model::request_kind::RequestKind;
pub use model::reservations::ReservedOnHost;
pub use model::resources::{HOST_KEYS, HostResources};
pub use model::scheduler::Scheduler;
pub use model::scheduler::fair_uses::FairUses;
pub use placement::feasibility::Infeasible;
pub use preemption::NoPreemption;
pub use preemption::preemption_risk::{PossiblePreemptions, PreemptionRisk};
pub use preemption::protection::Protected;
pub use remedy::Remedy;
pub use remedy::change::Change;
pub use remedy::dry_run::Start;
