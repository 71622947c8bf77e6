//! A fuzzing engine for decoders: replays the corpus of a target, then mutates it for a while, and checks the decoder's
//! bounds. This crate has the mutations, the bounds and the corpora; the tests that call [`Fuzz::run`] check everything
//! else, and are in the crates of the decoders.
//!
//! In an ordinary build this is blind mutation of the kept corpora. If the crates were compiled by
//! `tests/fuzz/instrument`, inputs that take a new edge are kept and mutated further. See `docs/fuzzing.md`.

mod allocation;
mod corpus;
mod coverage;
mod mutation;
mod random;
mod run;
mod watchdog;

pub use run::Fuzz;

/// Returns a place for files of a target: in memory if the system has one, since disks are slow.
pub fn place_for_files() -> std::path::PathBuf {
    let shared_memory = std::path::Path::new("/dev/shm");
    match shared_memory.is_dir() {
        true => shared_memory.to_owned(),
        false => std::env::temp_dir(),
    }
}
