//! Reads `/proc`: parent, state and environment of processes. Decides nothing.
//!
//! A process may end at any moment, so every function returns `None` for one that is gone.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sluice_cgroups::file;
use sluice_common::id::{AttemptId, BootId, NameError};

/// Most bytes of an environment that are searched for marks: twice what a step may set. Linux allows up to 6
/// MiB.
const MAX_ENVIRON_BYTES: u64 = 2 * 1024 * 1024;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    pub pid: u32,
    /// One letter: `R`, `S`, `Z` and so on.
    pub state: u8,
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    pub threads: u32,
    /// Start time in clock ticks since boot. Together with `pid` it identifies the process within the boot.
    pub start_ticks: u64,
}

impl ProcessStat {
    /// Whether the process still runs. A main thread may end before the others; then the state is that of a
    /// zombie, and the process lives.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X') || self.threads > 1
    }
}

/// Reads one process; `None` if it does not exist.
pub fn stat(pid: u32) -> Option<ProcessStat> {
    parse_stat(&file::read(format!("/proc/{pid}/stat").as_ref()).ok()?)
}

/// The command name is in parentheses and may contain any byte, so the fields are taken after the last
/// parenthesis.
pub(crate) fn parse_stat(text: &[u8]) -> Option<ProcessStat> {
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let pid = number(text.get(..open)?)?;
    let rest: Vec<&[u8]> = text
        .get(close + 1..)?
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .collect();
    // proc(5) counts fields from 1, and the state is the third.
    let field = |n: usize| rest.get(n - 3).copied();
    Some(ProcessStat {
        pid,
        state: *field(3)?.first()?,
        parent: number(field(4)?)?,
        group: number(field(5)?)?,
        session: number(field(6)?)?,
        threads: number(field(20)?)?,
        start_ticks: number(field(22)?)?,
    })
}

fn number<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// Every visible process of the host.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn all() -> io::Result<Vec<ProcessStat>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|n| n.parse().ok()).and_then(stat));
    }
    Ok(found)
}

/// The direct children of this process, which must have one thread.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn own_children() -> io::Result<Vec<u32>> {
    let me = std::process::id();
    match file::read_text(format!("/proc/self/task/{me}/children").as_ref()) {
        Ok(list) => Ok(list
            .split_whitespace()
            .filter_map(|p| p.parse().ok())
            .collect()),
        // A kernel without CONFIG_PROC_CHILDREN has no such file, so all processes are searched.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(all()?
            .into_iter()
            .filter(|p| p.parent == me)
            .map(|p| p.pid)
            .collect()),
        Err(error) => Err(error),
    }
}

/// Number of threads of this process.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn own_threads() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// The attempt that a process's environment names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The environment has the marks of this attempt.
    Of(AttemptId),
    /// The environment has no marks.
    None,
    /// The environment is empty or unreadable: the process is executing another program just now, has cleared
    /// it, has ended, or belongs to another user.
    Unreadable,
}

/// Reads the marks `SLUICE_STEP_ID` and `SLUICE_ATTEMPT` from the environment that the process was started
/// with. Later changes by the program do not count.
pub fn mark(pid: u32) -> Mark {
    let mut environ = Vec::new();
    let read = File::open(format!("/proc/{pid}/environ"))
        .and_then(|file| file.take(MAX_ENVIRON_BYTES).read_to_end(&mut environ));
    if read.is_err() || environ.is_empty() {
        return Mark::Unreadable;
    }
    mark_in(&environ).map_or(Mark::None, Mark::Of)
}

pub(crate) fn mark_in(environ: &[u8]) -> Option<AttemptId> {
    let value = |name: &[u8]| {
        environ
            .split(|b| *b == 0)
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(b"="))
    };
    let step = std::str::from_utf8(value(b"SLUICE_STEP_ID")?).ok()?;
    let number = std::str::from_utf8(value(b"SLUICE_ATTEMPT")?).ok()?;
    // Any process may set its own marks, so only the exact form that a supervisor writes counts.
    format!("{step}.{number}").parse().ok()
}

/// Whether a process works in `dir` or writes its output there. Unlike a mark, this cannot be forged.
pub fn is_tied_to(pid: u32, dir: &Path) -> bool {
    ["cwd", "fd/1", "fd/2"].iter().any(|link| {
        fs::read_link(format!("/proc/{pid}/{link}")).is_ok_and(|target| target.starts_with(dir))
    })
}

/// Why the boot id cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BootIdError {
    /// The kernel's file cannot be read.
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file has other content.
    #[error("the kernel's boot id is malformed")]
    Malformed(#[from] NameError),
}

/// The kernel's id of this boot.
///
/// # Errors
/// If the id cannot be read.
pub fn boot_id() -> Result<BootId, BootIdError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(|source| BootIdError::Read {
        path: path.to_owned(),
        source,
    })?;
    Ok(BootId::new(text.trim())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &str = "S 7 42 43 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 98765 1 2 3";

    #[test]
    fn a_command_name_cannot_forge_the_fields_that_follow_it() {
        for name in ["sleep", "a) Z 1 1 1", "(x)", ") (", "two\nlines", ""] {
            let stat = parse_stat(format!("42 ({name}) {TAIL}").as_bytes()).unwrap();
            assert_eq!(
                (stat.pid, stat.parent, stat.state),
                (42, 7, b'S'),
                "{name:?}"
            );
            assert_eq!((stat.group, stat.session), (42, 43), "{name:?}");
            assert_eq!((stat.threads, stat.start_ticks), (3, 98765), "{name:?}");
        }
    }

    #[test]
    fn what_is_no_stat_is_nobody() {
        for text in ["", "42", "42 (x", "x (y) S", "42 (x) S 7 42"] {
            assert_eq!(parse_stat(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_zombie_main_thread_with_others_is_alive() {
        let mut stat = parse_stat(format!("42 (x) {TAIL}").as_bytes()).unwrap();
        stat.state = b'Z';
        assert!(stat.is_alive());
        stat.threads = 1;
        assert!(!stat.is_alive());
    }

    #[test]
    fn this_process_is_found_under_its_parent() {
        let me = stat(std::process::id()).unwrap();
        assert_eq!(me.parent, std::os::unix::process::parent_id());
        assert!(
            all().unwrap().contains(&ProcessStat {
                state: me.state,
                threads: me.threads,
                ..me
            }) || me.threads > 1
        );
        assert_eq!(stat(u32::MAX), None);
    }

    #[test]
    fn marks_are_read_whole_or_not_at_all() {
        let found = mark_in(b"PATH=/bin\0SLUICE_STEP_ID=train\0SLUICE_ATTEMPT=2\0");
        assert_eq!(found.unwrap().to_string(), "train.2");
        for environ in [
            &b"SLUICE_STEP_ID=train\0"[..],
            b"SLUICE_STEP_ID=../x\0SLUICE_ATTEMPT=1\0",
            b"SLUICE_STEP_ID=train\0SLUICE_ATTEMPT=one\0",
            b"SLUICE_STEP_ID=train\0SLUICE_ATTEMPT=0\0",
            b"SLUICE_STEP_ID=train\0SLUICE_ATTEMPT=+1\0",
            b"XSLUICE_STEP_ID=train\0SLUICE_ATTEMPT=1\0",
            b"SLUICE_STEP_IDX=train\0SLUICE_ATTEMPT=1\0",
        ] {
            assert_eq!(mark_in(environ), None);
        }
    }

    #[test]
    fn the_boot_has_a_name() {
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
    }
}
