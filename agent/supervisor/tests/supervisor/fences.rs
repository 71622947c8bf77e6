//! Device filters on real control groups of this kernel: what a shell in the group can open and make, and
//! what not.
//!
//! The GPUs are stand-ins: nodes in a temporary directory with the numbers of `/dev/zero` and `/dev/full`,
//! which the shell does not need. Only root can make groups and nodes, so these tests pass at once for other
//! users.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use sluice_cgroups::devices::DeviceFilter;
use sluice_cgroups::devices::gpus::GpuDevices;
use sluice_common::device::DeviceNumber;
use sluice_common::supervision::DeviceAccess;

/// `/dev/zero` and `/dev/full`.
pub(crate) const FIRST: DeviceNumber = DeviceNumber::new(1, 5);
pub(crate) const SECOND: DeviceNumber = DeviceNumber::new(1, 7);

/// Version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    Unified,
    Legacy,
}

/// A group below this process's own, removed at the end of the test.
struct TestGroup {
    version: CgroupVersion,
    path: PathBuf,
}

impl TestGroup {
    fn new(version: CgroupVersion) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = own_group(version).join(format!("fences-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self { version, path }
    }

    fn fence(&self, fence: &DeviceFilter) {
        match self.version {
            CgroupVersion::Unified => {
                let group = File::open(&self.path).unwrap();
                fence.load().and_then(|loaded| loaded.attach(group.as_fd()))
            }
            CgroupVersion::Legacy => fence.write_to(&self.path),
        }
        .unwrap();
    }

    /// Runs a script in the group.
    fn sh(&self, script: &str) -> Output {
        let procs = File::options()
            .write(true)
            .open(self.path.join("cgroup.procs"))
            .unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let enter = move || {
            nix::unistd::write(&procs, b"0")
                .map(drop)
                .map_err(Into::into)
        };
        #[expect(
            unsafe_code,
            reason = "a child enters its group before it is the program"
        )]
        // SAFETY: the child only writes to an open file between fork and exec.
        unsafe {
            command.pre_exec(enter)
        };
        command.output().unwrap()
    }

    fn succeeds(&self, script: &str) -> bool {
        self.sh(script).status.success()
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        // The group's last process was waited for, so the kernel removes the group at once.
        let removed = fs::remove_dir(&self.path);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

/// The group of this process, from `mountinfo`.
fn own_group(version: CgroupVersion) -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let (filesystem, option) = match version {
        CgroupVersion::Unified => ("cgroup2", ""),
        CgroupVersion::Legacy => ("cgroup", "devices"),
    };
    let mount = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let words: Vec<&str> = kind.split_whitespace().collect();
        let has = option.is_empty() || words.last()?.split(',').any(|word| word == option);
        (words.first() == Some(&filesystem) && has).then(|| place.split(' ').nth(4))?
    });
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        let found = controllers.split(',').any(|word| word == option);
        found.then(|| parts.next())?
    });
    let mount = mount.expect("this machine has control groups of both versions");
    Path::new(mount).join(own.unwrap_or("/").trim_start_matches('/'))
}

/// Device nodes of stand-in GPUs.
pub(crate) fn nodes(dir: &Path) -> [PathBuf; 2] {
    [("gpu0", FIRST), ("gpu1", SECOND)].map(|(name, number)| {
        let path = dir.join(name);
        node(&path, number);
        path
    })
}

/// Makes a device node, whether or not a driver exists for it.
pub(crate) fn node(path: &Path, number: DeviceNumber) {
    let device = makedev(u64::from(number.major), u64::from(number.minor));
    mknod(
        path,
        SFlag::S_IFCHR,
        Mode::from_bits_truncate(0o666),
        device,
    )
    .unwrap();
}

fn fence(granted: &[DeviceNumber]) -> DeviceFilter {
    let host = GpuDevices::detect(Path::new("/"), &["/dev/zero".into(), "/dev/full".into()]);
    let devices = DeviceAccess {
        granted: granted.to_vec(),
        ..DeviceAccess::default()
    };
    DeviceFilter::new(&host, &devices).unwrap()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn with_both(test: impl Fn(&TestGroup, &Path, &Path)) {
    if !is_root() {
        return eprintln!("not root: no group can be made, so none is fenced here");
    }
    for version in [CgroupVersion::Unified, CgroupVersion::Legacy] {
        let dir = tempfile::tempdir().unwrap();
        let [own, other] = nodes(dir.path());
        let group = TestGroup::new(version);
        let both = format!("exec 3<{} && exec 4<{}", own.display(), other.display());
        assert!(
            group.succeeds(&both),
            "{version:?}: unfenced, both are open"
        );
        group.fence(&fence(&[FIRST]));
        test(&group, &own, &other);
    }
}

#[test]
fn a_program_opens_its_own_gpu_and_no_other() {
    with_both(|group, own, other| {
        let version = group.version;
        let reads = |path: &Path| group.succeeds(&format!("exec 3<{}", path.display()));
        let writes = |path: &Path| group.succeeds(&format!("exec 3>{}", path.display()));
        assert!(reads(own) && writes(own), "{version:?}");
        assert!(!reads(other) && !writes(other), "{version:?}");
        let refused = group.sh(&format!("cat {}", other.display()));
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            why.contains("Operation not permitted"),
            "{version:?}: {why}"
        );
    });
}

#[test]
fn what_is_no_gpu_stays_open() {
    with_both(|group, _, _| {
        for device in ["/dev/null", "/dev/urandom", "/dev/random", "/dev/ptmx"] {
            let script = format!("exec 3<>{device}");
            assert!(group.succeeds(&script), "{:?}: {device}", group.version);
        }
        let terminal = "script -qec 'tty; exec 3<>$(tty)' /dev/null";
        let output = group.sh(terminal);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.contains("/dev/pts/"),
            "{:?}: {said}",
            group.version
        );
    });
}

#[test]
fn no_node_can_be_made_for_another_gpu() {
    with_both(|group, own, _| {
        let dir = own.parent().unwrap().display().to_string();
        let makes = |number: DeviceNumber| {
            let DeviceNumber { major, minor } = number;
            group.succeeds(&format!("mknod {dir}/{major}-{minor} c {major} {minor}"))
        };
        let version = group.version;
        assert!(
            makes(FIRST) && makes(DeviceNumber::new(1, 3)),
            "{version:?}"
        );
        assert!(!makes(SECOND), "{version:?}");
        assert!(!makes(DeviceNumber::new(195, 0)), "{version:?}: a real one");
        assert!(makes(DeviceNumber::new(195, 255)), "{version:?}: nvidiactl");
    });
}

#[test]
fn the_fence_holds_whatever_a_process_does_to_get_away() {
    with_both(|group, own, other| {
        let (own, other) = (own.display(), other.display());
        let tries = format!("exec 3<{own} && ! (exec 4<{other}) 2>/dev/null");
        for script in [
            format!("sh -c '{tries}'"),
            format!("setsid -w sh -c '{tries}'"),
            format!("(sh -c '{tries}'; exit $?) & wait $!"),
            format!("setsid -w setsid -w env -i PATH=$PATH nohup sh -c '{tries}'"),
        ] {
            assert!(group.succeeds(&script), "{:?}: {script}", group.version);
        }
    });
}

#[test]
fn a_group_within_is_no_way_out() {
    with_both(|group, own, other| {
        let (inner, own, other) = (group.path.join("inner"), own.display(), other.display());
        let place = inner.display();
        // Root in the group may create a nested group, and the filter still applies there.
        let allow = "echo 'a *:* rwm' >$G/devices.allow 2>/dev/null; echo 'c 1:7 rwm' >$G/devices.allow 2>/dev/null";
        let script = format!(
            "G={place}; mkdir $G && echo 0 >$G/cgroup.procs; {allow}; (exec 3<{own}) && ! (exec 4<{other}) 2>/dev/null"
        );
        assert!(group.succeeds(&script), "{:?}", group.version);
        fs::remove_dir(&inner).unwrap();
    });
}

#[test]
fn the_largest_fence_is_taken_by_the_kernel() {
    if !is_root() {
        return eprintln!("not root: no group can be made, so none is fenced here");
    }
    let host = GpuDevices::detect(Path::new("/"), &[]);
    let fenced = (0..4096)
        .map(|n| DeviceNumber::new(300 + n % 7, n))
        .collect();
    let devices = DeviceAccess {
        all_gpus: fenced,
        ..DeviceAccess::default()
    };
    let fence = DeviceFilter::new(&host, &devices).unwrap();
    for version in [CgroupVersion::Unified, CgroupVersion::Legacy] {
        let group = TestGroup::new(version);
        group.fence(&fence);
        assert!(group.succeeds("exec 3<>/dev/null"), "{version:?}");
    }
}

#[test]
fn a_major_of_which_nothing_is_closed_or_nothing_open_is_no_trouble() {
    with_both(|group, own, other| {
        for granted in [&[FIRST, SECOND][..], &[]] {
            let group = TestGroup::new(group.version);
            group.fence(&fence(granted));
            for path in [own, other] {
                let opens = group.succeeds(&format!("exec 3<{}", path.display()));
                assert_eq!(opens, !granted.is_empty(), "{:?}", group.version);
            }
        }
        let host = GpuDevices::detect(Path::new("/"), &[]);
        let drivers = [254, 255].map(|minor| DeviceNumber::new(195, minor));
        let devices = DeviceAccess {
            all_gpus: drivers.to_vec(),
            ..DeviceAccess::default()
        };
        let group = TestGroup::new(group.version);
        group.fence(&DeviceFilter::new(&host, &devices).unwrap());
        assert!(group.succeeds("exec 3<>/dev/null"), "{:?}", group.version);
    });
}

#[test]
fn what_is_no_group_is_refused_with_what_was_tried() {
    if !is_root() {
        return eprintln!("not root: no filter can be loaded");
    }
    let dir = tempfile::tempdir().unwrap();
    let open = File::open(dir.path()).unwrap();
    let message = fence(&[])
        .load()
        .unwrap()
        .attach(open.as_fd())
        .unwrap_err()
        .to_string();
    assert!(message.contains("BPF_PROG_ATTACH"), "{message}");
    let message = fence(&[]).write_to(dir.path()).unwrap_err().to_string();
    assert!(message.contains("devices.list"), "{message}");
}
