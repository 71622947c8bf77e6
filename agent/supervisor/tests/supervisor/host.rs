//! A supervisor in a directory of its own for tests: started, killed, restarted, and stopped without
//! leftovers at the end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_cgroups::Hierarchies;
use sluice_supervisor::groups::name;
use sluice_supervisor::process;

use crate::client::{Client, DEADLINE};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_sluice-supervisor");

/// The helper program in the same directory.
pub(crate) fn helper() -> PathBuf {
    let path = Path::new(BINARY).with_file_name("sluice-helper");
    let built = path.exists();
    assert!(
        built,
        "{path:?} is not there: run `cargo build -p sluice-helper` first"
    );
    path
}

/// Lets steps run as root, as most of these tests do.
const AS_ROOT: &str = "default_user = 0\nallow_root = true\n";

pub(crate) struct Host {
    pub(crate) dir: tempfile::TempDir,
    config: tempfile::NamedTempFile,
    /// The program to run; [`BINARY`] unless a test sets another.
    pub(crate) binary: PathBuf,
    pub(crate) log: Arc<Mutex<String>>,
    args: Vec<String>,
    running: Option<RunningSupervisor>,
    /// Whether the directory is a file system of its own.
    is_mounted: bool,
}

struct RunningSupervisor {
    child: Child,
    stdin: Option<ChildStdin>,
    log: JoinHandle<()>,
}

impl Host {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::start_under(AS_ROOT, args)
    }

    /// With a config of its own, which only root can apply.
    pub(crate) fn start_under(config: &str, args: &[&str]) -> Self {
        let mut host = Self::new(args);
        host.configure(config);
        host.restart();
        host
    }

    /// On a disk of its own with so many MiB and 102,400 files, which only root can make.
    pub(crate) fn start_on_disk(mib: u32, config: &str) -> Self {
        let size = format!("size={mib}m,nr_inodes=100k");
        let host = Self::start_on(&["-t", "tmpfs", "-o", &size, "sluice-test"], config);
        host.expect("this test mounts a file system: run it as root")
    }

    /// On a file system that `mount` makes from these arguments, if it can.
    pub(crate) fn start_on(mount: &[&str], config: &str) -> Option<Self> {
        let mut host = Self::new(&[]);
        let mounted = Command::new("mount")
            .args(mount)
            .arg(host.dir.path())
            .status();
        host.is_mounted = mounted.is_ok_and(|status| status.success());
        if !host.is_mounted {
            return None;
        }
        host.configure(config);
        host.restart();
        Some(host)
    }

    fn new(args: &[&str]) -> Self {
        helper();
        Self {
            dir: tempfile::tempdir().unwrap(),
            config: tempfile::NamedTempFile::new().unwrap(),
            binary: BINARY.into(),
            log: Arc::default(),
            args: args.iter().map(ToString::to_string).collect(),
            running: None,
            is_mounted: false,
        }
    }

    /// Writes a new config for the next start.
    pub(crate) fn configure(&mut self, config: &str) {
        fs::write(self.config.path(), config).unwrap();
        // Steps of other users have their directories below it.
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(self.dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
    }

    /// Starts a supervisor if none runs, and waits until it listens.
    pub(crate) fn restart(&mut self) {
        assert!(self.running.is_none());
        let mut command = Command::new(&self.binary);
        command
            .arg("--state-dir")
            .arg(self.dir.path())
            .arg("--exit-with-stdin")
            .args(&self.args)
            .args(config_args(self.config.path()))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        // The old one may have left its socket, so the test waits for the new one's log line.
        let before = self.ready_lines();
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let log = self.collect_log(&mut child);
        self.running = Some(RunningSupervisor { child, stdin, log });
        until("the supervisor is ready", || self.ready_lines() > before);
    }

    /// Upgrades the supervisor to the installed program, and waits for the end.
    pub(crate) fn upgrade(&self) {
        let before = self.ready_lines();
        self.signal(Signal::SIGHUP);
        until("it has upgraded itself", || self.ready_lines() > before);
    }

    /// Waits until the log has a text this many times.
    pub(crate) fn says(&self, what: &str, times: usize) {
        until(what, || {
            self.log.lock().unwrap().matches(what).count() >= times
        });
    }

    fn ready_lines(&self) -> usize {
        self.log.lock().unwrap().matches(" upgraded=").count()
    }

    fn collect_log(&self, child: &mut Child) -> JoinHandle<()> {
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut log = log.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().child.id()
    }

    /// Child processes, without the keeper and the writer.
    pub(crate) fn children(&self) -> Vec<u32> {
        let all = process::all().unwrap().into_iter();
        let children = all.filter(|p| p.parent == self.pid()).map(|p| p.pid);
        let other = |pid: &u32| is_keeper(*pid) || is_writer(*pid);
        children.filter(|pid| !other(pid)).collect()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("supervisor.sock")
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket())
    }

    pub(crate) fn output(&self, id: &impl ToString, name: &str) -> String {
        fs::read_to_string(self.attempt_dir(id).join(name)).unwrap()
    }

    pub(crate) fn attempt_dir(&self, id: &impl ToString) -> PathBuf {
        self.dir.path().join("attempts").join(id.to_string())
    }

    pub(crate) fn record(&self, id: &str) -> PathBuf {
        self.dir.path().join("spool").join(format!("{id}.json"))
    }

    /// Waits until an attempt has written a whole line, and returns its number.
    pub(crate) fn number_in(&self, id: &str, name: &str) -> u32 {
        let path = self.attempt_dir(&id).join(name);
        until_some("a number in the output", || {
            let text = fs::read_to_string(&path).ok()?;
            text.strip_suffix('\n')?.trim().parse().ok()
        })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// The groups of attempts that exist now, in every hierarchy.
    pub(crate) fn groups(&self) -> Vec<PathBuf> {
        let roots = roots(&name::of(self.dir.path()).unwrap());
        let listed = roots.iter().filter_map(|root| fs::read_dir(root).ok());
        let entries = listed.flatten().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }

    /// Waits for the supervisor's exit.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut running = self.running.take().unwrap();
        let status = until_some("the supervisor exits", || running.child.try_wait().unwrap());
        running.log.join().unwrap();
        status
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }

    /// Closes stdin and waits for the exit.
    pub(crate) fn close_stdin(&mut self) -> ExitStatus {
        drop(self.running.as_mut().unwrap().stdin.take());
        self.wait()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.running.is_none() && !std::thread::panicking() {
            self.restart();
        }
        if let Some(running) = &mut self.running {
            drop(running.stdin.take());
            let end = Instant::now() + DEADLINE;
            while running.child.try_wait().is_ok_and(|s| s.is_none()) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if self.is_mounted {
            let dir = self.dir.path();
            let status = Command::new("umount").arg("-l").arg(dir).status();
            assert!(status.is_ok_and(|status| status.success()) || std::thread::panicking());
        }
        if std::thread::panicking() {
            eprintln!("--- the supervisor's log\n{}", self.log.lock().unwrap());
        }
    }
}

/// The roots with this name, in every hierarchy.
pub(crate) fn roots(name: &str) -> Vec<PathBuf> {
    let hierarchies = Hierarchies::read(Path::new("/")).unwrap();
    let own = hierarchies
        .unified
        .iter()
        .chain(hierarchies.legacy.values());
    let roots = own.map(|own| own.group.join(name));
    roots.filter(|root| root.is_dir()).collect()
}

/// Only root needs a config for the users of steps.
pub(crate) fn config_args(path: &Path) -> Vec<std::ffi::OsString> {
    match nix::unistd::geteuid().is_root() {
        true => vec!["--config".into(), path.into()],
        false => Vec::new(),
    }
}

/// A config file for tests that start the binary themselves.
pub(crate) fn as_root() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), AS_ROOT).unwrap();
    file
}

pub(crate) fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

fn is_keeper(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|b| *b == 0).nth(1) == Some(b"keep")
}

/// Whether a process still runs.
pub(crate) fn lives(pid: u32) -> bool {
    process::stat(pid).is_some_and(|p| p.is_alive())
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    until_some(what, || holds().then_some(()));
}

pub(crate) fn until_some<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(it) = found() {
            return it;
        }
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is a writer of output.
pub(crate) fn is_writer(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sluice-writer\n")
}

/// Number of open descriptors of a process.
pub(crate) fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// A copy of the binary that every user of the host can execute.
pub(crate) fn readable_binary(dir: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let copy = dir.join("sluice-supervisor");
    copy_file(Path::new(BINARY), &copy);
    copy_file(&helper(), &dir.join("sluice-helper"));
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    copy
}

/// Copies a program in another process: a file that this one writes could be open in a child that another
/// test starts at the same moment, and then cannot be executed.
pub(crate) fn copy_file(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}
