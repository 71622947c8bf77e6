//! The control groups of a host: where they are, what they offer, and how the processes in one are limited, frozen, killed
//! and counted. The agent shows what is offered; the supervisor makes groups, and decides whose they are and when.
//!
//! | room | what lives in it |
//! |---|---|
//! | [`mounts`] | where hierarchies are mounted, and this process's own group in each |
//! | [`offer`] | each capability with the best mechanism that could be had |
//! | [`place`] | where groups are made |
//! | [`unified`], [`legacy`] | the groups of attempts, of version 2 and of version 1 |
//! | [`limits`], [`usage`] | what is written and what is read, over all controllers |
//! | [`cpu`], [`memory`], [`pids`], [`io`], [`freezer`], [`cpuset`], [`devices`] | one controller each |
//! | [`setting`] | what an attempt may use, and the file that says so |
//! | [`entrance`] | how a first process comes in |
//! | [`watch`] | hearing that a group is empty or frozen |
//! | [`file`](mod@file) | the kernel's files |

pub(crate) mod cpu;
pub mod cpuset;
pub mod devices;
pub mod entrance;
pub mod file;
pub(crate) mod freezer;
pub(crate) mod io;
pub mod legacy;
pub mod limits;
pub mod memory;
pub mod mounts;
pub mod offer;
pub mod pids;
pub mod place;
pub mod setting;
#[cfg(test)]
mod tests;
pub mod unified;
pub mod usage;
pub mod watch;

pub use mounts::{Controller, Hierarchies, Own};
