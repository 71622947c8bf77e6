//! The process table, read from `/proc`. Tests signal only processes that they or their `dev` started, by pid.

use std::fs;
use std::path::Path;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use sluice_common::attempt_dir::NOTICE_VARIABLE;

/// Lists pids whose parent is `parent`.
pub fn children_of(parent: u32) -> Vec<u32> {
    pids()
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect()
}

/// Lists the children of a process, theirs, and so on.
pub(crate) fn descendants_of(ancestor: u32) -> Vec<u32> {
    let mut found = children_of(ancestor);
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children_of(pid));
        next += 1;
    }
    found
}

/// Whether a process with this pid runs; a zombie does not.
pub fn is_alive(pid: u32) -> bool {
    stat_fields(pid).is_some_and(|fields| {
        fields
            .first()
            .is_some_and(|state| state != "Z" && state != "X")
    })
}

/// Resources that a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Private memory in KiB.
    pub memory_kib: u64,
    /// Processor time in clock ticks of 10 ms.
    pub processor_ticks: u64,
    /// Number of open descriptors.
    pub descriptors: usize,
}

/// Measures a process; `None` if it is gone.
pub fn cost(pid: u32) -> Option<Cost> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let own = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let fields = stat_fields(pid)?;
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    Some(Cost {
        memory_kib: own.trim().trim_end_matches(" kB").parse().ok()?,
        // The third field is the first here: proc(5) has user time as the 14th, kernel time as the 15th.
        processor_ticks: ticks(11)? + ticks(12)?,
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count(),
    })
}

/// Whether a process was started with `NAME=VALUE` in its environment.
pub fn environ_has(pid: u32, variable: &str) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ
        .split(|byte| *byte == 0)
        .any(|entry| entry == variable.as_bytes())
}

/// Lists every live process with `NAME=VALUE` in its environment.
pub fn pids_with_environ(variable: &str) -> Vec<u32> {
    pids()
        .filter(|pid| is_alive(*pid) && environ_has(*pid, variable))
        .collect()
}

/// Lists every live process of a step on hosts whose directories are below `site`: a parallel test may run a step of
/// the same name.
pub fn processes_of(site: &Path, step: &str) -> Vec<u32> {
    let notice = format!("{NOTICE_VARIABLE}={}/", site.display());
    let is_below = |pid: &u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ
            .split(|byte| *byte == 0)
            .any(|entry| entry.starts_with(notice.as_bytes()))
    };
    let mut found = pids_with_environ(&format!("SLUICE_STEP_ID={step}"));
    found.retain(is_below);
    found
}

/// Lists the processes of [`processes_of`] that one attempt started.
pub fn processes_of_attempt(site: &Path, step: &str, attempt: u32) -> Vec<u32> {
    let mut found = processes_of(site, step);
    found.retain(|pid| environ_has(*pid, &format!("SLUICE_ATTEMPT={attempt}")));
    found
}

/// Sends a signal to one process; a process that is gone is ignored.
pub fn kill(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).expect("a pid fits");
    // ESRCH: it has died already.
    let _ = signal::kill(Pid::from_raw(pid), signal);
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn parent_of(pid: u32) -> Option<u32> {
    stat_fields(pid)?.get(1)?.parse().ok()
}

/// Returns the fields of `/proc/PID/stat` from the third on; the second may contain spaces and brackets.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}
