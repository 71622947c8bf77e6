//! The device nodes by which a step accesses a GPU or an instance: the supervisor allows only these.
//!
//! A whole GPU has one, named after its minor number. An instance shares that of its GPU and has two of its
//! own: the driver controls access to a GPU instance and a compute instance by capability devices.

use std::fs;
use std::path::Path;

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use sluice_common::device::{DeviceNode, DeviceNumber, NVIDIA_MAJOR};

use super::answer::optional;
use crate::detect::notes::Notes;

/// Below this directory of `/proc/driver/nvidia` each GPU has a directory, by minor number.
const CAPABILITIES: &str = "proc/driver/nvidia/capabilities";
/// Name in the kernel's list of devices.
const NVIDIA_CAPS: &str = "nvidia-caps";

/// Node of a whole GPU; empty if the driver does not tell.
pub(super) fn of_gpu(device: &Device<'_>, notes: &mut Notes) -> Vec<DeviceNode> {
    let minor = optional("a GPU's device node", device.minor_number(), notes);
    let node = minor.map(|minor| DeviceNode {
        path: format!("/dev/nvidia{minor}"),
        number: DeviceNumber::new(NVIDIA_MAJOR, minor),
    });
    node.into_iter().collect()
}

/// Nodes of an instance in addition to its GPU's. A driver without capabilities does not restrict instances.
pub(super) fn of_instance(
    instance: &Device<'_>,
    gpu: &[DeviceNode],
    notes: &mut Notes,
) -> Vec<DeviceNode> {
    let Some(gpu) = gpu.first().map(|node| node.number.minor) else {
        return Vec::new();
    };
    let Some(ids) = optional("which instance a MIG device is", ids(instance), notes) else {
        return Vec::new();
    };
    let found = capabilities(Path::new("/"), gpu, ids);
    found.unwrap_or_else(|why| {
        notes.add(format!(
            "the devices of a MIG instance are not known, so a step with a device filter cannot use it: {why}"
        ));
        Vec::new()
    })
}

/// Ids of the GPU instance and the compute instance.
#[expect(unsafe_code, reason = "the wrapper has no call for either")]
fn ids(instance: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    let library = instance.nvml().lib();
    let of_gpu = nvml_sym(library.nvmlDeviceGetGpuInstanceId.as_ref())?;
    let of_compute = nvml_sym(library.nvmlDeviceGetComputeInstanceId.as_ref())?;
    let (mut gpu, mut compute) = (0, 0);
    // SAFETY: the handle is from this library and valid, and both numbers are writable.
    unsafe {
        nvml_try(of_gpu(instance.handle(), &raw mut gpu))?;
        nvml_try(of_compute(instance.handle(), &raw mut compute))?;
    }
    Ok((gpu, compute))
}

/// `root` is `/`, or a test's directory.
pub(crate) fn capabilities(
    root: &Path,
    gpu: u32,
    (instance, compute): (u32, u32),
) -> Result<Vec<DeviceNode>, String> {
    let all = root.join(CAPABILITIES);
    if !all.exists() {
        return Ok(Vec::new());
    }
    let devices = read(&root.join("proc/devices"))?;
    let major = major_of(&devices, NVIDIA_CAPS)
        .ok_or_else(|| format!("no driver `{NVIDIA_CAPS}` in /proc/devices"))?;
    let instance = all.join(format!("gpu{gpu}/mig/gi{instance}"));
    let files = [
        instance.join("access"),
        instance.join(format!("ci{compute}/access")),
    ];
    let nodes = files.iter().map(|file| {
        let text = read(file)?;
        let minor = minor_in(&text).ok_or_else(|| format!("{} names no device", file.display()))?;
        Ok(DeviceNode {
            path: format!("/dev/nvidia-caps/nvidia-cap{minor}"),
            number: DeviceNumber::new(major, minor),
        })
    });
    nodes.collect()
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Parses lines such as `234 nvidia-caps`.
fn major_of(devices: &str, name: &str) -> Option<u32> {
    let mut lines = devices.lines().map(|line| line.trim().split_once(' '));
    let found = lines.find(|line| line.is_some_and(|(_, found)| found == name))?;
    found?.0.parse().ok()
}

/// Parses lines such as `DeviceFileMinor: 21`.
fn minor_in(text: &str) -> Option<u32> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, minor) = lines.find(|(name, _)| name.trim() == "DeviceFileMinor")?;
    minor.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const DEVICES: &str =
        "Character devices:\n195 nvidia\n234 nvidia-caps\n\nBlock devices:\n  7 loop\n";

    #[test]
    fn an_instance_has_a_device_for_itself_and_one_for_its_compute_instance() {
        let gi = "proc/driver/nvidia/capabilities/gpu3/mig/gi2";
        let root = tree(&[
            ("proc/devices", DEVICES),
            (
                &format!("{gi}/access"),
                "DeviceFileMinor: 21\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
            ),
            (&format!("{gi}/ci1/access"), "DeviceFileMinor: 23\n"),
        ]);
        let found = capabilities(root.path(), 3, (2, 1)).unwrap();
        let paths: Vec<&str> = found.iter().map(|node| node.path.as_str()).collect();
        let expected = [
            "/dev/nvidia-caps/nvidia-cap21",
            "/dev/nvidia-caps/nvidia-cap23",
        ];
        assert_eq!(paths, expected);
        assert_eq!(found[1].number, DeviceNumber::new(234, 23));
        let why = capabilities(root.path(), 3, (2, 0)).unwrap_err();
        assert!(why.contains("gi2/ci0/access"), "{why}");
    }

    #[test]
    fn a_driver_without_capabilities_has_none() {
        let root = tree(&[("proc/devices", DEVICES)]);
        assert_eq!(capabilities(root.path(), 0, (0, 0)), Ok(vec![]));
    }
}
