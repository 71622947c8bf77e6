//! Device filters: a filter on an attempt's control group denies all of its processes the GPUs that were not
//! granted. Only root can remove the filter or leave the group, which is one reason why steps do not run as
//! root.
//!
//! **Only GPUs are denied.** systemd's `DevicePolicy=closed` denies every device but a few pseudo devices.
//! That is too strict here: steps need InfiniBand (`uverbs`), GPUDirect (`nvidia-fs`, `gdrdrv`), FUSE, pseudo
//! terminals and others that no list can know. File permissions protect those devices, because a step runs as
//! an ordinary user; they do not protect `/dev/nvidiaN`, which the driver makes writable by all. So the
//! filter denies `open` and `mknod` of all character devices of the driver's major number except the granted
//! ones, and likewise of the capabilities of MIG instances and of the GPUs' nodes below `/dev/dri`.
//! `nvidiactl` and `nvidia-modeset` belong to the driver as a whole and stay open; `nvidia-uvm` has a major
//! number of its own, which is never denied.
//!
//! The kernel compares device numbers, not names, so a denied device stays denied if its node is moved or
//! made again elsewhere.
//!
//! Two attempts may be granted the same device: MIG instances of one GPU share its node, and the devices of
//! their MIG capabilities separate them. The coordinator decides who has which GPU.
//!
//! If a filter cannot be attached, the attempt does not start: see [`DeviceFilterError`]. The capability
//! `devices` reports whether the host can filter, and pools may require it.
//!
//! | module | contents |
//! |---|---|
//! | [`gpus`] | which devices of this host are GPUs |
//! | [`program`] | the filter as a BPF program |
//! | [`bpf`] | the system calls that load and attach it to a group of version 2 |
//! | [`legacy`] | the filter as rules of the devices controller of version 1 |

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

/// Most devices that one filter may name: more than any host has (256 GPUs in seven instances each are
/// 1,792), so more is a mistake or an attack.
pub const MAX_NAMED_DEVICES: usize = 4096;

/// Why a device filter could not be made or attached.
#[derive(Debug, thiserror::Error)]
pub enum DeviceFilterError {
    /// The agent named more than [`MAX_NAMED_DEVICES`].
    #[error("{count} device nodes of GPUs are listed, and the maximum is {MAX_NAMED_DEVICES}")]
    TooMany { count: usize },
    /// The kernel rejected the filter's program.
    #[error("the kernel does not take a device filter (BPF_PROG_LOAD)")]
    Load(#[source] io::Error),
    /// The kernel did not attach the program to the group.
    #[error("the control group does not take a device filter (BPF_PROG_ATTACH)")]
    Attach(#[source] io::Error),
    /// A rule of the devices controller of version 1 could not be written.
    #[error("cannot write `{line}` to {}", path.display())]
    Write {
        path: PathBuf,
        line: String,
        source: io::Error,
    },
    /// A file of the devices controller of version 1 could not be read.
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A line of `devices.list` could not be parsed.
    #[error("{} holds `{line}`, which is not a device rule", path.display())]
    Rule { path: PathBuf, line: String },
}

/// The denied minors of one major number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClosedMinors {
    Only(BTreeSet<u32>),
    AllBut(BTreeSet<u32>),
}

impl ClosedMinors {
    fn closes(&self, minor: u32) -> bool {
        match self {
            ClosedMinors::Only(minors) => minors.contains(&minor),
            ClosedMinors::AllBut(minors) => !minors.contains(&minor),
        }
    }

    fn close(&mut self, minor: u32) {
        match self {
            ClosedMinors::Only(minors) => minors.insert(minor),
            ClosedMinors::AllBut(minors) => minors.remove(&minor),
        };
    }

    fn open(&mut self, minor: u32) {
        match self {
            ClosedMinors::Only(minors) => minors.remove(&minor),
            ClosedMinors::AllBut(minors) => minors.insert(minor),
        };
    }
}

/// The character devices that an attempt may not open, by major number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFilter {
    majors: BTreeMap<u32, ClosedMinors>,
}

impl DeviceFilter {
    /// A filter that denies every GPU of the host except the granted ones.
    ///
    /// # Errors
    /// If the lists name more than [`MAX_NAMED_DEVICES`].
    pub fn new(host: &GpuDevices, devices: &DeviceAccess) -> Result<Self, DeviceFilterError> {
        let count = devices.granted.len() + devices.all_gpus.len();
        if count > MAX_NAMED_DEVICES {
            return Err(DeviceFilterError::TooMany { count });
        }
        let whole = host.majors.iter();
        let mut filter = Self {
            majors: whole
                .map(|(major, of_all)| (*major, ClosedMinors::AllBut(of_all.clone())))
                .collect(),
        };
        let companions = host.companions.values().flatten();
        for device in devices.all_gpus.iter().chain(&host.nodes).chain(companions) {
            // An agent that denies a device which all steps need harms only its own attempts.
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
            .or_insert_with(|| ClosedMinors::Only(BTreeSet::new()))
            .close(device.minor);
    }

    fn open(&mut self, device: DeviceNumber) {
        if let Some(closed) = self.majors.get_mut(&device.major) {
            closed.open(device.minor);
        }
    }

    /// Whether the filter allows a character device.
    pub fn allows(&self, device: DeviceNumber) -> bool {
        let major = self.majors.get(&device.major);
        !major.is_some_and(|closed| closed.closes(device.minor))
    }

    /// Loads the filter into the kernel as a program, for groups of version 2. This is slow: the kernel
    /// verifies every path through the program.
    ///
    /// # Errors
    /// If the kernel rejects the program.
    pub fn load(&self) -> Result<LoadedFilter, DeviceFilterError> {
        let program = bpf::load(&program::assemble(self));
        program.map(LoadedFilter).map_err(DeviceFilterError::Load)
    }

    /// Writes the filter to a group of the devices controller of version 1, given by its directory. The group
    /// must have no groups below it yet.
    ///
    /// # Errors
    /// If the controller rejects a rule. The group then allows less than it should, never more.
    pub fn write_to(&self, group: &Path) -> Result<(), DeviceFilterError> {
        legacy::apply(self, group)
    }

    /// The denied minors by major number.
    pub(crate) fn majors(&self) -> impl Iterator<Item = (u32, &ClosedMinors)> {
        self.majors.iter().map(|(major, closed)| (*major, closed))
    }
}

/// A filter that is loaded in the kernel.
#[derive(Debug)]
pub struct LoadedFilter(OwnedFd);

impl LoadedFilter {
    /// Attaches the filter to a group of version 2, given by its open directory. It applies to every process
    /// in the group.
    ///
    /// # Errors
    /// If the kernel does not attach it.
    pub fn attach(&self, group: BorrowedFd<'_>) -> Result<(), DeviceFilterError> {
        bpf::attach(self.0.as_fd(), group).map_err(DeviceFilterError::Attach)
    }
}

#[cfg(test)]
mod tests;
