//! Measures the time from the request to suspend a step until it is frozen, and from the request to resume until it
//! runs, and the lower bound in the same run: a bare freeze of one process by `cgroup.freeze`, seen in `cgroup.events`.
//! Once for a step without GPUs, once for one whose memory is moved by the stand-ins for NVIDIA's libraries, which move
//! nothing: that measures the helper and the looks at the GPU. `cargo bench -p sluice-tests --bench suspend` after
//! `cargo build --release`; prints medians of 100.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot measure has nothing to say"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_tests::{
    Daemon, Dev, DevOptions, binaries, eventually, host_of_l40s, median, report, say,
};

const ROUNDS: usize = 100;

fn main() {
    let floor = CgroupProcess::new();
    let plain = Dev::start();
    start(&plain, &["--cpus", "1"]);
    let gpu = BenchGpuHost::start();
    let mut figures: [Vec<Duration>; 6] = Default::default();
    for _ in 0..ROUNDS {
        figures[0].push(floor.set(true));
        figures[1].push(floor.set(false));
        figures[2].push(turn(&plain, "suspend", "suspended"));
        figures[3].push(turn(&plain, "resume", "running"));
        figures[4].push(turn(&gpu.dev, "suspend", "suspended"));
        figures[5].push(turn(&gpu.dev, "resume", "running"));
    }
    // Lock and checkpoint, restore and unlock.
    assert_eq!(gpu.calls(), 4 * ROUNDS, "its memory was not moved");
    let [freeze, thaw, suspend, resume, suspend_gpu, resume_gpu] = figures.map(median);
    report("a bare freeze by cgroup.freeze", freeze);
    report("a bare thaw", thaw);
    report("request to suspended", suspend);
    report("request to running again", resume);
    report("request to suspended, with a GPU", suspend_gpu);
    report("request to running again, with a GPU", resume_gpu);
    say(&format!(
        "suspend and resume / (freeze + thaw): {:.0}",
        (suspend + resume).as_secs_f64() / (freeze + thaw).as_secs_f64()
    ));
}

fn start(dev: &Dev, more: &[&str]) {
    let what = ["submit", "--id", "a"];
    dev.ok(&[&what[..], more, &["--", "sleep", "100000"]].concat());
    dev.step_in("a", &["running"]);
}

/// Polls without a pause, so that the end is measured exactly.
fn turn(dev: &Dev, verb: &str, state: &str) -> Duration {
    let before = Instant::now();
    let (status, answer) = dev.call("POST", &format!("/v1/steps/a:{verb}"), None);
    assert_eq!(status, 200, "{answer}");
    while dev.call("GET", "/v1/steps/a", None).1["state"] != *state {
        assert!(before.elapsed() < Duration::from_secs(60), "{verb} hangs");
    }
    before.elapsed()
}

/// A host with one GPU on which a step holds memory.
struct BenchGpuHost {
    dev: Dev,
    folder: tempfile::TempDir,
}

impl BenchGpuHost {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let hold =
            json!({"pid_file": pid, "used_mib": 600, "linger_ms": 0, "moved_by": folder.path()});
        host_of_l40s(folder.path(), 1, &hold);
        let host = folder.path().join("host.json");
        let library = binaries().join("libsluice_cuda_standin.so");
        let library = library.to_str().unwrap().to_owned();
        let dev = Dev::with(DevOptions {
            gpus: Some((binaries().join("libsluice_nvml_standin.so"), host)),
            variables: vec![("SLUICE_SUPERVISOR_CUDA_LIBRARY", library)],
            ..DevOptions::default()
        });
        let env = format!("CUDA_STANDIN={}", folder.path().display());
        start(&dev, &["--gpus", "1", "--env", &env]);
        fs::write(&pid, main_process(&dev)).unwrap();
        Self { dev, folder }
    }

    /// Counts the driver's calls that change something.
    fn calls(&self) -> usize {
        let calls = fs::read_to_string(self.folder.path().join("calls"));
        calls.unwrap_or_default().lines().count()
    }
}

/// Returns the step's process: the only child of this host's supervisor.
fn main_process(dev: &Dev) -> String {
    let supervisor = eventually("its supervisor", || dev.daemon(Daemon::Supervisor));
    let children = format!("/proc/{supervisor}/task/{supervisor}/children");
    let children = fs::read_to_string(children).unwrap();
    children.trim().to_owned()
}

/// One process in its own control group.
struct CgroupProcess {
    group: PathBuf,
    child: Child,
}

impl CgroupProcess {
    fn new() -> Self {
        let group = own_group().join(format!("sluice-bench-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let child = Command::new("sleep").arg("100000").spawn().unwrap();
        fs::write(group.join("cgroup.procs"), child.id().to_string()).unwrap();
        Self { group, child }
    }

    fn set(&self, frozen: bool) -> Duration {
        let (value, wanted) = if frozen {
            ("1", "frozen 1")
        } else {
            ("0", "frozen 0")
        };
        let before = Instant::now();
        fs::write(self.group.join("cgroup.freeze"), value).unwrap();
        while !fs::read_to_string(self.group.join("cgroup.events"))
            .unwrap()
            .contains(wanted)
        {
            assert!(before.elapsed() < Duration::from_secs(60), "a freeze hangs");
        }
        before.elapsed()
    }
}

impl Drop for CgroupProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir(&self.group);
    }
}

/// Returns the cgroup v2 group of this process.
fn own_group() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts
        .lines()
        .find(|line| line.contains(" - cgroup2 "))
        .unwrap();
    let mount = mount.split(' ').nth(4).unwrap();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .unwrap();
    Path::new(mount).join(own)
}
