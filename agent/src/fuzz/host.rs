//! Fuzz targets for text from the host, such as unexpected kernel or driver files, for stored warrants, and for metrics
//! that attempts serve.

use std::fs;
use std::path::Path;

use sluice_common::id::AttemptId;
use sluice_common::limit::MAX_WARRANT_BYTES;
use sluice_common::service::MAX_LOAD_MILLI;
use sluice_fuzz::{Fuzz, place_for_files};

use crate::detect;
use crate::metrics::MetricParser;
use crate::warrants::Warrants;

/// The lines are the list of processors, that of a node, and that of a core's threads.
fn near(root: &Path, text: &str) {
    let mut lines = text.splitn(3, '\n');
    let mut next = || lines.next().unwrap_or_default();
    let allowed = format!("Name:\tx\nCpus_allowed_list:\t{}\n", next());
    fs::write(root.join("proc/self/status"), allowed).unwrap();
    fs::write(root.join("sys/devices/system/node/node0/cpulist"), next()).unwrap();
    let core = root.join("sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    fs::write(core, next()).unwrap();
    let found = detect::topology::read(root, 1, &[]);
    let mut numbers: Vec<u32> = found.processors.iter().map(|one| one.number).collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "each processor is there once");
}

fn capable(root: &Path, text: &str) {
    fs::write(root.join("proc/devices"), text).unwrap();
    let instance = root.join("proc/driver/nvidia/capabilities/gpu0/mig/gi1");
    fs::write(instance.join("access"), text).unwrap();
    fs::write(instance.join("ci0/access"), text).unwrap();
    if let Ok(nodes) = detect::nvml::nodes::capabilities(root, 0, (1, 0)) {
        assert!(
            nodes
                .iter()
                .all(|node| node.path.starts_with("/dev/nvidia-caps/nvidia-cap"))
        );
    }
}

fn warranted(dir: &Path, bytes: &[u8]) {
    let attempt: AttemptId = "a.1".parse().unwrap();
    fs::write(dir.join("warrants/a.1"), bytes).unwrap();
    if let Some(warrant) = Warrants::new(dir).of(&attempt) {
        assert!(warrant.as_str().len() <= MAX_WARRANT_BYTES);
        assert_eq!(warrant.as_str().as_bytes(), bytes);
    }
}

fn host() -> tempfile::TempDir {
    let root = tempfile::tempdir_in(place_for_files()).unwrap();
    for dir in [
        "proc/self",
        "warrants",
        "sys/devices/system/node/node0",
        "sys/devices/system/cpu/cpu0/topology",
        "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0",
    ] {
        fs::create_dir_all(root.path().join(dir)).unwrap();
    }
    root
}

/// The first byte selects the target.
#[test]
fn what_a_host_says() {
    let words = [
        "0-3,8-11",
        "4294967295",
        "234 nvidia-caps\n",
        "DeviceFileMinor: 21\n",
        "0.52 0.58 0.59 1/389 12345",
        "18446744073709551615.999",
    ];
    let root = host();
    Fuzz::new("agent-host")
        .words(&words)
        .memory(4 << 20, 4096)
        .run(|input| {
            let Some((kind, rest)) = input.split_first() else {
                return;
            };
            let text = String::from_utf8_lossy(rest);
            match kind % 4 {
                0 => near(root.path(), &text),
                1 => capable(root.path(), &text),
                2 => warranted(root.path(), rest),
                _ => drop(detect::load_milli(&text)),
            }
        });
}

/// The sum of a metric does not depend on the pieces in which the text comes.
#[test]
fn metrics_of_attempts() {
    let words = [
        "q{a=\"b\",c=\"\\\"d\"} ",
        "q 1.5\n",
        "q NaN\n",
        "# TYPE q gauge\n",
        "+Inf",
        "1e308",
        " 1700000000000\n",
    ];
    let sum = |input: &[u8], size: usize| {
        let mut sum = MetricParser::new("q");
        for piece in input.chunks(size) {
            sum.push(piece)?;
        }
        sum.end()
    };
    Fuzz::new("agent-metrics").words(&words).run(|input| {
        let whole = sum(input, usize::MAX);
        assert_eq!(sum(input, 3), whole);
        match whole {
            Ok(milli) => assert!(milli <= MAX_LOAD_MILLI),
            Err(why) => assert!(why.len() < 200 && !why.contains(char::is_control), "{why}"),
        }
    });
}
