//! Tests that the list written to a group allows exactly what the filter allows.

use std::collections::BTreeSet;

use sluice_common::supervision::DeviceAccess;

use super::*;
use crate::devices::gpus::GpuDevices;

/// A filter of the driver's GPUs and two stand-ins of major 1, with GPU 2 and one stand-in granted.
fn filter() -> DeviceFilter {
    let host = GpuDevices {
        majors: [(195, [254, 255].into())].into(),
        nodes: vec![DeviceNumber::new(1, 5), DeviceNumber::new(1, 8)],
        ..GpuDevices::default()
    };
    let devices = DeviceAccess {
        granted: vec![DeviceNumber::new(195, 2), DeviceNumber::new(1, 8)],
        ..DeviceAccess::default()
    };
    DeviceFilter::new(&host, &devices).unwrap()
}

fn left(inherited: &str) -> Vec<AccessRule> {
    let mut left = Vec::new();
    for line in inherited.lines() {
        line.parse::<AccessRule>()
            .unwrap()
            .less(&filter(), &mut left);
    }
    left
}

fn lines(inherited: &str) -> Vec<String> {
    left(inherited).iter().map(AccessRule::to_string).collect()
}

#[test]
fn of_everything_all_is_left_that_the_fence_allows() {
    let left = left("a *:* rwm");
    assert!(left.iter().all(|rule| rule.access == "rwm"));
    assert!(left.iter().any(|rule| rule.kind == DeviceType::Block));
    let allowed = |major, minor| {
        left.iter().any(|rule| {
            rule.kind == DeviceType::Character
                && rule.major == Some(major)
                && rule.minor.is_none_or(|m| m == minor)
        })
    };
    for major in 0..MAJORS {
        for minor in 0..MINORS {
            let expected = filter().allows(DeviceNumber::new(major, minor));
            assert_eq!(allowed(major, minor), expected, "{major}:{minor}");
        }
    }
}

#[test]
fn nothing_is_left_that_was_not_inherited() {
    let inherited = "c 1:5 rwm\nc 1:8 rw\nc 1:3 rwm\nc 195:* rw\nb 7:* rwm\nc 136:* rwm";
    let expected = [
        "c 1:8 rw",
        "c 1:3 rwm",
        "c 195:2 rw",
        "c 195:254 rw",
        "c 195:255 rw",
        "b 7:* rwm",
        "c 136:* rwm",
    ];
    assert_eq!(lines(inherited), expected);
}

#[test]
fn a_right_to_make_any_node_is_cut_down_too() {
    let left = left("c *:* m");
    let majors: BTreeSet<u32> = left.iter().filter_map(|rule| rule.major).collect();
    assert_eq!(majors.len(), MAJORS as usize);
    assert!(left.iter().all(|rule| rule.access == "m"));
    let gpus = left.iter().filter(|rule| rule.major == Some(195));
    let minors: Vec<_> = gpus.map(|rule| rule.minor).collect();
    assert_eq!(minors, [Some(2), Some(254), Some(255)]);
}

#[test]
fn rules_are_read_as_they_are_written() {
    for line in ["a *:* rwm", "b 8:0 r", "c 195:* rw", "c 1:3 m"] {
        assert_eq!(line.parse::<AccessRule>().unwrap().to_string(), line);
    }
    for line in ["", "x 1:1 r", "c 1 r", "c 1:x r", "c 1:1"] {
        assert_eq!(line.parse::<AccessRule>(), Err(()), "{line}");
    }
}
