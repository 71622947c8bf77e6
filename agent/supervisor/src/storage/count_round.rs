//! One round of counting the files of attempts, in a child that writes one line for each attempt, in the
//! given order.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use sluice_common::attempt_dir::KEPT_PART_FILE;
use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;

use super::CountCandidate;
use super::count::{DiskUsage, DiskUsageCounter};
use crate::background;

/// Time limit for one attempt; a partial count is used then.
const COUNT_LIMIT: Duration = Duration::from_secs(20);

/// Time limit of a round. The attempts that were left out come first among the slow ones next time.
const ROUND_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct CountRound {
    pub(super) pid: u32,
    lines: PipeReader,
    unread: Vec<u8>,
    order: Vec<AttemptId>,
    /// Number of attempts that were reported.
    told: usize,
    pub(super) began_at: BootMillis,
    pub(super) heard_at: BootMillis,
}

impl CountRound {
    /// Starts the child.
    pub(super) fn begin(
        dir: &Path,
        candidates: Vec<CountCandidate>,
        now: BootMillis,
    ) -> io::Result<Self> {
        let (lines, mut tell) = io::pipe()?;
        fcntl(&lines, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let pid = background::start(&[tell.as_raw_fd()], || {
            let _nobody_is_left_to_tell = count_all(dir, &candidates, &mut tell);
        })?;
        Ok(Self {
            pid,
            lines,
            unread: Vec::new(),
            order: candidates.into_iter().map(|c| c.id).collect(),
            told: 0,
            began_at: now,
            heard_at: now,
        })
    }

    /// Readable when there are results, and at the end.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.lines.as_fd()
    }

    /// The attempt that is being counted.
    pub(super) fn next(&self) -> Option<&AttemptId> {
        self.order.get(self.told)
    }

    /// The results since the last call, and how long each count took.
    pub(super) fn read(&mut self, now: BootMillis) -> Vec<(AttemptId, DiskUsage, Duration)> {
        let mut bytes = [0; 4096];
        // The pipe is non-blocking; the rest is read the next time. At the end the child is reaped.
        while let Ok(len @ 1..) = self.lines.read(&mut bytes) {
            self.unread.extend(&bytes[..len]);
        }
        self.heard_at = now;
        let mut counted = Vec::new();
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let Some(id) = self.order.get(self.told) else {
                break;
            };
            if let Some((count, took)) = read_line(&line) {
                counted.push((id.clone(), count, took));
            }
            self.told += 1;
        }
        counted
    }
}

/// Runs in the child.
fn count_all(dir: &Path, candidates: &[CountCandidate], tell: &mut impl Write) -> io::Result<()> {
    let device = std::fs::metadata(dir)?.dev();
    let began = Instant::now();
    for candidate in candidates {
        let now = Instant::now();
        if now.duration_since(began) > ROUND_LIMIT {
            break;
        }
        let mut counter = DiskUsageCounter::until(now + COUNT_LIMIT);
        // Fails for an attempt without a directory, which uses nothing.
        let top = dir.join(candidate.id.to_string());
        let _gone = counter.add_tree(&top);
        counter.leave_out(&top.join(KEPT_PART_FILE));
        for pid in &candidate.pids {
            counter.add_unlinked(*pid, device);
        }
        let DiskUsage {
            bytes,
            files,
            too_deep,
        } = counter.count();
        let micros = now.elapsed().as_micros();
        let deep = u8::from(too_deep);
        tell.write_all(format!("{bytes} {files} {deep} {micros}\n").as_bytes())?;
    }
    Ok(())
}

fn read_line(line: &[u8]) -> Option<(DiskUsage, Duration)> {
    let text = std::str::from_utf8(line).ok()?;
    let numbers: Vec<u64> = text
        .split_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    let [bytes, files, deep, micros] = numbers.try_into().ok()?;
    let count = DiskUsage {
        bytes,
        files,
        too_deep: deep == 1,
    };
    Some((count, Duration::from_micros(micros)))
}
