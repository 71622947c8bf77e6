//! Control groups (cgroups) of a host, of both versions: where they are mounted, which capabilities they have,
//! and how processes in a group are limited, frozen, killed and counted. The agent reports the capabilities;
//! the supervisor makes the groups of attempts.
//!
//! | module | contents |
//! |---|---|
//! | [`mounts`] | where hierarchies are mounted, and this process's own group in each |
//! | [`capabilities`] | the best available mechanism for each capability |
//! | [`parent_group`] | below which group the groups of attempts are made |
//! | [`unified`], [`legacy`] | the groups of attempts, in version 2 and in version 1 |
//! | [`limits`], [`usage`] | settings and usage of an attempt, over all controllers |
//! | [`cpu`], [`memory`], [`pids`], [`io`], [`freezer`], [`cpuset`], [`devices`] | one controller each |
//! | [`setting`] | the limits of an attempt, and values for the kernel's files |
//! | [`group_entry`] | how an attempt's first process enters its groups |
//! | [`watch`] | notifications that a group became empty or frozen |
//! | [`file`](mod@file) | reading and writing the kernel's files |
#![allow(
    missing_docs,
    reason = "fields and variants alone may lack docs, if their names say enough: tidy checks the rest"
)]

pub mod capabilities;
pub(crate) mod cpu;
pub mod cpuset;
pub mod devices;
pub mod file;
pub(crate) mod freezer;
pub mod group_entry;
pub(crate) mod io;
pub mod legacy;
pub mod limits;
pub mod memory;
pub mod mounts;
pub mod parent_group;
pub mod pids;
pub mod setting;
#[cfg(test)]
mod tests;
pub mod unified;
pub mod usage;
pub mod watch;

pub use mounts::{Controller, Hierarchies, OwnGroup};
