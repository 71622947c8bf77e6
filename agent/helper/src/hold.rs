//! Holds the place of an allocation on a host. Programs that its holder runs there get the signals of a stop; this process
//! waits for the kill, so that the resources stay set aside until the holder has released them or its time is over. If the
//! holder wants them no more, it ends as soon as no other process of the allocation is left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, raise};
use serde::Deserialize;
use sluice_common::attempt_dir::{GROUP_PREFIX, NOTICE_VARIABLE};

/// Pause between two looks for other processes.
const PAUSE: Duration = Duration::from_millis(50);

/// Variables that the supervisor gives each process of an attempt, by which other processes are told apart where the
/// allocation has no control group.
const MARKS: [&str; 2] = ["SLUICE_STEP_ID", "SLUICE_ATTEMPT"];

/// The part of a stop notice that is read here.
#[derive(Deserialize)]
struct Notice {
    reason: String,
}

/// Waits until it is killed, or until nobody needs the allocation any more. Then it kills itself, so that the end is the
/// same.
///
/// # Errors
/// If signals cannot be blocked or waited for.
pub(crate) fn run() -> io::Result<()> {
    let mut stops = SigSet::empty();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        stops.add(signal);
    }
    stops.thread_block()?;
    let notice = std::env::var_os(NOTICE_VARIABLE).map(PathBuf::from);
    loop {
        stops.wait()?;
        while notice.as_deref().is_some_and(is_given_up) {
            if is_alone(Path::new("/proc")) {
                raise(Signal::SIGKILL)?;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Whether the stop is the holder's own, or that of a holder whose time is over. A holder that gives way to another step or
/// to a drain has its whole grace: what it runs elsewhere may need it.
fn is_given_up(notice: &Path) -> bool {
    let text = fs::read(notice).unwrap_or_default();
    let notice: Option<Notice> = serde_json::from_slice(&text).ok();
    let given_up = ["cancelled", "not_renewed", "timed_out"];
    notice.is_some_and(|notice| given_up.contains(&notice.reason.as_str()))
}

/// Whether no other process belongs to the allocation: none in its control group, or none with its marks if it has no
/// group. If that cannot be read, some may.
fn is_alone(proc: &Path) -> bool {
    let own = process::id().to_string();
    let own_groups = groups(&proc.join(&own));
    let own_marks = marks(&proc.join(&own));
    if own_groups.is_empty() && own_marks.len() < MARKS.len() {
        return false;
    }
    let is_its = |other: &Path| match own_groups.is_empty() {
        true => marks(other) == own_marks,
        false => groups(other).iter().any(|it| {
            let mut below = own_groups.iter().filter_map(|own| it.strip_prefix(own));
            // A container makes groups of its own below that of the attempt.
            below.any(|rest| rest.is_empty() || rest.starts_with('/'))
        }),
    };
    let Ok(listed) = fs::read_dir(proc) else {
        return false;
    };
    let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut others = names.filter(|name| name.parse::<u32>().is_ok() && *name != own);
    !others.any(|pid| is_its(&proc.join(pid)))
}

/// The control groups of attempts that a process is in.
fn groups(process: &Path) -> Vec<String> {
    let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let groups = groups.lines().filter(|line| line.contains(GROUP_PREFIX));
    groups.map(str::to_owned).collect()
}

/// The marks in the environment of a process, in their order there.
fn marks(process: &Path) -> Vec<Vec<u8>> {
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    let variables = environment.split(|byte| *byte == 0);
    let is_mark = |variable: &&[u8]| {
        let name = variable.split(|byte| *byte == b'=').next();
        MARKS.iter().any(|mark| name == Some(mark.as_bytes()))
    };
    let mut marks: Vec<Vec<u8>> = variables.filter(is_mark).map(<[u8]>::to_vec).collect();
    marks.sort();
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process as `/proc` shows it.
    fn process(proc: &Path, pid: u32, group: &str, environment: &str) {
        let folder = proc.join(pid.to_string());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("cgroup"), group).unwrap();
        fs::write(folder.join("environ"), environment).unwrap();
    }

    const OURS: &str = "PATH=/bin\0SLUICE_ATTEMPT=1\0SLUICE_STEP_ID=a\0";

    #[test]
    fn other_processes_are_found_by_its_group_and_without_one_by_its_marks() {
        for (own, other, environment, alone) in [
            ("0::/x/attempt-a.1\n", "0::/x/attempt-a.1\n", "", false),
            ("0::/x/attempt-a.1\n", "0::/x/attempt-a.2\n", OURS, true),
            ("0::/x/attempt-a.1\n", "0::/x/attempt-a.1/c\n", "", false),
            ("0::/x/attempt-a.1\n", "0::/x/attempt-a.10\n", "", true),
            ("0::/x\n", "0::/x\n", OURS, false),
            (
                "0::/x\n",
                "0::/x\n",
                "SLUICE_STEP_ID=a\0SLUICE_ATTEMPT=1\0",
                false,
            ),
            (
                "0::/x\n",
                "0::/x\n",
                "SLUICE_STEP_ID=a\0SLUICE_ATTEMPT=2\0",
                true,
            ),
        ] {
            let proc = tempfile::tempdir().unwrap();
            process(proc.path(), process::id(), own, OURS);
            fs::create_dir(proc.path().join("self")).unwrap();
            assert!(is_alone(proc.path()), "{own}");
            process(proc.path(), 1, other, environment);
            assert_eq!(is_alone(proc.path()), alone, "{own} {other}");
        }
    }

    #[test]
    fn without_anything_to_tell_it_by_it_is_never_alone() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), process::id(), "0::/x\n", "PATH=/bin\0");
        assert!(!is_alone(proc.path()));
    }

    #[test]
    fn a_holder_that_gives_way_keeps_its_grace() {
        let folder = tempfile::tempdir().unwrap();
        let notice = folder.path().join("notice");
        assert!(!is_given_up(&notice));
        for (reason, given_up) in [
            ("cancelled", true),
            ("not_renewed", true),
            ("preempted", false),
            ("drained", false),
            ("lease_expired", false),
        ] {
            fs::write(
                &notice,
                format!("{{\"reason\":\"{reason}\",\"deadline\":\"x\"}}\n"),
            )
            .unwrap();
            assert_eq!(is_given_up(&notice), given_up, "{reason}");
        }
    }
}
