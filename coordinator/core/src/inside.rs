//! Steps inside allocations. They take what they ask for from their allocation and never from a pool, so the scheduler
//! does not know them: [`room`] places them, [`settle`] starts them and ends them with their allocation. Hosts run them as
//! they run any attempt.
//!
//! ```text
//! submitted --> queued --(the allocation runs, and has room)--> attempts as of any step --> over
//!                  |                                              |
//!                  +--(the allocation ends)--> over               +--(the allocation is stopped)--> stopping --> over
//! ```
//! The hosts of an allocation get its resources back only when no step inside it holds any of them
//! (`hosts/statuses.rs`).

pub(crate) mod room;
pub(crate) mod settle;
