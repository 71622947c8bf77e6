//! Resource usage of an attempt, as reported at its end.

use sluice_common::supervision::ProcessEnd;
use sluice_common::usage::Usage;

use crate::client::sh;
use crate::host::Host;

/// Works in a process that no parent waits for, so that only a group counts it.
const WORK: &str = "n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done";

fn used(args: &[&str], script: &str) -> (Usage, bool) {
    let host = Host::start_with(args);
    let mut client = host.client();
    let spec = sh("worker.1", script);
    client.spawn(&spec);
    let ProcessEnd { usage, .. } = client.wait_gone(&spec.attempt);
    (usage, !host.groups().is_empty())
}

#[test]
fn all_of_its_processes_count() {
    let (usage, left) = used(&[], &format!("({WORK}) & {WORK}; wait"));
    assert!(!left);
    assert!(usage.cpu_us.unwrap() > 10_000, "{usage:?}");
    // Without a memory controller the number is that of the largest process.
    assert!(usage.peak_memory_bytes.unwrap() > 100_000, "{usage:?}");
}

#[test]
fn without_groups_the_main_process_and_what_it_waited_for_count() {
    let (usage, _) = used(&["--cgroup", "none"], &format!("({WORK}); exit 0"));
    assert!(usage.cpu_us.unwrap() > 10_000, "{usage:?}");
    assert!(usage.peak_memory_bytes.unwrap() > 100_000, "{usage:?}");
}
