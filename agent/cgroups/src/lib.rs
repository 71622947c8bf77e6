//! Where this host has its control groups, and what they offer. Reads and decides nothing: the agent shows what is
//! offered, the supervisor makes groups. A crate of its own because neither of the two may link the other.
//!
//! | room | what lives in it |
//! |---|---|
//! | [`mounts`] | where hierarchies are mounted, and this process's own group in each |
//! | [`offer`] | each capability with the best mechanism that could be had |

pub mod mounts;
pub mod offer;

pub use mounts::{Controller, Hierarchies, Own};
