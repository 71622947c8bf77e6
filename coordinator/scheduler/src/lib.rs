//! Who gets what: pools, policies, queues, runs and nominations, as far as scheduling sees them, and the next move that
//! the rules ask for. The rules are those of the published semantics of pools; each file here holds one of them.
//!
//! A scheduler is derived from the kept facts and kept in step with each record; it decides and changes nothing by
//! deciding. Whoever drives it turns a [`Move`] into records, tells the scheduler what they change, and asks again until
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

pub use decide::Move;
pub use inspect::block::Block;
pub use inspect::{Holder, Inspection, KeyTerms, Stops};
pub use model::frozen::Frozen;
pub use model::guard::{Denial, Guard};
pub use model::host::{GpusOf, Hardware, Platforms, Size, sees};
pub use model::kind::Kind;
pub use model::matching::Matching;
pub use model::nomination::Nomination;
pub use model::pool::policies::BadPolicy;
pub use model::pool::{Pool, PoolTerms};
pub use model::request::{Request, Run, demand};
pub use model::reservations::ReservedOnHost;
pub use model::scheduler::Scheduler;
pub use model::units::{HOST_KEYS, HostUnits};
pub use placement::feasibility::Infeasible;
pub use preemption::NoPreemption;
pub use preemption::candidates::Protected;
pub use preemption::preemption_risk::{Claims, Exposure};
pub use remedy::Remedy;
pub use remedy::change::Change;
pub use remedy::dry_run::Start;
