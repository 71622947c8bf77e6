//! The coordinator: everything about it but its decisions, which are `coordinator-core`'s.
//!
//! ```text
//!  HTTP callers --> http --+                        +--> store   commits, snapshots, the log of events
//!                          +--> engine (owns core) -+
//!  agents ------> session -+                        +--> back to http and session, after the commit
//! ```
//! [`engine`] is the loop, [`store`] what outlives it, [`http`] and [`session`] the two doors, [`config`] and [`identity`]
//! what it is started with, [`issuance`] gives certificates to hosts, [`run`] puts them together, and [`reload`] brings them another config.
//! The binary reads flags and logs, and calls [`run::run`].
//! [`replay`] tells what a store holds of the past, where none of this runs; [`repair`] mends its epoch there.

pub mod backup;
pub mod clock;
pub mod config;
pub mod engine;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod fuzz;
pub mod http;
pub mod identity;
pub mod issuance;
mod keeper;
mod notify;
mod rate;
pub mod reload;
pub mod repair;
pub mod replay;
mod room;
pub mod run;
pub mod seal;
pub mod session;
pub mod store;
pub mod view;
