//! Details of errors: the names and numbers of each message, so that programs need not parse it. `refusal.rs` has those
//! of the core's refusals.

use sluice_common::reason::Detail;

use super::ApiError;
use super::refusal::detail_of;

impl ApiError {
    /// Returns the names and numbers in the message.
    pub(super) fn detail(&self) -> Vec<(&'static str, Detail)> {
        match self {
            ApiError::Forbidden { verb, resource, .. } => vec![
                ("verb", text(verb.as_str())),
                ("resource", text(resource.as_str())),
            ],
            ApiError::RateLimited { after_s: s, .. } | ApiError::BodyTooSlow { limit_s: s } => {
                vec![("seconds", Detail::Number(*s))]
            }
            ApiError::GivesMore { role, .. } | ApiError::GivesPast { role, .. } => {
                vec![("role", text(role.as_str()))]
            }
            ApiError::GivesName { user, .. } => vec![("user", text(user.as_str()))],
            ApiError::Unauthorized { .. }
            | ApiError::ForeignOrigin
            | ApiError::ForeignName { .. }
            | ApiError::TooManyFollowers { .. }
            | ApiError::TooManyQuestions(_)
            | ApiError::CannotIssue
            | ApiError::Input(_)
            | ApiError::Stopping
            | ApiError::Internal { .. } => Vec::new(),
            ApiError::DiskFull(full) => vec![
                ("free_bytes", Detail::Number(full.free)),
                ("kept_bytes", Detail::Number(full.kept_bytes)),
            ],
            ApiError::UnknownRoute { path } | ApiError::MethodNotAllowed { path, .. } => {
                vec![("path", text(path))]
            }
            ApiError::BodyTooLarge { limit } | ApiError::InvalidIdempotencyKey { limit } => {
                vec![("limit", number(*limit))]
            }
            ApiError::InvalidBody { field, .. } => vec![("field", text(field))],
            ApiError::UnknownField { field, nearest, .. } => {
                with_nearest(("field", text(field)), nearest)
            }
            ApiError::TooManySteps { count, limit } => {
                vec![("count", number(*count)), ("limit", number(*limit))]
            }
            ApiError::UnknownParameter { name, nearest, .. } => {
                with_nearest(("parameter", text(name)), nearest)
            }
            ApiError::InvalidParameter { name, .. } => vec![("parameter", text(name))],
            ApiError::Field(error) => vec![("field", text(&error.field))],
            ApiError::Refused(refusal) => detail_of(refusal),
            ApiError::TermsRefused { at, refusal } => {
                let at = at.map(|at| ("change", number(at)));
                detail_of(refusal).into_iter().chain(at).collect()
            }
            ApiError::UnknownNode { node }
            | ApiError::NodeUnreachable { node }
            | ApiError::ExecUnreachable { node }
            | ApiError::ExecRefused { node, .. }
            | ApiError::InputRefused { node, .. }
            | ApiError::PortRefused { node, .. }
            | ApiError::OutputUnavailable { node, .. } => vec![("node", text(node))],
            ApiError::NotRunning { step, state } => {
                vec![("step", text(step)), ("state", text(state.as_str()))]
            }
            ApiError::UnknownInput { sha256 } => vec![("sha256", text(sha256.as_str()))],
            ApiError::MissingInput { name, .. } => vec![("name", text(name))],
            ApiError::UnknownPool { pool } => vec![("pool", text(pool))],
            ApiError::UnknownTemplate { template } => vec![("template", text(template))],
            ApiError::UnknownAttempt { latest, .. } => {
                vec![("latest", Detail::Number(u64::from(*latest)))]
            }
            ApiError::OffsetBeyondEnd { offset, end } => vec![
                ("offset", Detail::Number(*offset)),
                ("end", Detail::Number(*end)),
            ],
            ApiError::EventsGone { first } => vec![("first", Detail::Number(*first))],
        }
    }
}

pub(super) fn text(text: &str) -> Detail {
    Detail::Text(text.to_owned())
}

pub(super) fn number(number: usize) -> Detail {
    Detail::Number(number as u64)
}

pub(super) fn with_nearest(
    what: (&'static str, Detail),
    nearest: &Option<String>,
) -> Vec<(&'static str, Detail)> {
    let near = nearest.as_ref().map(|near| ("nearest", text(near)));
    std::iter::once(what).chain(near).collect()
}
