//! Hostile bytes for decoders: replays what is kept of a target, then changes it at random for a while, and holds the
//! decoder to its bounds. Owns the changes, the bounds and what is kept; the tests that call [`Fuzz::run`] own what a
//! decoder must hold beyond that it does not panic, and lie beside the decoders, which are private to their crates.
//!
//! In a build as any other this is blind mutation of the kept corpora. Where the crates were compiled by
//! `tests/fuzz/instrument`, what takes a new way through the code is kept and mutated on. `docs/dev/fuzzing.md` tells how.

mod allocation;
mod corpus;
mod coverage;
mod mutation;
mod random;
mod run;
mod watchdog;

pub use run::Fuzz;

/// Where files of a target lie: in memory where the system has such a place, since on a disk they are what is waited for.
pub fn place_for_files() -> std::path::PathBuf {
    let shared_memory = std::path::Path::new("/dev/shm");
    match shared_memory.is_dir() {
        true => shared_memory.to_owned(),
        false => std::env::temp_dir(),
    }
}
