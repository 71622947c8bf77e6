//! The admin's health check of the host, run periodically by a child, one at a time. Reports changes: unfit
//! after several failures in a row, fit after one success. `server` drives it.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use sluice_common::host_health::HostHealth;
use sluice_common::supervision::BootMillis;
use sluice_common::supervisor_config::HealthCheck;
use tracing::{info, warn};

use super::run::HookCommand;
use crate::{background, clock};

/// Most bytes of a check's output that are reported to the cluster.
const MAX_WHY_BYTES: usize = 300;

/// The periodic health check.
#[derive(Debug)]
pub struct HealthChecker {
    check: Option<HealthCheck>,
    output_dir: PathBuf,
    next_at: BootMillis,
    running: Option<RunningCheck>,
    failures: u32,
    found: Option<HostHealth>,
}

#[derive(Debug)]
struct RunningCheck {
    pid: u32,
    fault: PipeReader,
}

impl HealthChecker {
    /// The first check is due at once; without a check the host is fit.
    pub fn new(check: Option<HealthCheck>, output_dir: PathBuf) -> Self {
        Self {
            found: check.is_none().then_some(HostHealth::Fit),
            check,
            output_dir,
            next_at: BootMillis(0),
            running: None,
            failures: 0,
        }
    }

    /// State of the host, if it is known.
    pub fn found(&self) -> Option<&HostHealth> {
        self.found.as_ref()
    }

    /// When to call [`HealthChecker::on_time`].
    pub fn wake_at(&self) -> Option<BootMillis> {
        let idle = self.check.is_some() && self.running.is_none();
        idle.then_some(self.next_at)
    }

    /// Starts a check if one is due.
    pub fn on_time(&mut self, now: BootMillis) {
        if self.wake_at().is_none_or(|at| now < at) {
            return;
        }
        let Some(check) = &self.check else { return };
        self.next_at = clock::after(now, check.interval);
        match begin(check, &self.output_dir) {
            Ok(running) => self.running = Some(running),
            Err(e) => warn!("the health check cannot be started, trying again: {e}"),
        }
    }

    /// Handles the end of a child; returns whether it was the check's.
    pub fn on_child_ended(&mut self, pid: u32) -> bool {
        let Some(running) = self.running.take_if(|running| running.pid == pid) else {
            return false;
        };
        self.on_checked(running.fault);
        true
    }

    fn on_checked(&mut self, mut told: PipeReader) {
        let mut bytes = Vec::new();
        let (verdict, fault) = match told.read_to_end(&mut bytes).map(|_| bytes.split_first()) {
            Ok(Some((verdict, fault))) => (*verdict, String::from_utf8_lossy(fault).into_owned()),
            // The child was killed before it reported, which says nothing about the host.
            Ok(None) | Err(_) => {
                return warn!("a health check ended without a result: it was killed");
            }
        };
        let most = self.check.as_ref().map_or(1, |check| check.failures_max);
        self.failures = match verdict {
            PASSED => 0,
            _ => self.failures.saturating_add(1),
        };
        let found = match self.failures {
            0 => HostHealth::Fit,
            n if n >= most => HostHealth::Unfit(fault),
            _ => {
                return info!(
                    "the health check failed, not yet as often as makes the node unfit: {fault}"
                );
            }
        };
        if self.found.as_ref() != Some(&found) {
            match &found {
                HostHealth::Fit => info!("the health check has passed"),
                HostHealth::Unfit(why) => warn!("the health check failed: {why}"),
            }
        }
        self.found = Some(found);
    }
}

const PASSED: u8 = b'+';
const FAILED: u8 = b'-';

fn begin(check: &HealthCheck, output_dir: &std::path::Path) -> io::Result<RunningCheck> {
    let (fault, mut tell) = io::pipe()?;
    let pid = background::start(&[tell.as_raw_fd()], || {
        let told = [].into();
        let hook = HookCommand {
            program: check.program.as_ref(),
            told: &told,
            timeout: check.timeout,
            output_dir,
        };
        let _nobody_is_left_to_tell = say(hook.run_for_first_line(MAX_WHY_BYTES), &mut tell);
    })?;
    Ok(RunningCheck { pid, fault })
}

/// Fits into a pipe, so the child never blocks.
fn say(ended: Result<(), String>, tell: &mut PipeWriter) -> io::Result<()> {
    let mut told = vec![if ended.is_ok() { PASSED } else { FAILED }];
    told.extend(ended.err().unwrap_or_default().as_bytes());
    tell.write_all(&told)
}
