//! The process of HAProxy: its files in the runtime directory, its start, its last words and its end.
//!
//! HAProxy is a child that ends with this process: the kernel tells it to stop (`PR_SET_PDEATHSIG`), because nobody would take
//! replicas from it any more. Its requests under way go on for a while, and another HAProxy may listen meanwhile.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::config::GatewayConfig;
use super::haproxy_config::{CONFIG_FILE, MAP_FILE, SOCKET_FILE, haproxy_config};
use super::haproxy_socket::HaproxySocket;
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::render::safe;

/// Longest time until HAProxy answers at its socket after its start.
const START_LIMIT: Duration = Duration::from_secs(15);
/// Interval of looks at a HAProxy that starts.
const LOOK: Duration = Duration::from_millis(10);
/// Mark of lines that tell why HAProxy does not start.
const ALERT: &str = "[ALERT]";

/// The directory of one gateway, locked.
#[derive(Debug)]
pub(super) struct RuntimeDir {
    path: PathBuf,
    _lock: File,
}

impl RuntimeDir {
    /// Makes the directory if it is absent, locks it, and writes the configuration of HAProxy.
    pub(super) fn open(config: &GatewayConfig) -> Result<Self, Failure> {
        let path = config.runtime_dir.clone();
        let failed = |what: &str, error: &io::Error| {
            Failure::Failed(format!(
                "cannot {what} in {}: {error}; set `runtime_dir` to a directory that this user may write to",
                safe(&path.to_string_lossy())
            ))
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|e| failed("make the directory or work", &e))?;
        let lock = private(&path.join("lock"), false).map_err(|e| failed("write", &e))?;
        lock.try_lock().map_err(|_| {
            let shown = safe(&path.to_string_lossy());
            Failure::Failed(format!(
                "another gateway runs in {shown}: stop it, or set another `runtime_dir`"
            ))
        })?;
        let (_, open_files) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
        let text = haproxy_config(config, open_files);
        private(&path.join(CONFIG_FILE), true)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| failed("write", &e))?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn socket(&self) -> HaproxySocket {
        HaproxySocket::new(self.path.join(SOCKET_FILE))
    }

    /// Removes what a HAProxy of before left: no entry of its map holds, and its socket answers to nobody.
    fn clean(&self) -> io::Result<()> {
        private(&self.path.join(MAP_FILE), true)?;
        match fs::remove_file(self.path.join(SOCKET_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn private(path: &Path, truncate: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(truncate)
        .mode(0o600)
        .open(path)
}

/// A HAProxy that answers.
#[derive(Debug)]
pub(super) struct HaproxyProcess {
    child: Child,
    started: Instant,
    last_words: Arc<Mutex<String>>,
}

impl HaproxyProcess {
    /// Starts HAProxy and waits until it answers at its socket. The calling thread must live as long as it.
    ///
    /// # Errors
    /// What HAProxy said, if it refuses its configuration or cannot listen.
    pub(super) fn start(program: &Path, dir: &RuntimeDir, out: Out) -> Result<Self, String> {
        dir.clean()
            .map_err(|e| format!("cannot write in {}: {e}", dir.path.display()))?;
        // This very program, even after another was installed in its place.
        let mut child = Command::new("/proc/self/exe")
            .args(["gateway", "--parent", &std::process::id().to_string()])
            .arg("--become-haproxy")
            .arg(program)
            .current_dir(&dir.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", program.display()))?;
        let last_words = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&last_words);
        if let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(stderr).lines().map_while(Result::ok);
                lines
                    .filter(|line| line.contains(ALERT))
                    .for_each(|line| hear(&heard, &line, out));
            });
        }
        let mut process = Self {
            child,
            started: Instant::now(),
            last_words,
        };
        process.wait_for_answer(dir)?;
        Ok(process)
    }

    fn wait_for_answer(&mut self, dir: &RuntimeDir) -> Result<(), String> {
        let socket = dir.socket();
        while socket.ask("show version").is_err() {
            if let Some(status) = self.ended() {
                return Err(format!(
                    "HAProxy could not start: {}",
                    self.last_words(status)
                ));
            }
            if self.started.elapsed() > START_LIMIT {
                self.kill();
                return Err(format!(
                    "HAProxy did not answer within {}s",
                    START_LIMIT.as_secs()
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Reaps it and returns its exit status, if it has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns what it said last before it ended.
    pub(super) fn last_words(&self, status: ExitStatus) -> String {
        let heard = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match heard.is_empty() {
            true => status.to_string(),
            false => heard.clone(),
        }
    }

    /// Asks it to take no new connections, and to end when its requests are over.
    pub(super) fn stop_softly(&mut self) {
        self.signal(Signal::SIGUSR1);
    }

    /// Kills it and reaps it.
    pub(super) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }

    /// Signals it. Only this process reaps it, so its id is still its own.
    fn signal(&mut self, signal: Signal) {
        if self.ended().is_none()
            && let Ok(pid) = i32::try_from(self.child.id())
        {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// Passes a line of HAProxy on, and keeps the first words, which say why: what follows is that it ends.
fn hear(last_words: &Mutex<String>, line: &str, out: Out) {
    let words = line.split_once(" : ").map_or(line, |(_, words)| words);
    let words = words.strip_prefix("config : ").unwrap_or(words);
    let words = safe(words.trim());
    out.notice(&format!("haproxy: {words}"));
    let mut last = last_words.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_empty() {
        *last = words;
    }
}

/// Becomes HAProxy in this process, which the kernel tells to stop when its parent dies. Returns only if that failed.
pub(super) fn become_haproxy(program: &Path, parent: Option<u32>, out: Out) -> u8 {
    if let Err(error) = set_pdeathsig(Signal::SIGUSR1) {
        out.notice(&format!("{ALERT} : cannot end with the gateway: {error}"));
        return FAILED;
    }
    // The parent may have died before that.
    if parent == Some(std::os::unix::process::parent_id()) {
        let error = Command::new(program)
            .args(["-db", "-f", CONFIG_FILE])
            .exec();
        out.notice(&format!(
            "{ALERT} : cannot run {}: {error}",
            program.display()
        ));
    }
    FAILED
}
