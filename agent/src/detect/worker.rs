//! The process that queries the GPU driver: this program again, with the command `query-driver`. A driver that hangs or
//! crashes then stops neither the agent nor its steps. A thread of the agent passes requests to the process and starts
//! another, with a growing pause, if it has ended.
//!
//! Each request and each answer is one line of JSON. The process ends with its standard input, or with the agent.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use sluice_common::inventory::Gpu;
use sluice_common::supervision::BootMillis;
use tokio::sync::mpsc;

use super::nvml::{self, Driver, DriverReport, GpuUses};
use crate::clock;

/// Pauses before the process is started again: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A query of the driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum DriverRequest {
    All,
    /// Only the users of the GPUs.
    UseScan,
    /// The GPUs that an earlier process has reported. Not answered.
    Remember(Vec<Gpu>),
}

/// Number of events per XID, by GPU.
pub(crate) type XidCounts = BTreeMap<String, BTreeMap<u64, u64>>;

/// A report if everything was queried, the users of the GPUs if the driver tells, and the XIDs since the process began.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DriverAnswer {
    pub(crate) report: Option<DriverReport>,
    pub(crate) uses: Option<GpuUses>,
    /// When the queries started.
    pub(crate) began: BootMillis,
    pub(crate) xids: XidCounts,
    /// Number of the process, counted by the thread that starts it.
    #[serde(skip)]
    pub(crate) process: u64,
}

/// Answers requests on standard input until it ends.
pub(crate) fn answer(library: Option<PathBuf>) -> anyhow::Result<()> {
    // A query that never returns must not outlive the agent.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let xids = nvml::listen(library.clone());
    let mut driver = Driver::new(library);
    for line in io::stdin().lock().lines() {
        let began = clock::boot();
        let report = match serde_json::from_str(&line?)? {
            DriverRequest::All => Some(driver.look()),
            DriverRequest::UseScan => None,
            DriverRequest::Remember(gpus) => {
                driver.remember(gpus);
                continue;
            }
        };
        let answer = DriverAnswer {
            report,
            uses: driver.glance(),
            began,
            xids: xids.all(),
            process: 0,
        };
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &answer)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

/// The process, which the thread shares with whoever may kill it.
pub(crate) type SharedProcess = Arc<Mutex<Option<Child>>>;

/// Handle of the thread that talks to the process.
pub(crate) struct DriverProcess {
    pub(crate) requests: mpsc::Sender<DriverRequest>,
    /// Answers, or why there is none.
    pub(crate) answers: mpsc::Receiver<Result<DriverAnswer, String>>,
    process: SharedProcess,
}

impl DriverProcess {
    /// Starts the thread; the process starts with the first request.
    pub(crate) fn start(library: Option<PathBuf>) -> io::Result<Self> {
        let (requests, mut wanted) = mpsc::channel(1);
        let (tell, answers) = mpsc::channel(1);
        let process = SharedProcess::default();
        let mut source = AnswerSource::new(library, Arc::clone(&process));
        std::thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(move || {
                while let Some(request) = wanted.blocking_recv() {
                    if tell.blocking_send(source.answer(request)).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            requests,
            answers,
            process,
        })
    }

    /// Kills the process, which answers no more. Another starts when it is gone.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = process.as_mut() {
            // It may have ended by itself.
            let _ = child.kill();
        }
    }
}

/// The thread's side.
struct AnswerSource {
    library: Option<PathBuf>,
    process: SharedProcess,
    pipes: Option<(ChildStdin, BufReader<ChildStdout>)>,
    /// Number of processes so far.
    started: u64,
    /// GPUs of the last report, for the next process.
    gpus: Vec<Gpu>,
    pause: Duration,
    not_before: Option<Instant>,
    why: String,
}

impl AnswerSource {
    fn new(library: Option<PathBuf>, process: SharedProcess) -> Self {
        Self {
            library,
            process,
            pipes: None,
            started: 0,
            gpus: Vec::new(),
            pause: FIRST_PAUSE,
            not_before: None,
            why: String::new(),
        }
    }

    fn answer(&mut self, request: DriverRequest) -> Result<DriverAnswer, String> {
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            return Err(self.why.clone());
        }
        let answer = self.ask(&request).map_err(|error| self.end(&error))?;
        self.pause = FIRST_PAUSE;
        if let Some(report) = &answer.report {
            self.gpus.clone_from(&report.gpus);
        }
        Ok(answer)
    }

    fn ask(&mut self, request: &DriverRequest) -> io::Result<DriverAnswer> {
        if self.pipes.is_none() {
            self.pipes = Some(self.start()?);
            let gpus = self.gpus.clone();
            self.say(&DriverRequest::Remember(gpus))?;
        }
        self.say(request)?;
        let (_, answers) = self.pipes.as_mut().expect("it was started");
        let mut line = String::new();
        if answers.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut answer: DriverAnswer = serde_json::from_str(&line)?;
        answer.process = self.started;
        Ok(answer)
    }

    fn say(&mut self, request: &DriverRequest) -> io::Result<()> {
        let (requests, _) = self.pipes.as_mut().expect("it was started");
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        requests.write_all(&line)
    }

    fn start(&mut self) -> io::Result<(ChildStdin, BufReader<ChildStdout>)> {
        // This program, also if the file was replaced by another version.
        let mut command = Command::new("/proc/self/exe");
        command.arg("query-driver");
        if let Some(library) = &self.library {
            command.arg("--nvml-library").arg(library);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        self.started += 1;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (requests, answers) = pipes.expect("both are pipes");
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok((requests, BufReader::new(answers)))
    }

    /// Cleans up after a process that failed, and returns why there is no answer.
    fn end(&mut self, error: &io::Error) -> String {
        self.pipes = None;
        let child = self
            .process
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let status = child.map(|mut child| {
            // It has ended, or failed to understand: then it must end.
            let _ = child.kill();
            child.wait()
        });
        self.not_before = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.why = match status {
            Some(Ok(status)) => {
                format!("the process that asks the NVIDIA driver has ended ({status})")
            }
            Some(Err(error)) => {
                format!("the process that asks the NVIDIA driver cannot be waited for: {error}")
            }
            None => format!("the process that asks the NVIDIA driver cannot be started: {error}"),
        };
        self.why.clone()
    }
}
