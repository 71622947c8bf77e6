//! Keeping an attempt from the GPUs that it was not granted: a filter on its control group, which every process in it
//! inherits, whatever it forks, executes or calls itself. No user can take it off or leave the group; root can do both,
//! which is one reason why steps do not run as root.
//!
//! **What is closed: GPUs, and nothing else.** systemd's `DevicePolicy=closed` denies every device but a few pseudo ones.
//! That is too strict for the programs that come here: they need InfiniBand (`uverbs`), GPUDirect (`nvidia-fs`,
//! `gdrdrv`), FUSE and pseudo terminals, and which others no list knows. Those devices are guarded by the permissions of
//! their nodes, for a step runs as a user; `/dev/nvidiaN` is not, because the driver makes it writable by all. So all
//! character devices of the driver's major are closed but those granted, to be opened and to be made by `mknod` alike,
//! and likewise the capabilities of MIG instances and the nodes by which a GPU is drawn with (`/dev/dri`). `nvidiactl` and
//! `nvidia-modeset` belong to the driver as a whole and stay open; `nvidia-uvm` has a major of its own, which nobody closes.
//!
//! What is closed here stays closed even where the node of a device lies elsewhere or was made by somebody else, for the
//! kernel looks at numbers and not at names.
//!
//! Two attempts may be granted the same device: instances of one GPU share its node, and are kept apart by the devices of
//! their MIG capabilities, which they do not share. Who has which GPU is the coordinator's to say.
//!
//! Where a filter cannot be attached the attempt is not started: see [`DeviceFilterError`]. Whether there is a mechanism at all
//! is reported as the capability `devices`, and pools may require it.
//!
//! | room | what lives in it |
//! |---|---|
//! | [`gpus`] | which devices of this host are GPUs |
//! | [`program`] | the filter as a program for the kernel's machine |
//! | [`bpf`] | the system calls that attach it to a group of version 2 |
//! | [`legacy`] | the filter by the devices controller of version 1 |

mod bpf;
pub mod gpus;
mod legacy;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use sluice_common::device::DeviceNumber;
use sluice_common::supervision::DeviceAccess;

use gpus::GpuDevices;

/// Devices that one filter may name. More would be a mistake or an attack: 256 GPUs cut into seven are not as many.
pub const MAX_NAMED_DEVICES: usize = 4096;

/// Why an attempt could not be kept from devices.
#[derive(Debug, thiserror::Error)]
pub enum DeviceFilterError {
    /// The agent's lists are out of all bounds.
    #[error("{count} devices of GPUs are named, and {MAX_NAMED_DEVICES} is the most")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// The kernel does not take the filter.
    #[error("the kernel does not take a device filter (BPF_PROG_LOAD)")]
    Load(#[source] io::Error),
    /// The group does not take it.
    #[error("the control group does not take a device filter (BPF_PROG_ATTACH)")]
    Attach(#[source] io::Error),
    /// A file of the devices controller.
    #[error("cannot write `{line}` to {}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What.
        line: String,
        /// Why.
        source: io::Error,
    },
    /// A file of the devices controller.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What the controller says of its own list.
    #[error("{} holds `{line}`, which is no rule for devices", path.display())]
    Rule {
        /// Which.
        path: PathBuf,
        /// The line.
        line: String,
    },
}

/// What of one major number is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// These minors.
    Only(BTreeSet<u32>),
    /// Every minor but these.
    AllBut(BTreeSet<u32>),
}

impl Closed {
    fn closes(&self, minor: u32) -> bool {
        match self {
            Closed::Only(minors) => minors.contains(&minor),
            Closed::AllBut(minors) => !minors.contains(&minor),
        }
    }

    fn close(&mut self, minor: u32) {
        match self {
            Closed::Only(minors) => minors.insert(minor),
            Closed::AllBut(minors) => minors.remove(&minor),
        };
    }

    fn open(&mut self, minor: u32) {
        match self {
            Closed::Only(minors) => minors.remove(&minor),
            Closed::AllBut(minors) => minors.insert(minor),
        };
    }
}

/// The character devices that an attempt may not reach, by major number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFilter {
    majors: BTreeMap<u32, Closed>,
}

impl DeviceFilter {
    /// Around every GPU of the host but those that were granted.
    ///
    /// # Errors
    /// Where more are named than any host has.
    pub fn new(host: &GpuDevices, devices: &DeviceAccess) -> Result<Self, DeviceFilterError> {
        let count = devices.granted.len() + devices.all_gpus.len();
        if count > MAX_NAMED_DEVICES {
            return Err(DeviceFilterError::TooMany { count });
        }
        let whole = host.majors.iter();
        let mut filter = Self {
            majors: whole
                .map(|(major, of_all)| (*major, Closed::AllBut(of_all.clone())))
                .collect(),
        };
        let companions = host.companions.values().flatten();
        for device in devices.all_gpus.iter().chain(&host.nodes).chain(companions) {
            // The agent may close a device of the driver's that all need; that would only harm its own attempts.
            filter.close(*device);
        }
        for device in &devices.granted {
            filter.open(*device);
            let companions = host.companions.get(device).into_iter().flatten();
            companions.for_each(|companion| filter.open(*companion));
        }
        Ok(filter)
    }

    fn close(&mut self, device: DeviceNumber) {
        let major = self.majors.entry(device.major);
        major
            .or_insert_with(|| Closed::Only(BTreeSet::new()))
            .close(device.minor);
    }

    fn open(&mut self, device: DeviceNumber) {
        if let Some(closed) = self.majors.get_mut(&device.major) {
            closed.open(device.minor);
        }
    }

    /// Whether a character device is left open.
    pub fn allows(&self, device: DeviceNumber) -> bool {
        let major = self.majors.get(&device.major);
        !major.is_some_and(|closed| closed.closes(device.minor))
    }

    /// Hands it to the kernel, to be put around groups of version 2. This is the dear part: the kernel looks over every
    /// way through a program before it takes it.
    ///
    /// # Errors
    /// Where the kernel does not take it.
    pub fn load(&self) -> Result<Loaded, DeviceFilterError> {
        let program = bpf::load(&program::assemble(self));
        program.map(Loaded).map_err(DeviceFilterError::Load)
    }

    /// Puts it around a group of the devices controller of version 1, given by its directory, which has no groups below
    /// it yet.
    ///
    /// # Errors
    /// Where the controller does not take it. The group is then closed to more than it should be and not to less.
    pub fn write_to(&self, group: &Path) -> Result<(), DeviceFilterError> {
        legacy::apply(self, group)
    }

    /// Every major number that it says anything of.
    pub(crate) fn majors(&self) -> impl Iterator<Item = (u32, &Closed)> {
        self.majors.iter().map(|(major, closed)| (*major, closed))
    }
}

/// A filter that the kernel has taken.
#[derive(Debug)]
pub struct Loaded(OwnedFd);

impl Loaded {
    /// Puts it around a group of version 2, given by its open directory. Whatever enters the group is within.
    ///
    /// # Errors
    /// Where the group does not take it.
    pub fn attach(&self, group: BorrowedFd<'_>) -> Result<(), DeviceFilterError> {
        bpf::attach(self.0.as_fd(), group).map_err(DeviceFilterError::Attach)
    }
}

#[cfg(test)]
mod tests;
