//! The real binary, driven over its socket: what it starts, stops, survives and refuses.
#![expect(
    clippy::print_stderr,
    reason = "a test that fails shows the supervisor's log"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on panics, in its helpers too"
)]

mod after;
mod births;
mod carving;
mod client;
mod compromised;
mod configs;
mod directories;
mod ends;
mod execs;
mod fenced;
mod fences;
mod files;
mod floods;
mod freezing;
mod host;
mod hostile;
mod identities;
mod keepers;
mod leases;
mod leaving;
#[expect(
    unreachable_pub,
    reason = "the file is a module of another crate too, which exports it"
)]
#[path = "../../../../tests/src/left_out.rs"]
mod left_out;
mod leftovers;
mod legacy;
mod moves;
mod names;
mod outputs;
mod pinned;
mod quotas;
mod restarts;
mod sealed;
mod storage;
mod storms;
mod submitters;
mod tenants;
mod upgrades;
mod usage;
mod wrapped;
mod zoo;
