//! The stop notice: a file that tells a step that it is being stopped, why, and when it will be killed. It is
//! written atomically before the signal, and replaced if the deadline becomes earlier. `table` decides when.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde::Serialize;
use sluice_common::api::timestamp;
use sluice_common::attempt_dir::NOTICE_FILE;
use sluice_common::time::Time;
use sluice_common::wire::StopReason;

/// Content of the notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StopNotice {
    reason: &'static str,
    deadline: String,
}

impl StopNotice {
    /// A stop for this reason, with a kill at `deadline`.
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
            StopReason::NotRenewed => "not_renewed",
            StopReason::LivenessFailed => "liveness_failed",
        };
        Self::new(reason, deadline)
    }

    /// A stop because the lease has expired.
    pub fn lease_expired(deadline: Time) -> Self {
        Self::new("lease_expired", deadline)
    }

    fn new(reason: &'static str, deadline: Time) -> Self {
        Self {
            reason,
            deadline: timestamp(deadline).to_string(),
        }
    }

    /// Writes the notice to an attempt's directory, in place of an earlier one.
    ///
    /// # Errors
    /// If it cannot be written.
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
        // The step may run as any user, and the notice is not secret.
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
