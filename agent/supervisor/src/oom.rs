//! Scores for the kernel's out-of-memory killer: steps are killed before the daemons. `oom_score_adj` of
//! proc(5) is inherited, so each process of a step resets it.

use std::fs;
use std::io;

use sluice_cgroups::file;
use tracing::debug;

/// Score of a supervisor.
pub const DAEMON: i32 = -900;
/// Score of a keeper, which the kernel then never kills.
pub const LEAST: i32 = -1000;

const FILE: &str = "/proc/self/oom_score_adj";

/// Lowers this process's score, if the process has permission.
pub fn protect(wanted: i32) {
    let done = own().and_then(|own| match own > wanted {
        true => fs::write(FILE, wanted.to_string()),
        false => Ok(()),
    });
    if let Err(e) = done {
        debug!(
            "if the host is out of memory this process is as likely to be killed as a step: {e}"
        );
    }
}

/// Resets the inherited score. Raising the value needs no permission.
///
/// # Errors
/// If the kernel rejects it.
pub fn give_up() -> io::Result<()> {
    match own()? < 0 {
        true => fs::write(FILE, "0"),
        false => Ok(()),
    }
}

fn own() -> io::Result<i32> {
    let text = file::read_text(FILE.as_ref())?;
    text.trim().parse().map_err(io::Error::other)
}
