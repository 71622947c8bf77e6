//! Container of a step: what the coordinator assigns and the host runs. The host chooses the runtime, because it knows
//! what is installed; `sluice-helper` builds the runtime's command line.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::image::{ContainerRuntime, Image};
use crate::template::Mount;
use crate::template::variable::{self, Variable};

/// Container in which a step's program runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Image with the file system.
    pub image: Image,
    /// Runtime of the host; `None` until the host has chosen, or if it has none for the image.
    pub runtime: Option<ContainerRuntime>,
    /// Directories and files of the host that the program sees besides its own.
    pub mounts: Vec<ContainerMount>,
}

impl Container {
    /// Fills the step's working directory into mounts of templates.
    pub fn fill_workdir(&mut self, workdir: &str) {
        let value = |variable| match variable {
            Variable::Workdir => Some(String::from(workdir)),
            _ => None,
        };
        for mount in &mut self.mounts {
            mount.source = variable::fill(&mount.source, value);
            mount.target = variable::fill(&mount.target, value);
        }
    }
}

/// Directory or file of the host that a container shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContainerMount {
    /// Absolute path on the host.
    pub source: String,
    /// Absolute path in the container.
    pub target: String,
    /// Whether the program may only read.
    pub read_only: bool,
}

impl ContainerMount {
    /// A path that is the same on the host and in the container, and can be written as far as the user may.
    pub fn same(path: &str) -> Self {
        Self {
            source: path.into(),
            target: path.into(),
            read_only: false,
        }
    }
}

impl From<&Mount> for ContainerMount {
    fn from(mount: &Mount) -> Self {
        Self {
            source: mount.source.clone(),
            target: mount.target().into(),
            read_only: mount.read_only.unwrap_or(false),
        }
    }
}
