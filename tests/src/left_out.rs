//! Lists tests that cannot run here, which never pass silently. `tests/run.sh` names a file for the list and shows it
//! at the end; without a file such a test fails.

use std::fs::OpenOptions;
use std::io::Write;

/// Environment variable with the path of the list: one line a test, `NAME: WHY`.
const LIST: &str = "SLUICE_LEFT_OUT";

/// Whether the tests run as root. If not, lists the calling test as left out.
///
/// # Panics
/// If the test has to be listed and no file is named.
pub fn needs_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        left_out("only root can do what it does");
    }
    is_root
}

/// Lists the calling test as left out.
///
/// # Panics
/// If no file is named, or it cannot be written.
pub fn left_out(why: &str) {
    let current = std::thread::current();
    let test = current.name().unwrap_or("a test");
    let Some(list) = std::env::var_os(LIST) else {
        panic!("{test} cannot run here: {why}. `tests/run.sh` lists such tests instead ({LIST})");
    };
    let list = OpenOptions::new().create(true).append(true).open(list);
    // One write, so that lines of parallel tests stay whole.
    let line = format!("{test}: {why}\n");
    list.and_then(|mut list| list.write_all(line.as_bytes()))
        .expect("the list of tests that are left out can be written");
}
