//! Checks the context file, the coordinator that it names, and the difference of their clocks.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::check::Check;
use crate::client::{Client, PingResult};
use crate::context::{self, Context, ContextError};

/// Difference beyond which shown times mislead.
const SKEW_WARN_SECS: i64 = 5;
/// Difference beyond which certificates and tokens fail.
const SKEW_FAIL_SECS: i64 = 60;

pub(super) fn checks(chosen: Option<&Path>) -> Vec<Check> {
    let context = match context::load(chosen) {
        Ok(context) => context,
        Err(error) => return vec![no_context(&error)],
    };
    let mut checks = vec![context_file(&context)];
    let client = match Client::new(context) {
        Ok(client) => client,
        Err(error) => return vec![no_context(&error)],
    };
    match client.ping() {
        Ok(ping) => {
            checks.push(coordinator(&ping));
            checks.push(clock(ping.clock, Timestamp::now(), ping.took));
        }
        Err(error) => checks.push(Check::fail(
            "coordinator",
            error.to_string(),
            "check that it runs and that no firewall is in between",
        )),
    }
    checks
}

/// A host that only runs an agent needs no context.
fn no_context(error: &ContextError) -> Check {
    match error {
        ContextError::NotFound { .. } | ContextError::NoHome => Check::warn(
            "context",
            "this user has none, so commands reach no cluster",
            error.to_string(),
        ),
        ContextError::Unreadable { .. }
        | ContextError::Unknown { .. }
        | ContextError::OfDev { .. }
        | ContextError::Unwritable { .. } => Check::fail(
            "context",
            error.to_string(),
            "name another with --context or SLUICE_CONTEXT, or make it readable",
        ),
        ContextError::NoAuthority { .. }
        | ContextError::File { .. }
        | ContextError::Unusable { .. } => Check::fail(
            "context",
            error.to_string(),
            "write it again with `sluice login`",
        ),
        ContextError::Malformed { .. } => Check::fail(
            "context",
            error.to_string(),
            "let `sluice dev` write it again, or name another with --context or SLUICE_CONTEXT",
        ),
        ContextError::DevEnded { .. } => Check::fail(
            "context",
            error.to_string(),
            "start it again with `sluice dev`",
        ),
    }
}

fn context_file(context: &Context) -> Check {
    let path = context.path.display();
    let mode = std::fs::metadata(&context.path).map_or(0, |meta| meta.mode());
    if context.file.token.is_some() && mode & 0o077 != 0 {
        let found = format!(
            "{path} holds a token and others may read it (mode {:o})",
            mode & 0o777
        );
        return Check::warn("context", found, format!("chmod 600 {path}"));
    }
    Check::ok("context", format!("{path}, {}", context.file.http))
}

fn coordinator(ping: &PingResult) -> Check {
    match ping.status {
        200..300 => Check::ok(
            "coordinator",
            format!("takes calls, answered in {} ms", ping.took.as_millis()),
        ),
        401 | 403 => Check::fail(
            "coordinator",
            "it does not know the token of the context file",
            "get a new context file, or start `sluice dev` again",
        ),
        status => Check::fail(
            "coordinator",
            format!("not ready: {status} {}", ping.words),
            "look into its log; while it starts or stops this passes by itself",
        ),
    }
}

/// The coordinator read its clock about in the middle of the call.
fn clock(theirs: Option<Timestamp>, now: Timestamp, took: Duration) -> Check {
    let Some(theirs) = theirs else {
        let cure = "install the release of this program on the coordinator's host, too";
        return Check::warn("clock", "the coordinator does not report its version", cure);
    };
    let half = i64::try_from(took.as_millis() / 2).unwrap_or(i64::MAX);
    let ours = now.as_millisecond().saturating_sub(half);
    let skew = (ours - theirs.as_millisecond()) / 1000;
    let found = match skew {
        0 => "as the coordinator's, to the second".to_owned(),
        1.. => format!("{skew}s ahead of the coordinator's"),
        _ => format!("{}s behind the coordinator's", -skew),
    };
    let cure = "let NTP set both clocks, such as by `timedatectl set-ntp true`";
    match skew.abs() {
        0..=SKEW_WARN_SECS => Check::ok("clock", found),
        ..=SKEW_FAIL_SECS => Check::warn("clock", found, cure),
        _ => Check::fail("clock", found, cure),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::CheckStatus;
    use super::*;

    #[test]
    fn clocks_may_differ_by_seconds_and_not_by_minutes() {
        let now: Timestamp = "2026-11-20T10:03:00Z".parse().unwrap();
        let took = Duration::from_secs(2);
        let check = |theirs: &str| clock(Some(theirs.parse().unwrap()), now, took);
        let verdict = |theirs: &str| check(theirs).verdict;
        assert_eq!(verdict("2026-11-20T10:02:59.5Z"), CheckStatus::Ok);
        assert_eq!(verdict("2026-11-20T10:02:40Z"), CheckStatus::Warn);
        assert_eq!(verdict("2026-11-20T09:03:00Z"), CheckStatus::Fail);
        let ahead = check("2026-11-20T10:02:00Z");
        assert_eq!(ahead.found, "59s ahead of the coordinator's");
        let behind = check("2026-11-20T11:02:59Z");
        assert_eq!(behind.found, "3600s behind the coordinator's");
        assert_eq!(clock(None, now, took).verdict, CheckStatus::Warn);
    }

    #[test]
    fn a_token_that_others_may_read_is_told() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("context.json");
        std::fs::write(&path, r#"{"http": "127.0.0.1:9", "token": "t"}"#).unwrap();
        let verdict = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            checks(Some(&path))[0].verdict
        };
        assert_eq!(verdict(0o644), CheckStatus::Warn);
        assert_eq!(verdict(0o600), CheckStatus::Ok);
    }

    #[test]
    fn what_is_wrong_with_the_context_has_a_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("context.json");
        let first = |path: &Path| checks(Some(path)).remove(0);
        let missing = first(&path);
        assert_eq!(missing.verdict, CheckStatus::Fail);
        std::fs::write(&path, "{").unwrap();
        let broken = first(&path);
        assert!(broken.cure.unwrap().contains("sluice dev"));
        let none = no_context(&ContextError::NoHome);
        assert_eq!(
            none.verdict,
            CheckStatus::Warn,
            "a host without users needs none"
        );
    }

    #[test]
    fn a_coordinator_that_answers_otherwise_is_not_ready() {
        let ping = |status| PingResult {
            status,
            words: "the engine does not answer".into(),
            clock: None,
            took: Duration::from_millis(3),
        };
        assert_eq!(coordinator(&ping(200)).verdict, CheckStatus::Ok);
        assert_eq!(coordinator(&ping(503)).verdict, CheckStatus::Fail);
        assert!(coordinator(&ping(401)).found.contains("token"));
    }
}
