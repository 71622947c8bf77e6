//! Fuzz targets for text from the host itself: what a step's processes control (their names, their variables,
//! the first line of a script, the output of a helper that runs as their user), and what a kernel or driver
//! may report.

use std::fs;
use std::path::Path;

use sluice_cgroups::devices::gpus::GpuDevices;
use sluice_cgroups::mounts::Hierarchies;
use sluice_fuzz::{Fuzz, place_for_files};

use crate::process::{mark_in, parse_stat};
use crate::spawn::helper::lines_in;
use crate::spawn::lookup::interpreter_in;

/// Checks that the pid is the kernel's, whatever name the process gave itself.
fn named(name: &[u8]) {
    let line = [
        b"17 (",
        name,
        b") S 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 99 0",
    ]
    .concat();
    let found = parse_stat(&line).expect("the kernel's own form");
    assert_eq!((found.pid, found.parent, found.start_ticks), (17, 1, 99));
}

/// Checks that a mark is a valid id, because it becomes part of paths.
fn marked(environ: &[u8]) {
    if let Some(attempt) = mark_in(environ) {
        let name = attempt.to_string();
        assert_eq!(name.parse().ok(), Some(attempt), "{name:?}");
        assert!(
            !name.contains(['/', '\0', '\n']) && !name.starts_with('.'),
            "{name:?}"
        );
    }
}

fn helped(words: &[u8]) {
    if let Some(lines) = std::str::from_utf8(words).ok().and_then(lines_in) {
        let told = lines
            .iter()
            .filter_map(|line| serde_json::to_string(line).ok());
        let text: Vec<String> = told.collect();
        assert_eq!(lines_in(&text.join("\n")), Some(lines));
    }
}

fn interpreted(head: &[u8]) {
    if let Some(said) = interpreter_in(head) {
        assert!(!said.chars().any(char::is_control), "{said:?}");
        assert!(said.len() < 300, "{} bytes", said.len());
    }
}

/// Checks that no group lies outside of its mount. The first line is the process's own groups, the others are
/// mounts.
fn mounted(root: &Path, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let (own, mounts) = text.split_once('\n').unwrap_or((&text, ""));
    fs::write(root.join("proc/self/cgroup"), own).unwrap();
    fs::write(root.join("proc/self/mountinfo"), mounts).unwrap();
    let found = Hierarchies::read(root).unwrap();
    for own in found.legacy.values().chain(&found.unified) {
        assert!(own.group.starts_with(&own.mount), "{own:?}");
        let below = own.group.strip_prefix(&own.mount).unwrap();
        assert!(
            !below.components().any(|part| part.as_os_str() == ".."),
            "{own:?}"
        );
    }
}

fn driven(root: &Path, text: &[u8]) {
    fs::write(root.join("proc/devices"), text).unwrap();
    let gpu = root.join("proc/driver/nvidia/gpus/0000:01:00.0");
    fs::write(gpu.join("information"), text).unwrap();
    let dri = root.join("sys/bus/pci/devices/0000:01:00.0/drm/card0");
    fs::write(dri.join("dev"), text).unwrap();
    let _found = GpuDevices::detect(root, &[]);
}

/// A directory tree of a host with a driver.
fn host() -> tempfile::TempDir {
    let root = tempfile::tempdir_in(place_for_files()).unwrap();
    for dir in [
        "proc/self",
        "proc/driver/nvidia/gpus/0000:01:00.0",
        "sys/bus/pci/devices/0000:01:00.0/drm/card0",
    ] {
        fs::create_dir_all(root.path().join(dir)).unwrap();
    }
    root
}

/// The first byte selects the target.
#[test]
fn what_a_host_says() {
    let words = [
        ") S 1 ",
        "SLUICE_STEP_ID=",
        "SLUICE_ATTEMPT=",
        "\0",
        "\"pid\":",
        "\"state\":\"checkpointed\"",
        "\"failed\":",
        "#!/bin/sh",
        "0::/",
        "8:pids:/a",
        " - cgroup2 cgroup2 rw",
        " - cgroup cgroup rw,pids",
        "../",
        "Character devices:\n",
        "234 nvidia-caps",
        "Device Minor: \t 3",
        "226:0",
    ];
    let root = host();
    Fuzz::new("host").words(&words).run(|input| {
        let Some((kind, rest)) = input.split_first() else {
            return;
        };
        match kind % 7 {
            0 => named(rest),
            1 => drop(parse_stat(rest)),
            2 => marked(rest),
            3 => helped(rest),
            4 => interpreted(rest),
            5 => mounted(root.path(), rest),
            _ => driven(root.path(), rest),
        }
    });
}
