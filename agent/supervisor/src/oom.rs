//! Whom the kernel kills first when the host is out of memory: steps before the daemons that look after them.
//! `oom_score_adj` of proc(5) is inherited, so each process of a step gives up what its supervisor has.

use std::fs;
use std::io;

use tracing::debug;

/// Of a supervisor.
pub const DAEMON: i32 = -900;
/// Of a keeper: the kernel never chooses it.
pub const LEAST: i32 = -1000;

const FILE: &str = "/proc/self/oom_score_adj";

/// Has the kernel choose this process after others, if this process may ask for that.
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

/// Gives up what was inherited. Raising the value needs no right.
///
/// # Errors
/// If the kernel refuses.
pub fn give_up() -> io::Result<()> {
    match own()? < 0 {
        true => fs::write(FILE, "0"),
        false => Ok(()),
    }
}

fn own() -> io::Result<i32> {
    let text = fs::read_to_string(FILE)?;
    text.trim().parse().map_err(io::Error::other)
}
