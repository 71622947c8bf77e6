//! A program in a container, and the paths of the host that it sees. The rest of this room reads it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use sluice_common::container::{Container, ContainerMount};
use sluice_common::image::ContainerRuntime;

/// Directory in which steps share files on the host, and so do steps in containers.
const TMP: &str = "/tmp";

/// A program to run in a container, with all that the host adds to the step's own description.
pub(super) struct ContainerProgram {
    pub(super) container: Container,
    pub(super) runtime: ContainerRuntime,
    /// Path of the runtime's program.
    pub(super) runtime_path: PathBuf,
    /// Directory of the attempt.
    pub(super) dir: PathBuf,
    /// Name that no other attempt on the host has.
    pub(super) name: String,
    pub(super) workdir: PathBuf,
    /// Mounts by target, so that outer ones come before inner ones.
    pub(super) mounts: BTreeMap<PathBuf, ContainerMount>,
    /// Environment of the program.
    pub(super) env: BTreeMap<String, String>,
    pub(super) has_terminal: bool,
    /// Program and arguments; not empty.
    pub(super) command: Vec<OsString>,
}

impl ContainerProgram {
    /// Why the runtime's program did not start.
    pub(super) fn unstartable(&self, e: &io::Error) -> String {
        let path = self.runtime_path.display();
        format!("the container runtime {path} of this host could not be started: {e}")
    }
}

/// Paths of the host that the program sees: the shared directory for temporary files, the attempt's directory with the files
/// that Sluice's variables name, the working directory, and the mounts of the step and its templates.
pub(super) fn mounts(
    dir: &Path,
    workdir: &Path,
    container: &Container,
) -> Result<BTreeMap<PathBuf, ContainerMount>, String> {
    let own =
        [Path::new(TMP), dir, workdir].map(|path| ContainerMount::same(&path.to_string_lossy()));
    let all = own.into_iter().chain(container.mounts.iter().cloned());
    let mut mounts = BTreeMap::new();
    for mount in all {
        let target = PathBuf::from(&mount.target);
        if target.components().count() < 2 {
            return Err("a mount cannot take the place of `/` in a container".to_owned());
        }
        mounts.insert(target, mount);
    }
    Ok(mounts)
}
