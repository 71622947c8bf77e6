//! Which devices a step is granted: the coordinator names GPUs by UUID, the supervisor knows devices alone, and what
//! belongs together the driver has told. Pure.

use std::collections::BTreeSet;

use sluice_common::device::DeviceNumber;
use sluice_common::inventory::Gpu;
use sluice_common::supervision::Devices;

/// Fills in the devices of the GPUs that were granted, and of all that there are. Comes back with those of which the
/// driver told no device: a step that is fenced cannot open them.
pub(super) fn fill(devices: &mut Devices, host: &[Gpu]) -> Vec<String> {
    let numbers =
        |gpu: &Gpu| -> Vec<DeviceNumber> { gpu.devices.iter().map(|node| node.number).collect() };
    // Instances of one GPU name its device each.
    let fenced: BTreeSet<DeviceNumber> = host.iter().flat_map(numbers).collect();
    let mut granted = BTreeSet::new();
    let mut unknown = Vec::new();
    for uuid in &devices.gpus {
        let gpu = host.iter().find(|gpu| gpu.uuid == *uuid);
        match gpu.filter(|gpu| !gpu.devices.is_empty()) {
            Some(gpu) => granted.extend(numbers(gpu)),
            None => unknown.push(uuid.clone()),
        }
    }
    devices.granted = granted.into_iter().collect();
    devices.fenced = fenced.into_iter().collect();
    unknown
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
        let mut devices = Devices {
            gpus: vec!["MIG-1".to_owned(), "GPU-gone".to_owned()],
            ..Devices::default()
        };
        assert_eq!(fill(&mut devices, &host), ["GPU-gone"]);
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
        assert_eq!(devices.fenced, all);
    }

    #[test]
    fn a_step_without_gpus_is_fenced_from_all() {
        let mut devices = Devices::default();
        assert!(fill(&mut devices, &[gpu("GPU-a", &[number(195, 0)])]).is_empty());
        assert!(devices.granted.is_empty());
        assert_eq!(devices.fenced, [number(195, 0)]);
    }
}
