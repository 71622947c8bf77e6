//! The last answers of the process that queries the driver, and for how long it has not answered.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use agent_core::GpuScan;
use sluice_common::supervision::BootMillis;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::memory;
use super::notes::Notes;
use super::nvml::{DriverReport, GpuUses};
use super::worker::{DriverAnswer, DriverProcess, DriverRequest, XidCounts};

/// Time without an answer after which the GPUs are not granted: a driver that loads firmware takes some seconds.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// Time after which a process that does not answer is killed.
const KILL_AFTER: Duration = Duration::from_secs(60);

/// The note while the driver does not answer. A constant text, so that it counts as one change.
const SILENT: &str = "the NVIDIA driver does not answer: its last report is shown, and the rest of this host works without it; look at the kernel's log, and reboot the host if it does not recover";

/// The agent's side of the worker process.
pub(super) struct DriverClient {
    worker: Option<DriverProcess>,
    pub(super) last: DriverReport,
    /// The last scan of users that was not taken yet.
    pub(super) glance: Option<GpuScan>,
    /// When the queries of the last report started; `None` before the first.
    pub(super) looked_at: Option<BootMillis>,
    /// XIDs of all processes so far.
    pub(super) xids: XidCounts,
    /// XIDs of the processes before this one.
    earlier: XidCounts,
    process: u64,
    /// Start of the pending query.
    asked: Option<Instant>,
    /// Start of the first query without an answer.
    unanswered: Option<Instant>,
    /// Whether a query took longer than its limit.
    is_late: bool,
    /// Why the worker cannot answer.
    failure: Option<String>,
    has_answered: bool,
}

impl DriverClient {
    pub(super) fn start(library: Option<PathBuf>) -> Self {
        let worker = DriverProcess::start(library);
        let failure = worker
            .as_ref()
            .err()
            .map(|error| format!("GPUs cannot be detected: no thread can be started: {error}"));
        Self {
            worker: worker.ok(),
            last: DriverReport::default(),
            glance: None,
            looked_at: None,
            xids: XidCounts::new(),
            earlier: XidCounts::new(),
            process: 0,
            asked: None,
            unanswered: None,
            is_late: false,
            failure,
            has_answered: false,
        }
    }

    /// Shows what an earlier agent knew until the driver answers.
    pub(super) fn remember(&mut self, last: DriverReport) {
        self.last = last;
    }

    /// The last report, if it is the driver's own and not older than this agent.
    pub(super) fn answered(&self) -> Option<&DriverReport> {
        Some(&self.last).filter(|last| self.has_answered && !last.is_stale)
    }

    /// Whether there may be GPUs that nobody knows yet: neither the driver nor an earlier agent has listed any.
    pub(super) fn gpus_unknown(&self) -> bool {
        self.last.gpus_unknown || (!self.has_answered && self.last.gpus.is_empty())
    }

    /// Whether the driver has not answered for so long that its GPUs must not be granted.
    pub(super) fn is_silent_too_long(&self) -> bool {
        let limit = match self.has_answered {
            true => SILENCE_LIMIT,
            // What an earlier agent knew may be wrong by now.
            false => Duration::ZERO,
        };
        self.unanswered
            .is_some_and(|since| since.elapsed() >= limit)
    }

    /// Notes about a driver that does not answer.
    pub(super) fn silence(&self) -> Notes {
        let mut notes = Notes::default();
        if let Some(why) = &self.failure {
            notes.add(format!(
                "{why}: the last report is shown, and it is started again"
            ));
        } else if self.is_late {
            notes.add(SILENT);
        }
        notes
    }

    /// XIDs of one GPU.
    pub(super) fn xids_of(&self, uuid: &str, pci: Option<&str>) -> BTreeMap<u64, u64> {
        let mut sum = BTreeMap::new();
        let places = [Some(uuid), pci].into_iter().flatten();
        for (xid, count) in places.filter_map(|id| self.xids.get(id)).flatten() {
            *sum.entry(*xid).or_default() += count;
        }
        sum
    }

    /// Queries the driver unless a query is pending, and waits for the answer.
    pub(super) async fn look(&mut self, what: DriverRequest, limit: Duration) {
        let Some(worker) = &mut self.worker else {
            return;
        };
        if self.asked.is_none() && worker.requests.try_send(what).is_ok() {
            self.asked = Some(Instant::now());
            self.unanswered = self.unanswered.or(self.asked);
        }
        match timeout(limit, worker.answers.recv()).await {
            Ok(Some(Ok(answer))) => self.take(answer),
            Ok(Some(Err(why))) => {
                if self.failure.as_ref() != Some(&why) {
                    warn!("{why}");
                }
                self.asked = None;
                self.failure = Some(why);
            }
            Ok(None) => {
                self.worker = None;
                self.failure = Some("GPU detection has crashed, which is a defect".to_owned());
            }
            Err(_) => {
                let waited = self.asked.map_or(Duration::ZERO, |asked| asked.elapsed());
                self.is_late = waited >= limit;
                if waited >= KILL_AFTER {
                    worker.kill();
                }
            }
        }
    }

    fn take(&mut self, answer: DriverAnswer) {
        if answer.process != self.process {
            self.process = answer.process;
            self.earlier.clone_from(&self.xids);
        }
        self.xids = sum(&self.earlier, &answer.xids);
        if answer
            .report
            .as_ref()
            .is_some_and(|report| !report.is_stale)
        {
            self.looked_at = Some(answer.began);
        }
        self.last = answer.report.unwrap_or(std::mem::take(&mut self.last));
        self.glance = answer.uses.map(scan);
        self.asked = None;
        self.is_late = false;
        self.failure = None;
        self.has_answered = true;
        if !self.last.is_stale {
            self.unanswered = None;
        }
    }
}

fn scan(uses: GpuUses) -> GpuScan {
    let gpus = uses.seen.into_iter();
    GpuScan {
        began: uses.began,
        gpus: gpus.map(|(unit, seen)| (unit, seen.into())).collect(),
        units: uses.units,
        memory_available: memory::available(),
    }
}

fn sum(one: &XidCounts, other: &XidCounts) -> XidCounts {
    let mut sum = one.clone();
    for (gpu, counts) in other {
        let of_gpu = sum.entry(gpu.clone()).or_default();
        for (xid, count) in counts {
            *of_gpu.entry(*xid).or_default() += count;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xids_of_an_earlier_process_count() {
        let mut client = DriverClient::start(None);
        let told = |process, count| DriverAnswer {
            report: None,
            uses: None,
            began: BootMillis(0),
            xids: [("GPU-a".to_owned(), [(48, count)].into())].into(),
            process,
        };
        client.take(told(1, 1));
        client.take(told(1, 2));
        client.take(told(2, 1));
        assert_eq!(client.xids_of("GPU-a", None), [(48, 3)].into());
    }
}
