//! What a check found.

use serde::Serialize;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::commands) enum CheckStatus {
    /// As it should be.
    Ok,
    /// It works, and could work better or may not go on working.
    Warn,
    /// Something does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::commands) struct Check {
    pub(super) name: &'static str,
    pub(super) verdict: CheckStatus,
    /// What was found, on one line.
    pub(super) found: String,
    /// What to do, where something can be done.
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
