//! The notice: a file by which a step learns that it is being stopped, why, and when it will be killed. It appears whole,
//! before the signal is sent, and is replaced where the deadline comes nearer. `table` says when.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde::Serialize;
use sluice_common::api::timestamp;
use sluice_common::attempt_dir::NOTICE_FILE;
use sluice_common::time::Time;
use sluice_common::wire::StopReason;

/// What a step is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StopNotice {
    reason: &'static str,
    deadline: String,
}

impl StopNotice {
    /// It is stopped for this reason, and killed then.
    pub fn stop(why: StopReason, deadline: Time) -> Self {
        let reason = match why {
            StopReason::Cancelled => "cancelled",
            StopReason::TimedOut => "timed_out",
            StopReason::Drained => "drained",
            StopReason::Preempted => "preempted",
            StopReason::Superseded => "superseded",
            StopReason::PeerEnded => "peer_ended",
            StopReason::GpuLost => "gpu_lost",
            StopReason::Requeued => "requeued",
            StopReason::NotSuspended => "not_suspended",
            StopReason::SuspendedTooLong => "suspend_timeout",
        };
        Self::new(reason, deadline)
    }

    /// Its lease has passed.
    pub fn lease_expired(deadline: Time) -> Self {
        Self::new("lease_expired", deadline)
    }

    fn new(reason: &'static str, deadline: Time) -> Self {
        Self {
            reason,
            deadline: timestamp(deadline).to_string(),
        }
    }

    /// Puts it into an attempt's directory, in place of an earlier one.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self, attempt_dir: &Path) -> io::Result<()> {
        let draft = attempt_dir.join(format!(".{NOTICE_FILE}"));
        match fs::remove_file(&draft) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        file.write_all(&text)?;
        // The step may run as any user, and it says nothing that others may not know.
        file.set_permissions(Permissions::from_mode(0o644))?;
        fs::rename(&draft, attempt_dir.join(NOTICE_FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_why_and_until_when_and_a_later_one_replaces_it() {
        let dir = tempfile::tempdir().unwrap();
        let read = || fs::read_to_string(dir.path().join(NOTICE_FILE)).unwrap();
        let at = Time::from_unix_millis(951_782_400_500);
        StopNotice::stop(StopReason::Preempted, at)
            .write(dir.path())
            .unwrap();
        let expected = "{\"reason\":\"preempted\",\"deadline\":\"2000-02-29T00:00:00.5Z\"}\n";
        assert_eq!(read(), expected);
        StopNotice::lease_expired(at).write(dir.path()).unwrap();
        assert!(read().contains("lease_expired"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
