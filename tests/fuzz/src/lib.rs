//! Hostile bytes for decoders: replays what is kept of a target, then changes it at random for a while, and holds the
//! decoder to its bounds. Owns the changes, the bounds and what is kept; the tests that call [`Fuzz::run`] own what a
//! decoder must hold beyond that it does not panic, and lie beside the decoders, which are private to their crates.
//!
//! In a build as any other this is blind mutation of the kept corpora. Where the crates were compiled by
//! `tests/fuzz/instrument`, what takes a new way through the code is kept and mutated on. `docs/fuzzing.md` tells how.

mod allocation;
mod chance;
mod corpus;
mod coverage;
mod mutation;
mod run;
mod watchdog;

pub use run::Fuzz;
