//! Why a call did not succeed, in words for whoever typed the command.

use sluice_common::api::ErrorView;
use ureq::http::StatusCode;

use crate::context::ContextError;

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The coordinator could not be reached, or was lost before it had answered.
    #[error("cannot reach the coordinator at {http}: {message}")]
    Unreachable {
        /// Where it should be.
        http: String,
        /// What went wrong.
        message: String,
    },
    /// It answered with an error.
    #[error("{}", refusal(*status, error))]
    Refused {
        status: u16,
        /// What it said.
        error: ErrorView,
    },
    /// Its answer made no sense.
    #[error(
        "the coordinator at {http} gave an answer that this version does not understand: {message}"
    )]
    Garbled {
        /// Where it is.
        http: String,
        /// What is wrong with it.
        message: String,
    },
    /// The cluster went away for good while it was being talked to.
    #[error(transparent)]
    Gone(Box<ContextError>),
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
    /// Whether the same call may well succeed a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ApiError::Unreachable { .. } => true,
            ApiError::Refused { status, .. } => matches!(status, 408 | 429 | 502 | 503 | 504),
            ApiError::Garbled { .. } | ApiError::Gone(_) => false,
        }
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            ApiError::Refused { error, .. } => Some(&error.code),
            ApiError::Unreachable { .. } | ApiError::Garbled { .. } | ApiError::Gone(_) => None,
        }
    }

    /// The HTTP status of a refusal.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            ApiError::Refused { status, .. } => Some(*status),
            ApiError::Unreachable { .. } | ApiError::Garbled { .. } | ApiError::Gone(_) => None,
        }
    }
}

/// An error that is not in the API's own words: a proxy's, or a path that this coordinator does not have.
pub(crate) fn wordless(status: StatusCode, body: &[u8]) -> ErrorView {
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
        let error = wordless(StatusCode::BAD_GATEWAY, b"bad \x1b[2J gateway\nmore");
        assert!(error.message.contains("502"), "{}", error.message);
        assert!(!error.message.contains('\u{1b}'));
    }
}
