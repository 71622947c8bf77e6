//! Shared parts of the tests of the whole product: a running `sluice dev` with its processes, a client for its API,
//! Python with packages, simulated GPU hosts, waiting for predicates, and output of benchmarks. Nothing of the product
//! depends on this crate.

#![allow(
    missing_docs,
    reason = "a crate of tests: a field whose name says what it is has no comment"
)]

mod dev;
mod figures;
mod gpus;
mod left_out;
mod procs;
mod python;
mod wait;

pub use dev::{CommandOutput, Daemon, Dev, DevOptions, as_starter, ordinary_user_binaries, run};
pub use figures::{median, report, say};
pub use gpus::{host_of_l40s, older_nvml};
pub use left_out::{left_out, needs_root};
pub use procs::{
    Cost, children_of, cost, environ_has, is_alive, kill, pids_with_environ, processes_of,
    processes_of_attempt,
};
pub use python::python_with;
pub use wait::{eventually, eventually_within};

use std::path::PathBuf;

/// Returns the folder of the binaries of this build.
///
/// # Panics
/// If they were not built: `cargo test` builds no binaries of other packages.
pub fn binaries() -> PathBuf {
    let exe = std::env::current_exe().expect("a process knows its own file");
    let dir = exe
        .parent()
        .and_then(|deps| deps.parent())
        .expect("a test lies in target/PROFILE/deps")
        .to_path_buf();
    for name in [
        "sluice",
        "sluice-coordinator",
        "sluice-agent",
        "sluice-supervisor",
        "sluice-helper",
    ] {
        assert!(
            dir.join(name).exists(),
            "{name} was not built: run `cargo build --workspace` first"
        );
    }
    dir
}
