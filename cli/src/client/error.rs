//! Errors of calls, as messages for the user.

use sluice_common::api::ErrorView;
use ureq::http::StatusCode;

use crate::context::ContextError;
use crate::out::Out;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The coordinator could not be reached, or was lost before it had answered.
    #[error("cannot reach the coordinator at {http}: {message}")]
    Unreachable {
        /// Address of the coordinator.
        http: String,
        /// Description of the failure.
        message: String,
    },
    /// The coordinator answered with an error.
    #[error("{}", refusal(*status, error))]
    Refused { status: u16, error: ErrorView },
    /// The answer was not understood.
    #[error(
        "the coordinator at {http} gave an answer that this version does not understand: {message}"
    )]
    Garbled {
        /// Address of the coordinator.
        http: String,
        message: String,
    },
    /// The cluster is gone for good.
    #[error(transparent)]
    Gone(Box<ContextError>),
    /// Several steps have the name.
    #[error("several {which} are called `{name}`: {ids}; write the id of one")]
    Ambiguous {
        name: String,
        /// Whether they are live or have ended.
        which: &'static str,
        /// The first of them.
        ids: String,
    },
}

fn refusal(status: u16, error: &ErrorView) -> String {
    if status == 401 {
        return format!(
            "{}: the token in the context file is not one that this cluster knows (an old file of an earlier `sluice dev`?)",
            error.message
        );
    }
    error.message.clone()
}

impl ApiError {
    /// Whether the same call may succeed a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ApiError::Unreachable { .. } => true,
            ApiError::Refused { status, .. } => matches!(status, 408 | 429 | 502 | 503 | 504),
            ApiError::Garbled { .. } | ApiError::Gone(_) | ApiError::Ambiguous { .. } => false,
        }
    }

    /// Code of a refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            ApiError::Refused { error, .. } => Some(&error.code),
            ApiError::Unreachable { .. }
            | ApiError::Garbled { .. }
            | ApiError::Gone(_)
            | ApiError::Ambiguous { .. } => None,
        }
    }

    /// Whether a call failed because its text is not the id of a step that the caller may see.
    pub(crate) fn may_be_name(&self) -> bool {
        matches!(
            self.code(),
            Some("unknown_step" | "invalid_id" | "forbidden")
        )
    }

    /// HTTP status of a refusal.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            ApiError::Refused { status, .. } => Some(*status),
            ApiError::Unreachable { .. }
            | ApiError::Garbled { .. }
            | ApiError::Gone(_)
            | ApiError::Ambiguous { .. } => None,
        }
    }
}

/// Reports an outage at once and once, if somebody watches; the call is retried.
pub(crate) fn outage_note(out: Out) -> impl FnMut(&ApiError) {
    let mut said = false;
    move |error| {
        if !said {
            out.progress(&format!("retrying: {error}"));
            said = true;
        }
    }
}

/// Makes an error of an answer that is not in the API's format: a proxy's, or that of an unknown path.
pub(crate) fn foreign_error(status: StatusCode, body: &[u8]) -> ErrorView {
    let text = String::from_utf8_lossy(body);
    let first: String = text
        .lines()
        .next()
        .unwrap_or("")
        .chars()
        .take(200)
        .collect();
    let message = match first.trim() {
        "" => format!("the coordinator answered {status}"),
        words => format!(
            "the coordinator answered {status}: {}",
            words.escape_debug()
        ),
    };
    ErrorView {
        code: "http".into(),
        message,
        detail: std::collections::BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_no_words_of_ours_is_shown_harmlessly() {
        let error = foreign_error(StatusCode::BAD_GATEWAY, b"bad \x1b[2J gateway\nmore");
        assert!(error.message.contains("502"), "{}", error.message);
        assert!(!error.message.contains('\u{1b}'));
    }
}
