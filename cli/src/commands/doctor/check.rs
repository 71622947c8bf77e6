//! Results of checks.

use serde::Serialize;

/// Status of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::commands) enum CheckStatus {
    /// No problem was found.
    Ok,
    /// Working, but could work better or may stop working.
    Warn,
    /// Something does not work.
    Fail,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::commands) struct Check {
    pub(super) name: &'static str,
    pub(super) verdict: CheckStatus,
    /// Finding, on one line.
    pub(super) found: String,
    /// The fix, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cure: Option<String>,
}

impl Check {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict: CheckStatus::Ok,
            found: found.into(),
            cure: None,
        }
    }

    pub(super) fn warn(
        name: &'static str,
        found: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            verdict: CheckStatus::Warn,
            cure: Some(cure.into()),
            ..Self::ok(name, found)
        }
    }

    pub(super) fn fail(
        name: &'static str,
        found: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            verdict: CheckStatus::Fail,
            ..Self::warn(name, found, cure)
        }
    }
}
