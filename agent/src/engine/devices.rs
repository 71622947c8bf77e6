//! Maps granted GPUs to devices: the coordinator names GPUs by UUID, the supervisor knows only device
//! numbers, and the driver's inventory has both. Pure.

use std::collections::BTreeSet;

use sluice_common::device::DeviceNumber;
use sluice_common::inventory::Gpu;
use sluice_common::supervision::DeviceAccess;

/// The devices of the granted GPUs and of all GPUs; and the granted GPUs without known devices, which a step
/// with a device filter cannot open.
pub(super) fn of(gpus: &[String], host: &[Gpu]) -> (DeviceAccess, Vec<String>) {
    let numbers =
        |gpu: &Gpu| -> Vec<DeviceNumber> { gpu.devices.iter().map(|node| node.number).collect() };
    // Instances of one GPU name its device repeatedly.
    let fenced: BTreeSet<DeviceNumber> = host.iter().flat_map(numbers).collect();
    let mut granted = BTreeSet::new();
    let mut unknown = Vec::new();
    for uuid in gpus {
        let gpu = host.iter().find(|gpu| gpu.uuid == *uuid);
        match gpu.filter(|gpu| !gpu.devices.is_empty()) {
            Some(gpu) => granted.extend(numbers(gpu)),
            None => unknown.push(uuid.clone()),
        }
    }
    let devices = DeviceAccess {
        granted: granted.into_iter().collect(),
        all_gpus: fenced.into_iter().collect(),
    };
    (devices, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::device::DeviceNode;

    const fn number(major: u32, minor: u32) -> DeviceNumber {
        DeviceNumber::new(major, minor)
    }

    fn gpu(uuid: &str, numbers: &[DeviceNumber]) -> Gpu {
        let nodes = numbers.iter().map(|number| DeviceNode {
            path: format!("/dev/{number}"),
            number: *number,
        });
        Gpu {
            uuid: uuid.to_owned(),
            devices: nodes.collect(),
            ..Gpu::default()
        }
    }

    #[test]
    fn a_step_is_granted_the_devices_of_its_gpus_and_fenced_from_the_rest() {
        let host = [
            gpu("GPU-a", &[number(195, 0)]),
            gpu("MIG-1", &[number(195, 1), number(234, 3), number(234, 4)]),
            gpu("MIG-2", &[number(195, 1), number(234, 5), number(234, 6)]),
        ];
        let gpus = ["MIG-1", "GPU-gone"].map(str::to_owned);
        let (devices, unknown) = of(&gpus, &host);
        assert_eq!(unknown, ["GPU-gone"]);
        let expected = [number(195, 1), number(234, 3), number(234, 4)];
        assert_eq!(devices.granted, expected);
        let all = [
            number(195, 0),
            number(195, 1),
            number(234, 3),
            number(234, 4),
            number(234, 5),
            number(234, 6),
        ];
        assert_eq!(devices.all_gpus, all);
    }

    #[test]
    fn a_step_without_gpus_is_fenced_from_all() {
        let (devices, unknown) = of(&[], &[gpu("GPU-a", &[number(195, 0)])]);
        assert!(unknown.is_empty());
        assert!(devices.granted.is_empty());
        assert_eq!(devices.all_gpus, [number(195, 0)]);
    }
}
