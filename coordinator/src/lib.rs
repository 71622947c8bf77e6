//! The coordinator: the engine loop, the store, the sessions of agents and the HTTP API. Decisions about steps and
//! nodes are `coordinator-core`'s.
//!
//! ```text
//!  HTTP callers --> http --+                        +--> store   commits, snapshots, the log of events
//!                          +--> engine (owns core) -+
//!  agents ------> session -+                        +--> back to http and session, after the commit
//! ```
//! [`config`] and [`identity`] are read at the start, [`issuance`] gives certificates to hosts, [`run`] starts and
//! stops all parts, and [`reload`] applies a changed config. The binary parses flags, sets up the log and calls
//! [`run::run`]. [`replay`] and [`repair`] work on the data directory of a stopped coordinator.

#![allow(
    missing_docs,
    reason = "fields and variants alone may lack docs, if their names say enough: tidy checks the rest"
)]

pub mod backup;
mod cert_renewal;
pub mod clock;
pub mod config;
mod disk_space;
pub mod engine;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod fuzz;
pub mod http;
pub mod identity;
pub mod inputs;
pub mod issuance;
mod notify;
mod rate;
pub mod reload;
pub mod repair;
pub mod replay;
pub mod run;
pub mod seal;
pub mod session;
pub mod store;
pub mod view;
