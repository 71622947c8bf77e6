//! Finds the character devices of this host that are GPUs. The supervisor asks the kernel itself, because a
//! compromised agent could omit a GPU from its list and so leave it open to every step.
//!
//! Detection runs for each attempt: the driver may be loaded while the supervisor runs, and device numbers
//! then change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use sluice_common::device::{DeviceNumber, NVIDIA_MAJOR};

use crate::file;

/// Minor number of `/dev/nvidiactl`, which every CUDA program opens first.
const NVIDIACTL: u32 = 255;
/// Minor number of `/dev/nvidia-modeset`.
const NVIDIA_MODESET: u32 = 254;
/// Name of MIG's capabilities in `/proc/devices`. Their major number is assigned at each boot.
const NVIDIA_CAPS: &str = "nvidia-caps";

/// The GPUs of a host, as device numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuDevices {
    /// Major numbers that contain only GPUs, each with the minors that are exceptions and stay open.
    pub(crate) majors: BTreeMap<u32, BTreeSet<u32>>,
    /// Further devices that the supervisor's config names.
    pub(crate) nodes: Vec<DeviceNumber>,
    /// Nodes below `/dev/dri` of the same GPU, which are granted together with it.
    pub(crate) companions: BTreeMap<DeviceNumber, Vec<DeviceNumber>>,
}

/// A device node in the config that is missing or no character device.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct DeviceNodeError {
    path: PathBuf,
    why: String,
}

impl GpuDevices {
    /// Detects the GPUs that are present now. `root` is `/`, or a test's directory; `nodes` are further
    /// devices from the config.
    pub fn detect(root: &Path, nodes: &[PathBuf]) -> Self {
        let drivers = [NVIDIACTL, NVIDIA_MODESET].into();
        let mut majors = BTreeMap::from([(NVIDIA_MAJOR, drivers)]);
        let devices = file::read_text(&root.join("proc/devices")).unwrap_or_default();
        majors.extend(majors_of(&devices, NVIDIA_CAPS).map(|major| (major, BTreeSet::new())));
        Self {
            majors,
            nodes: nodes.iter().filter_map(|path| number(path).ok()).collect(),
            companions: companions(root),
        }
    }
}

/// The device number of a node.
///
/// # Errors
/// If the node is missing or is no character device: an admin who names it expects that it is filtered.
pub fn number(path: &Path) -> Result<DeviceNumber, DeviceNodeError> {
    let failed = |why: String| DeviceNodeError {
        path: path.to_owned(),
        why,
    };
    let found = fs::metadata(path).map_err(|e| failed(e.to_string()))?;
    if !found.file_type().is_char_device() {
        let why =
            "it is not a character device: name the device nodes of GPUs, such as /dev/nvidia0";
        return Err(failed(why.to_owned()));
    }
    let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
    Ok(DeviceNumber::new(major, minor))
}

/// Major numbers of the character devices called `name` in the text of `/proc/devices`, whose lines look like
/// `234 nvidia-caps`.
fn majors_of(devices: &str, name: &str) -> impl Iterator<Item = u32> {
    devices
        .lines()
        .take_while(|line| !line.starts_with("Block"))
        .filter_map(move |line| {
            let (major, found) = line.trim().split_once(' ')?;
            (found == name).then(|| major.parse().ok())?
        })
}

/// The nodes below `/dev/dri` of each GPU, found by the PCI address that the driver reports.
fn companions(root: &Path) -> BTreeMap<DeviceNumber, Vec<DeviceNumber>> {
    let gpus = entries(&root.join("proc/driver/nvidia/gpus"));
    let of_gpu = gpus.into_iter().filter_map(|gpu| {
        let information = fs::read_to_string(gpu.join("information")).ok()?;
        let minor = field(&information, "Device Minor")?.parse().ok()?;
        let pci = root.join("sys/bus/pci/devices").join(gpu.file_name()?);
        Some((DeviceNumber::new(NVIDIA_MAJOR, minor), drm_nodes(&pci)))
    });
    of_gpu.collect()
}

fn drm_nodes(pci: &Path) -> Vec<DeviceNumber> {
    let nodes = entries(&pci.join("drm")).into_iter();
    let numbers = nodes.filter_map(|node| {
        let text = fs::read_to_string(node.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(DeviceNumber::new(major.parse().ok()?, minor.parse().ok()?))
    });
    numbers.collect()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(dir).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

/// The value of a field in lines such as `Device Minor: \t 3`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tree;

    const DEVICES: &str = "Character devices:\n  1 mem\n195 nvidia\n234 nvidia-caps\n235 nvidia-caps-imex-channels\n\
                           \nBlock devices:\n  9 nvidia-caps\n";

    #[test]
    fn a_host_is_read_off_the_kernel() {
        let root = tree(&[
            ("proc/devices", DEVICES),
            (
                "proc/driver/nvidia/gpus/0000:17:00.0/information",
                "Model: \t\t NVIDIA H100\nDevice Minor: \t 3\n",
            ),
            ("sys/bus/pci/devices/0000:17:00.0/drm/card1/dev", "226:1\n"),
            (
                "sys/bus/pci/devices/0000:17:00.0/drm/renderD129/dev",
                "226:129\n",
            ),
        ]);
        let found = GpuDevices::detect(root.path(), &[]);
        let majors = [(195, [254, 255].into()), (234, BTreeSet::new())];
        assert_eq!(found.majors, majors.into());
        let mut drm_nodes = found.companions[&DeviceNumber::new(195, 3)].clone();
        drm_nodes.sort();
        assert_eq!(
            drm_nodes,
            [DeviceNumber::new(226, 1), DeviceNumber::new(226, 129)]
        );
    }

    #[test]
    fn the_driver_s_major_is_closed_before_it_is_loaded() {
        let found = GpuDevices::detect(Path::new("/no/such"), &[]);
        assert_eq!(found.majors.keys().collect::<Vec<_>>(), [&NVIDIA_MAJOR]);
    }

    #[test]
    fn a_node_of_the_config_must_be_a_device() {
        let null = DeviceNumber::new(1, 3);
        assert_eq!(number(Path::new("/dev/null")).unwrap(), null);
        let nodes = ["/no/such".into(), "/dev/null".into()];
        assert_eq!(
            GpuDevices::detect(Path::new("/no/such"), &nodes).nodes,
            [null]
        );
        for (path, word) in [
            ("/no/such", "No such file"),
            ("/tmp", "not a character device"),
        ] {
            let message = number(Path::new(path)).unwrap_err().to_string();
            assert!(
                message.starts_with(path) && message.contains(word),
                "{message}"
            );
        }
    }
}
