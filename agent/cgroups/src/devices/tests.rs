//! Tests what a filter allows, and that the BPF program gives the same answers.

use super::program::{assemble, machine};
use super::*;

const fn device(major: u32, minor: u32) -> DeviceNumber {
    DeviceNumber::new(major, minor)
}

/// A host with the driver's GPUs, MIG, a GPU with nodes below `/dev/dri`, and a stand-in from the config.
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

fn filter(granted: &[DeviceNumber], fenced: &[DeviceNumber]) -> DeviceFilter {
    let devices = DeviceAccess {
        granted: granted.to_vec(),
        all_gpus: fenced.to_vec(),
    };
    DeviceFilter::new(&host(), &devices).unwrap()
}

#[test]
fn a_step_reaches_its_own_gpu_and_what_is_no_gpu() {
    let filter = filter(&[device(195, 1), device(234, 21)], &[]);
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
        assert!(filter.allows(open), "{open}");
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
        assert!(!filter.allows(closed), "{closed}");
    }
}

#[test]
fn the_agent_can_close_more_and_opens_only_what_it_grants() {
    let none = filter(&[], &[]);
    assert!(!none.allows(device(195, 0)) && !none.allows(device(1, 8)));
    let more = filter(&[device(1, 5)], &[device(1, 5), device(1, 7)]);
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
    for filter in [
        filter(&[], &[]),
        filter(&[device(195, 1), device(234, 21)], &strange),
        filter(&[device(1, 8)], &[device(1, 5), device(195, 255)]),
        filter(&[device(1, 8), device(226, 128)], &[]),
        filter(&[], &[device(195, 254), device(195, 255)]),
    ] {
        let program = assemble(&filter);
        assert!(machine::is_all_reachable(&program), "{filter:?}");
        for major in [0, 1, 2, 136, 195, 226, 234, u32::MAX] {
            for minor in (0..300).chain([u32::MAX - 1, u32::MAX]) {
                let expected = filter.allows(device(major, minor));
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
        let filter = filter(&[], &many(majors));
        let program = assemble(&filter);
        assert!(!machine::run(&program, 2, 1000, 0));
        assert!(machine::run(&program, 2, 999, 0));
    }
}
