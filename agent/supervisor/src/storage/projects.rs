//! Project quotas. If the file system supports them, the directories of an attempt with a storage grant are a
//! project of their own, and the kernel rejects writes beyond the project's limit at once.
//!
//! The file system is the registry: a project without files is free, and a project in use has at least the
//! attempt's directories, whichever supervisor runs it. So no state is stored, and an id is reused only when
//! the attempt's last file is removed.
//!
//! A limit is slightly above the grant, so that an attempt can be seen to exceed its grant, and ends as on a
//! file system without quotas.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sluice_common::attempt_dir::{OWN_WORKDIR, STEP_DIR};
use tracing::{info, warn};

use crate::clock;
use crate::sys::project::{self, ProjectAmount};

/// The ids of projects for attempts. Docker, Kubernetes and admins count up from small numbers. There are
/// many ids, because a file that a step has moved elsewhere keeps its project in use.
const FIRST: u32 = 2_100_000_000;
const COUNT: u32 = 1 << 20;

/// Most ids that are tried for one attempt, so that no deadline is delayed for long.
const MAX_TRIES: u32 = 4_096;

/// Most retries if another supervisor takes the same id at the same moment.
const MAX_SHARED: u32 = 8;

/// Distance of a limit from the grant: more than a file system allocates for one write (XFS: 4 MiB), which it
/// rejects as a whole if less is left.
const SPARE: ProjectAmount = ProjectAmount {
    bytes: 8 << 20,
    files: 64,
};

/// Files with the names of projects, each with the field that has the id. Their ids belong to the admin.
const NAMED: [(&str, usize); 2] = [("/etc/projid", 1), ("/etc/projects", 0)];

/// Assigns projects to attempts, on a file system with project quotas.
#[derive(Debug)]
pub(super) struct ProjectQuotas {
    attempts_dir: PathBuf,
    dir: File,
    named: BTreeSet<u32>,
    /// The id to try next, as an offset from the first. Increases, so that an id is reused late.
    next: u32,
    trouble_logged: bool,
}

impl ProjectQuotas {
    /// For the attempts below `attempts_dir`, if their file system supports it. Logs whether it does.
    pub(super) fn open(attempts_dir: &Path) -> Option<Self> {
        match Self::found(attempts_dir) {
            Ok(projects) => {
                info!("storage limits are enforced by project quotas and by counting");
                Some(projects)
            }
            Err(why) => {
                info!("storage limits are enforced by counting alone: {why}");
                None
            }
        }
    }

    fn found(attempts_dir: &Path) -> Result<Self, String> {
        let at = attempts_dir.display();
        let dir = File::open(attempts_dir).map_err(|e| format!("cannot open {at}: {e}"))?;
        match project::is_kept(dir.as_fd()) {
            Ok(true) => {}
            Ok(false) => return Err(format!("the file system of {at} keeps no project quotas")),
            Err(e) => {
                return Err(format!(
                    "the file system of {at} has no project quotas: {e}"
                ));
            }
        }
        let of = project::of(dir.as_fd());
        let of = of.map_err(|e| format!("the project of {at} cannot be read: {e}"))?;
        if of != (0, false) {
            // A file of an attempt's project could not be moved out of it.
            return Err(format!("{at} is of a project itself ({})", of.0));
        }
        let used = project::used(dir.as_fd(), FIRST);
        used.map_err(|e| format!("the quotas of {at} cannot be used: {e}"))?;
        if !project::can_keep_projects() {
            return Err("the kernel cannot keep steps from changing projects (seccomp)".to_owned());
        }
        let texts =
            NAMED.map(|(path, field)| (fs::read_to_string(path).unwrap_or_default(), field));
        let named = texts.iter().flat_map(|(text, field)| named(text, *field));
        Ok(Self {
            attempts_dir: attempts_dir.to_owned(),
            dir,
            named: named.collect(),
            // Differs from the start of the previous supervisor, whose ids were used last.
            next: u32::try_from(clock::boot_now().0 % u64::from(COUNT)).unwrap_or(0),
            trouble_logged: false,
        })
    }

    /// Assigns the attempt's writable directories to a project with limits slightly above the grant. `None`
    /// if that fails, which is logged; the grant is then enforced by counting.
    pub(super) fn hold(&mut self, attempt: &str, bytes: u64, files: Option<u64>) -> Option<u32> {
        let limit = ProjectAmount {
            bytes: bytes.saturating_add(SPARE.bytes),
            // No limit if the number of files is unknown.
            files: files.map_or(0, |files| files.saturating_add(SPARE.files)),
        };
        match self.try_hold(attempt, limit) {
            Ok(project) => {
                self.trouble_logged = false;
                Some(project)
            }
            Err(e) => {
                if !std::mem::replace(&mut self.trouble_logged, true) {
                    warn!("the storage limit of an attempt is enforced by counting alone: {e}");
                }
                None
            }
        }
    }

    fn try_hold(&mut self, attempt: &str, limit: ProjectAmount) -> io::Result<u32> {
        let dirs = own_dirs(&self.attempts_dir.join(attempt))?;
        for _ in 0..MAX_SHARED {
            let id = self.next_free()?;
            if give_all(&dirs, id).and_then(|()| self.is_alone(id, &dirs))? {
                project::set_limit(self.dir.as_fd(), id, limit)?;
                return Ok(id);
            }
            // Another supervisor has taken the same id, and releases it as well.
            give_all(&dirs, 0)?;
        }
        Err(io::Error::other(
            "its files do not belong to its own project: was a disk mounted at the directory of attempts after the supervisor had started?",
        ))
    }

    fn next_free(&mut self) -> io::Result<u32> {
        for _ in 0..MAX_TRIES {
            let id = FIRST + self.next;
            self.next = (self.next + 1) % COUNT;
            if !self.named.contains(&id) && self.used(id)?.files == 0 {
                return Ok(id);
            }
        }
        Err(none_free())
    }

    fn is_alone(&self, id: u32, dirs: &[File]) -> io::Result<bool> {
        Ok(self.used(id)?.files == u64::try_from(dirs.len()).unwrap_or(u64::MAX))
    }

    /// Usage of a project.
    pub(super) fn used(&self, id: u32) -> io::Result<ProjectAmount> {
        project::used(self.dir.as_fd(), id)
    }

    /// Removes a project's limit, because no process of the attempt is left.
    pub(super) fn release(&self, id: u32) {
        if let Err(e) = project::set_limit(self.dir.as_fd(), id, ProjectAmount::default()) {
            warn!(
                project = id,
                "the quota of a project that has ended cannot be removed: {e}"
            );
        }
    }
}

/// The directories that the attempt's user may write to. Output is not among them: the writer must not be
/// blocked by the step's quota.
fn own_dirs(attempt: &Path) -> io::Result<Vec<File>> {
    let mut dirs = Vec::new();
    for name in [OWN_WORKDIR, STEP_DIR] {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY)
            .open(attempt.join(name));
        match opened {
            // A step that works elsewhere has no working directory here.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            opened => dirs.push(opened?),
        }
    }
    Ok(dirs)
}

fn give_all(dirs: &[File], id: u32) -> io::Result<()> {
    dirs.iter()
        .try_for_each(|dir| project::give(dir.as_fd(), id))
}

fn none_free() -> io::Error {
    io::Error::other(format!(
        "no project from {FIRST} to {} is free",
        FIRST + (COUNT - 1)
    ))
}

/// The numbers in a colon-separated field of each line.
fn named(text: &str, field: usize) -> impl Iterator<Item = u32> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(move |line| line.split(':').nth(field)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_that_have_names_are_read() {
        let read = |text, field| named(text, field).collect::<Vec<_>>();
        assert_eq!(
            read("logs:42\n#x:7\nweb: 2100000001\nbad\n", 1),
            [42, 2_100_000_001]
        );
        assert_eq!(read("42:/var/log\n\n-1:/x\n7:/srv\n", 0), [42, 7]);
    }

    #[test]
    fn a_file_system_without_quotas_is_told_by_its_place() {
        let why = ProjectQuotas::found(Path::new("/proc")).unwrap_err();
        assert!(
            why.contains("project quotas") && why.contains("/proc"),
            "{why}"
        );
    }
}
