//! Which character devices of this host are GPUs, by the supervisor's own look at the kernel: an agent that was taken
//! over could otherwise leave a GPU out of the list and have it open to everybody.
//!
//! Looked at anew for each attempt: the driver may be loaded while the supervisor runs, and then gets other numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use sluice_common::device::{DeviceNumber, NVIDIA_MAJOR};

/// `/dev/nvidiactl`, which every program of CUDA opens first.
const NVIDIACTL: u32 = 255;
/// `/dev/nvidia-modeset`.
const NVIDIA_MODESET: u32 = 254;
/// What `/proc/devices` calls the capabilities of MIG; their major number is given out at each start.
const NVIDIA_CAPS: &str = "nvidia-caps";

/// The GPUs of a host as devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuDevices {
    /// Majors that hold nothing but GPUs, each with the minors that are nobody's GPU.
    pub(crate) majors: BTreeMap<u32, BTreeSet<u32>>,
    /// Single devices that the supervisor's config names.
    pub(crate) nodes: Vec<DeviceNumber>,
    /// Other ways to the same GPU, which are granted with it: its nodes below `/dev/dri`.
    pub(crate) companions: BTreeMap<DeviceNumber, Vec<DeviceNumber>>,
}

/// A node that the config names is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct NodeError {
    path: PathBuf,
    why: String,
}

impl GpuDevices {
    /// Those that are there now. `root` is `/`, or what a test puts in its place; `nodes` are further ones by config.
    pub fn look(root: &Path, nodes: &[PathBuf]) -> Self {
        let drivers = [NVIDIACTL, NVIDIA_MODESET].into();
        let mut majors = BTreeMap::from([(NVIDIA_MAJOR, drivers)]);
        let devices = fs::read_to_string(root.join("proc/devices")).unwrap_or_default();
        majors.extend(majors_of(&devices, NVIDIA_CAPS).map(|major| (major, BTreeSet::new())));
        Self {
            majors,
            nodes: nodes.iter().filter_map(|path| number(path).ok()).collect(),
            companions: companions(root),
        }
    }
}

/// What the kernel calls the device of a node.
///
/// # Errors
/// Where it is not there or is no character device: whoever names it believes that it is fenced.
pub fn number(path: &Path) -> Result<DeviceNumber, NodeError> {
    let failed = |why: String| NodeError {
        path: path.to_owned(),
        why,
    };
    let found = fs::metadata(path).map_err(|e| failed(e.to_string()))?;
    if !found.file_type().is_char_device() {
        let why = "it is no character device: name the nodes of GPUs, such as /dev/nvidia0";
        return Err(failed(why.to_owned()));
    }
    let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
    Ok(DeviceNumber::new(major, minor))
}

/// Lines such as `234 nvidia-caps`, below `Character devices:` and above `Block devices:`.
fn majors_of(devices: &str, name: &str) -> impl Iterator<Item = u32> {
    devices
        .lines()
        .take_while(|line| !line.starts_with("Block"))
        .filter_map(move |line| {
            let (major, found) = line.trim().split_once(' ')?;
            (found == name).then(|| major.parse().ok())?
        })
}

/// The driver names each GPU's address and minor, and the kernel what is drawn with at that address.
fn companions(root: &Path) -> BTreeMap<DeviceNumber, Vec<DeviceNumber>> {
    let gpus = entries(&root.join("proc/driver/nvidia/gpus"));
    let of_gpu = gpus.into_iter().filter_map(|gpu| {
        let information = fs::read_to_string(gpu.join("information")).ok()?;
        let minor = field(&information, "Device Minor")?.parse().ok()?;
        let pci = root.join("sys/bus/pci/devices").join(gpu.file_name()?);
        Some((DeviceNumber::new(NVIDIA_MAJOR, minor), drawn(&pci)))
    });
    of_gpu.collect()
}

fn drawn(pci: &Path) -> Vec<DeviceNumber> {
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

/// Of lines such as `Device Minor: \t 3`.
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
        let found = GpuDevices::look(root.path(), &[]);
        let majors = [(195, [254, 255].into()), (234, BTreeSet::new())];
        assert_eq!(found.majors, majors.into());
        let mut drawn = found.companions[&DeviceNumber::new(195, 3)].clone();
        drawn.sort();
        assert_eq!(
            drawn,
            [DeviceNumber::new(226, 1), DeviceNumber::new(226, 129)]
        );
    }

    #[test]
    fn the_driver_s_major_is_closed_before_it_is_loaded() {
        let found = GpuDevices::look(Path::new("/no/such"), &[]);
        assert_eq!(found.majors.keys().collect::<Vec<_>>(), [&NVIDIA_MAJOR]);
    }

    #[test]
    fn a_node_of_the_config_must_be_a_device() {
        let null = DeviceNumber::new(1, 3);
        assert_eq!(number(Path::new("/dev/null")).unwrap(), null);
        let nodes = ["/no/such".into(), "/dev/null".into()];
        assert_eq!(
            GpuDevices::look(Path::new("/no/such"), &nodes).nodes,
            [null]
        );
        for (path, word) in [
            ("/no/such", "No such file"),
            ("/tmp", "no character device"),
        ] {
            let message = number(Path::new(path)).unwrap_err().to_string();
            assert!(
                message.starts_with(path) && message.contains(word),
                "{message}"
            );
        }
    }
}
