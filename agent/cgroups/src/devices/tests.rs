//! What a fence allows, that the program says the same, and that a kernel does what the program says.

use super::program::{assemble, machine};
use super::*;

const fn device(major: u32, minor: u32) -> DeviceNumber {
    DeviceNumber::new(major, minor)
}

/// A host with the driver's GPUs, MIG, a GPU that can be drawn with, and a stand-in that the config names.
fn host() -> GpuDevices {
    GpuDevices {
        majors: [(195, [254, 255].into()), (234, BTreeSet::new())].into(),
        nodes: vec![device(1, 8)],
        companions: [
            (device(195, 0), vec![device(226, 128)]),
            (device(195, 1), vec![device(226, 129)]),
        ]
        .into(),
    }
}

fn fence(granted: &[DeviceNumber], fenced: &[DeviceNumber]) -> DeviceFilter {
    let devices = DeviceAccess {
        granted: granted.to_vec(),
        all_gpus: fenced.to_vec(),
    };
    DeviceFilter::new(&host(), &devices).unwrap()
}

#[test]
fn a_step_reaches_its_own_gpu_and_what_is_no_gpu() {
    let fence = fence(&[device(195, 1), device(234, 21)], &[]);
    for open in [
        device(195, 1),
        device(195, 254),
        device(195, 255),
        device(234, 21),
        device(226, 129),
        device(226, 0),
        device(1, 3),
        device(1, 9),
        device(136, 7),
        device(231, 192),
    ] {
        assert!(fence.allows(open), "{open}");
    }
    for closed in [
        device(195, 0),
        device(195, 2),
        device(195, 253),
        device(234, 1),
        device(234, 22),
        device(226, 128),
        device(1, 8),
    ] {
        assert!(!fence.allows(closed), "{closed}");
    }
}

#[test]
fn the_agent_can_close_more_and_opens_only_what_it_grants() {
    let none = fence(&[], &[]);
    assert!(!none.allows(device(195, 0)) && !none.allows(device(1, 8)));
    let more = fence(&[device(1, 5)], &[device(1, 5), device(1, 7)]);
    assert!(more.allows(device(1, 5)) && !more.allows(device(1, 7)));
    assert!(
        !more.allows(device(195, 0)),
        "what nobody named stays closed"
    );
}

#[test]
fn too_many_devices_are_refused() {
    let devices = DeviceAccess {
        all_gpus: vec![device(1, 1); MAX_NAMED_DEVICES + 1],
        ..DeviceAccess::default()
    };
    let error = DeviceFilter::new(&host(), &devices).unwrap_err();
    assert!(matches!(error, DeviceFilterError::TooMany { count: 4097 }));
}

#[test]
fn the_program_says_what_the_fence_says() {
    let strange = [
        device(u32::MAX, 3),
        device(u32::MAX, u32::MAX),
        device(0, 0),
    ];
    for fence in [
        fence(&[], &[]),
        fence(&[device(195, 1), device(234, 21)], &strange),
        fence(&[device(1, 8)], &[device(1, 5), device(195, 255)]),
        fence(&[device(1, 8), device(226, 128)], &[]),
        fence(&[], &[device(195, 254), device(195, 255)]),
    ] {
        let program = assemble(&fence);
        assert!(machine::is_all_reachable(&program), "{fence:?}");
        for major in [0, 1, 2, 136, 195, 226, 234, u32::MAX] {
            for minor in (0..300).chain([u32::MAX - 1, u32::MAX]) {
                let expected = fence.allows(device(major, minor));
                assert_eq!(machine::run(&program, 2, major, minor), expected);
                assert!(machine::run(&program, 1, major, minor), "a block device");
            }
        }
    }
}

#[test]
fn the_longest_program_is_assembled() {
    let many = |majors: u32| -> Vec<DeviceNumber> {
        (0..MAX_NAMED_DEVICES as u32)
            .map(|n| device(1000 + n % majors, n))
            .collect()
    };
    for majors in [1, MAX_NAMED_DEVICES as u32] {
        let fence = fence(&[], &many(majors));
        let program = assemble(&fence);
        assert!(!machine::run(&program, 2, 1000, 0));
        assert!(machine::run(&program, 2, 999, 0));
    }
}
