//! A running `sluice dev`, as a user would start it, with its daemons at hand for killing.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::procs::{children_of, descendants_of, is_alive, kill, processes_of};
use crate::wait::eventually;

/// User and group id of `nobody`.
const NOBODY: u32 = 65534;

/// A daemon below `dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    Coordinator,
    Agent,
    Supervisor,
}

impl Daemon {
    fn file(self) -> &'static str {
        match self {
            Daemon::Coordinator => "sluice-coordinator",
            Daemon::Agent => "sluice-agent",
            Daemon::Supervisor => "sluice-supervisor",
        }
    }
}

/// Options of a start.
#[derive(Default)]
pub struct DevOptions {
    /// Run it as nobody; the tests must be root.
    pub ordinary_user: bool,
    /// Directory for its state, instead of a folder of the test's own.
    pub data: Option<PathBuf>,
    /// Files of documents to start with.
    pub files: Vec<PathBuf>,
    /// NVML library to load, and the host file of the stand-in.
    pub gpus: Option<(PathBuf, PathBuf)>,
    /// Environment variables of it and its daemons.
    pub variables: Vec<(&'static str, String)>,
    /// Script to start it with, instead of the program itself.
    pub script: Option<PathBuf>,
    /// Run copies of the programs, which the test may replace.
    pub own_programs: bool,
    /// Start a gateway, if HAProxy is installed.
    pub gateway: bool,
    /// Keep the default amounts of the pool that is there from the start. Without them, as many steps run at once as a
    /// test starts, however few processors the machine has.
    pub default_amounts: bool,
}

/// Returns the beginning of a supervisor's config with which steps run as the user who runs the tests.
pub fn as_starter() -> &'static str {
    match nix::unistd::geteuid().is_root() {
        true => "default_user = 0\nallow_root = true\n",
        false => "",
    }
}

/// Time that daemons and steps may take to end once their `dev` is gone, before they are killed.
const TO_STOP_BY_ITSELF: Duration = Duration::from_secs(5);

/// A running `sluice dev`. Dropping it ends it and checks nothing.
pub struct Dev {
    child: Child,
    folder: TempDir,
    data: PathBuf,
    bin: PathBuf,
    user: Option<u32>,
    /// Address of the API, `127.0.0.1:PORT`.
    pub http: String,
    /// Address for agents, `127.0.0.1:PORT`.
    pub quic: String,
    /// Path of its context file.
    pub context: PathBuf,
}

/// Output and exit code of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub stdout: String,
    pub stderr: String,
    /// Exit code; -1 if a signal ended it.
    pub code: i32,
}

/// Copies the binaries to where nobody may run them.
pub fn ordinary_user_binaries(to: &Path) -> PathBuf {
    let bin = to.join("bin");
    fs::create_dir(&bin).expect("the folder is new");
    for name in [
        "sluice",
        "sluice-coordinator",
        "sluice-agent",
        "sluice-supervisor",
        "sluice-helper",
    ] {
        fs::copy(crate::binaries().join(name), bin.join(name)).expect("a binary can be copied");
    }
    bin
}

impl Dev {
    /// Starts one and waits until it takes work.
    pub fn start() -> Self {
        Self::with(DevOptions::default())
    }

    /// Starts one with options and waits until it takes work.
    ///
    /// # Panics
    /// If it does not come up; its own message is in the panic's.
    pub fn with(options: DevOptions) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("sluice-test-")
            .tempdir()
            .expect("a temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))
            .expect("our own folder");
        let user = options.ordinary_user.then_some(NOBODY);
        let bin = if user.is_some() || options.own_programs {
            ordinary_user_binaries(folder.path())
        } else {
            crate::binaries()
        };
        let data = options.data.unwrap_or_else(|| folder.path().join("data"));
        let program = options.script.as_deref();
        let mut command = base(program.unwrap_or(&bin.join("sluice")), folder.path(), user);
        if program.is_none() {
            command.arg("dev");
        }
        command
            .arg("--data")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if !options.gateway {
            command.arg("--no-gateway");
        }
        for file in &options.files {
            command.arg("--file").arg(file);
        }
        if let Some((library, host)) = options.gpus {
            command
                .env("SLUICE_AGENT_NVML_LIBRARY", library)
                .env("SLUICE_NVML_STANDIN", host);
        }
        command.envs(options.variables);
        let log = fs::File::create(folder.path().join("dev.log")).expect("our own folder");
        let mut child = command.stderr(log).spawn().expect("sluice can be started");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        stdout.read_line(&mut line).expect("dev's output is text");
        let words = || fs::read_to_string(folder.path().join("dev.log")).unwrap_or_default();
        let json = line
            .strip_prefix("ready ")
            .unwrap_or_else(|| panic!("dev is not ready: {line}\n{}", words()));
        let ready: Value = serde_json::from_str(json).expect("the ready line holds JSON");
        let text = |key: &str| {
            ready[key]
                .as_str()
                .expect("the ready line is complete")
                .to_owned()
        };
        let dev = Self {
            http: text("http"),
            quic: text("quic"),
            context: text("context").into(),
            child,
            folder,
            data,
            bin,
            user,
        };
        if !options.default_amounts && options.files.is_empty() {
            let pool = r#"{"description":"nodes and steps that name no other pool","defaults":{"cpu":0,"memory":"0B"}}"#;
            let (status, body) = dev.call("PUT", "/v1/pools/default", Some(pool));
            assert_eq!(status, 200, "{body}");
        }
        dev
    }

    /// Returns the process id of `dev` itself.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Returns a folder of the test's own, which everybody may write to.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Lists the live processes of a step of this `dev`.
    pub fn processes(&self, step: &str) -> Vec<u32> {
        processes_of(self.folder(), step)
    }

    /// Returns what `dev` has written to standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("dev.log")).unwrap_or_default()
    }

    /// Builds a `sluice` command against it.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = base(&self.bin.join("sluice"), self.folder.path(), self.user);
        command.env("SLUICE_CONTEXT", &self.context).args(args);
        command
    }

    /// Runs a `sluice` command against it to its end.
    pub fn sluice(&self, args: &[&str]) -> CommandOutput {
        run(self.command(args))
    }

    /// Runs a `sluice` command that must succeed; returns its output.
    ///
    /// # Panics
    /// If it fails.
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.sluice(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.stdout
    }

    /// Makes a call of the API; returns status and body.
    pub fn call(&self, method: &str, path: &str, body: Option<&str>) -> (u16, Value) {
        self.try_call(method, path, body).expect("the API answers")
    }

    /// Makes a call of the API; `None` if nobody answers.
    pub fn try_call(&self, method: &str, path: &str, body: Option<&str>) -> Option<(u16, Value)> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(std::time::Duration::from_secs(30)))
            .build()
            .into();
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.http))
            .header("authorization", format!("Bearer {}", self.token()))
            .header("content-type", "application/json")
            .body(body.unwrap_or_default().to_owned())
            .expect("a test writes valid requests");
        let mut response = agent.run(request).ok()?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().ok()?;
        Some((
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        ))
    }

    /// Returns the token in the context file.
    pub fn token(&self) -> String {
        let context = fs::read(&self.context).expect("dev wrote its context");
        let context: Value = serde_json::from_slice(&context).expect("the context is JSON");
        context["token"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the pid of a daemon, if it runs now.
    pub fn daemon(&self, daemon: Daemon) -> Option<u32> {
        children_of(self.pid()).into_iter().find(|pid| {
            let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            let exe = exe.to_string_lossy();
            // The kernel's name of a program that was replaced while it runs.
            let exe = exe.strip_suffix(" (deleted)").unwrap_or(&exe);
            Path::new(exe)
                .file_name()
                .is_some_and(|name| name == daemon.file())
                && is_alive(*pid)
        })
    }

    /// Replaces a daemon's program by another copy, as a package does; only among the test's own programs.
    ///
    /// # Panics
    /// If the programs are not the test's own.
    pub fn replace(&self, daemon: Daemon) {
        assert!(
            self.bin.starts_with(self.folder.path()),
            "these programs are everybody's: ask for `own_programs`"
        );
        let program = self.bin.join(daemon.file());
        let beside = program.with_extension("new");
        fs::copy(&program, &beside).expect("a program can be copied");
        fs::rename(&beside, &program).expect("a program can be replaced");
    }

    /// Whether a daemon runs from the program that is installed now.
    pub fn is_current(&self, daemon: Daemon) -> bool {
        let inode = |path: &Path| Some(fs::metadata(path).ok()?.ino());
        self.daemon(daemon).is_some_and(|pid| {
            let running = inode(Path::new(&format!("/proc/{pid}/exe")));
            running.is_some() && running == inode(&self.bin.join(daemon.file()))
        })
    }

    /// Kills a daemon with SIGKILL; returns its pid once it is gone.
    pub fn kill(&self, daemon: Daemon) -> u32 {
        let pid = eventually("a daemon to kill", || self.daemon(daemon));
        kill(pid, Signal::SIGKILL);
        eventually("the daemon's death", || (!is_alive(pid)).then_some(pid))
    }

    /// Waits until a step is in one of these states; returns the step.
    pub fn step_in(&self, id: &str, states: &[&str]) -> Value {
        let path = format!("/v1/steps/{id}");
        eventually(&format!("{id} to be {states:?}"), || {
            let (status, step) = self.try_call("GET", &path, None)?;
            (status == 200 && states.iter().any(|state| step["state"] == **state)).then_some(step)
        })
    }

    /// Stops `dev` as Ctrl-C does, and waits until it has ended.
    pub fn stop(mut self) -> (ExitStatus, String) {
        kill(self.pid(), Signal::SIGINT);
        let status = eventually("dev to stop", || {
            self.child.try_wait().expect("dev is our child")
        });
        (status, self.log())
    }

    /// Kills `dev` itself with SIGKILL.
    pub fn kill_dev(&mut self) {
        self.child.kill().expect("dev is our child");
        self.child.wait().expect("dev is our child");
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // The pid of an ended process may be another's.
        let family = match self.child.try_wait() {
            Ok(None) => descendants_of(self.child.id()),
            Ok(Some(_)) | Err(_) => Vec::new(),
        };
        // Its children see their standard input end and stop by themselves.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A process that still writes there prevents the removal of the folder.
        let deadline = Instant::now() + TO_STOP_BY_ITSELF;
        while family.iter().any(|pid| is_alive(*pid)) {
            if Instant::now() > deadline {
                family.iter().for_each(|pid| kill(*pid, Signal::SIGKILL));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if std::thread::panicking() {
            for log in ["coordinator.log", "agent.log", "supervisor.log"] {
                let text = fs::read_to_string(self.data.join("logs").join(log)).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(30).collect();
                eprint_tail(log, &tail);
            }
            eprint_tail(
                "dev.log",
                &self.log().lines().rev().take(30).collect::<Vec<_>>(),
            );
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "a failing test shows what its daemons said"
)]
fn eprint_tail(log: &str, reversed: &[&str]) {
    eprintln!("--- {log}");
    reversed.iter().rev().for_each(|line| eprintln!("{line}"));
}

fn base(program: &Path, folder: &Path, user: Option<u32>) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .env("HOME", folder)
        .env("XDG_CONFIG_HOME", folder.join("config"));
    command.env_remove("SLUICE_CONTEXT");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

/// Runs a command to its end.
///
/// # Panics
/// If it does not end in time.
pub fn run(mut command: Command) -> CommandOutput {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sluice can be started");
    let mut stderr = child.stderr.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).map(|_| text)
    });
    let mut stdout = Vec::new();
    child
        .stdout
        .take()
        .expect("it is piped")
        .read_to_end(&mut stdout)
        .expect("a pipe can be read");
    let status = child.wait().expect("it is our child");
    let stderr = reader
        .join()
        .expect("the reader does not panic")
        .expect("a pipe can be read");
    CommandOutput {
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        code: status.code().unwrap_or(-1),
    }
}
