//! The errors of the API: codes, statuses and messages.

mod detail;
mod refusal;

use std::collections::BTreeMap;

use axum::Json;
use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use coordinator_core::Refusal;
use sluice_common::access::{Resource, Verb};
use sluice_common::api::{ErrorBody, ErrorView, MissingSubject};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{RoleName, UserName};
use sluice_common::inputs::InputHash;
use sluice_common::request::FieldError;
use sluice_common::state::StepState;

use crate::disk_space::DiskFull;
use crate::engine::{EngineStopped, QueryError};
use crate::inputs::InputError;
use crate::store::ReadError;
use refusal::code_of;

/// An error of a call.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error(
        "{why}: this call needs the header `Authorization: Bearer TOKEN` with the coordinator's own token or an API token"
    )]
    Unauthorized {
        /// The mistake in the credential.
        why: &'static str,
    },
    #[error(
        "{who} may not `{verb}` `{resource}`{}{place}: {}{}",
        named(name),
        lacking(denied, roles),
        nameless(unfilled.as_deref())
    )]
    Forbidden {
        who: Box<str>,
        /// Verb of the missing right.
        verb: Verb,
        resource: Resource,
        /// Name as the caller wrote it.
        name: Option<String>,
        /// Pool and subject as the caller wrote them.
        place: Box<str>,
        /// Role that denies the right, if one does.
        denied: Option<RoleName>,
        /// Roles that would give the right.
        roles: Vec<RoleName>,
        /// Subject of a binding that gives it to callers with another name.
        unfilled: Option<Box<MissingSubject>>,
    },
    #[error(
        "{who} may not give role `{role}` to others: have it yourself, for all that you give, or ask an admin"
    )]
    GivesMore {
        who: String,
        /// Role that the caller does not have.
        role: RoleName,
    },
    #[error(
        "role `{role}` denies {who} something, and the token would not have that role: add it to the roles that you give"
    )]
    GivesPast {
        who: String,
        /// Role that the token would leave out.
        role: RoleName,
    },
    #[error(
        "{who} may not create a token that submits as user `{user}`: an admin may, and `{user}` with own credentials"
    )]
    GivesName {
        who: String,
        /// User whom the token would name.
        user: UserName,
    },
    #[error("{who} calls too often: try again after {after_s} s")]
    RateLimited {
        who: String,
        /// Seconds until another try is worth it.
        after_s: u64,
    },
    #[error(
        "{who} follows too many streams of events; the maximum for one caller is {most}: follow one and filter it, or close some"
    )]
    TooManyFollowers {
        who: String,
        /// Most streams of one caller.
        most: usize,
    },
    #[error(transparent)]
    TooManyQuestions(QueryError),
    #[error("the body arrives too slowly: nothing for {limit_s} s, or less than the minimum rate")]
    BodyTooSlow {
        /// Longest silence in seconds.
        limit_s: u64,
    },
    #[error(
        "web pages of other sites may not call this coordinator: call it by its address or as `localhost`, or configure `api_token_file`"
    )]
    ForeignOrigin,
    #[error(
        "this coordinator is not called `{name}`: call it by its address or as `localhost`, or add the name to `http_names` of coordinator.toml"
    )]
    ForeignName {
        /// Host name of the call.
        name: String,
    },
    #[error(
        "there is nothing at `{path}`: calls begin with /v1/steps, /v1/nodes, /v1/pools or /v1/events"
    )]
    UnknownRoute { path: String },
    #[error("`{path}` does not take {method}{}", taken(allow.as_deref()))]
    MethodNotAllowed {
        method: String,
        path: String,
        /// Allowed methods, if the router knows them.
        allow: Option<String>,
    },
    #[error(
        "the body is larger than {limit} bytes: keep large inputs in files that the step reads"
    )]
    BodyTooLarge {
        /// Most bytes that are read.
        limit: usize,
    },
    #[error("the body cannot be read: {message}")]
    InvalidBody {
        /// The mistake, and its place.
        message: String,
        /// Field such as `resources.gpu_count`; empty for the body as a whole.
        field: String,
    },
    #[error("there is no field `{field}`: {}", hint(nearest, known))]
    UnknownField {
        /// Path of the field.
        field: String,
        /// Nearest known field.
        nearest: Option<String>,
        /// Known fields, as text.
        known: String,
    },
    #[error("{count} steps in one batch: the maximum is {limit}, submit the rest in another")]
    TooManySteps { count: usize, limit: usize },
    #[error("there is no parameter `{name}`: {}", hint(nearest, known))]
    UnknownParameter {
        /// Name as it was written.
        name: String,
        /// Nearest known name.
        nearest: Option<String>,
        /// Known names, as text.
        known: String,
    },
    #[error("the parameter `{name}`: {message}")]
    InvalidParameter {
        name: &'static str,
        /// The mistake, and how to fix it.
        message: String,
    },
    #[error("the header `Idempotency-Key`: write 1 to {limit} visible characters")]
    InvalidIdempotencyKey { limit: usize },
    /// An error with a code of the field's own, such as `invalid_memory`, 400.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// `unknown_step`, `unknown_pool`, `unknown_policy` or `unknown_node`, 404; `id_in_use`, `invalid_policy`, changes
    /// that the core rejects, by the code of the refusal.
    #[error("{refusal}")]
    TermsRefused {
        /// Index of the rejected change, counted from 0 over those to put and then those to delete.
        at: Option<usize>,
        refusal: Refusal,
    },
    /// `node_linked`, `node_holds_steps` or `too_many_labels`, 409.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(
        "this coordinator has no key of the cluster's authority, so no host can join: issue the host's certificate where the key is, with the URI `sluice:node:NAME`"
    )]
    CannotIssue,
    #[error("there is no node `{node}`: `sluice get nodes` lists those that are remembered")]
    UnknownNode { node: String },
    #[error("there is no pool `{pool}`: `sluice get pools` lists them")]
    UnknownPool { pool: String },
    #[error("there is no template `{template}`: `sluice get templates` lists them")]
    UnknownTemplate { template: String },
    #[error(
        "step `{step}` has no attempt {attempt}: the latest is {latest}, and very old ones are forgotten"
    )]
    UnknownAttempt {
        step: String,
        attempt: u32,
        /// Number of the latest attempt; 0 before the first.
        latest: u32,
    },
    #[error(
        "offset {offset} is beyond the end: {end} bytes were written so far, so begin at {end} or before; each attempt and each stream counts from 0"
    )]
    OffsetBeyondEnd { offset: u64, end: u64 },
    #[error("events before {first} are no longer kept: begin with since={}, and read the steps for what was before", first.saturating_sub(1))]
    EventsGone {
        /// First record that is kept.
        first: u64,
    },
    #[error(
        "node `{node}`, which has the output, cannot be reached now: try again, output stays there"
    )]
    NodeUnreachable { node: String },
    #[error("node `{node}` does not have the output: {message}")]
    OutputUnavailable {
        node: String,
        /// Message of the agent.
        message: String,
    },
    #[error("step `{step}` is {state}, so no program can run in it and no file can be copied: {}", way_to_run(*state))]
    NotRunning { step: String, state: StepState },
    #[error("no program can run in the step on node `{node}`: {message}")]
    ExecRefused {
        node: String,
        /// Message of the agent.
        message: String,
    },
    #[error("no connection to the step on node `{node}`: {message}")]
    PortRefused {
        node: String,
        /// Message of the agent.
        message: String,
    },
    #[error("no input can be sent to the step on node `{node}`: {message}")]
    InputRefused {
        node: String,
        /// Message of the agent.
        message: String,
    },
    #[error(
        "node `{node}`, which runs the step, cannot be reached now, or its agent is older than this call: look at `sluice get nodes`, and try again"
    )]
    ExecUnreachable { node: String },
    #[error(
        "the coordinator is stopping, and whether the call took place is unknown: repeat it with the same id when it is back"
    )]
    Stopping,
    #[error(
        "you have uploaded no file with the SHA-256 {sha256}, or more than an hour ago: send it by `PUT /v1/inputs/{sha256}`"
    )]
    UnknownInput { sha256: InputHash },
    #[error(
        "inputs: `{}` {}: upload it by `PUT /v1/inputs/SHA256`, as the caller who submits the step",
        name.escape_debug(), not_uploaded(*found)
    )]
    MissingInput {
        name: String,
        /// Size of the uploaded file, if there is one.
        found: Option<u64>,
    },
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    DiskFull(#[from] DiskFull),
    #[error("the coordinator failed: {message}")]
    Internal { message: String },
}

fn not_uploaded(found: Option<u64>) -> String {
    found.map_or_else(
        || "was not uploaded, or so long ago that it was removed".to_owned(),
        |size| format!("has {size} bytes where it was uploaded, and another size in the step"),
    )
}

/// Returns what must happen before a program can run beside a step in this state.
fn way_to_run(state: StepState) -> &'static str {
    match state {
        StepState::Suspending | StepState::Suspended => "let it go on with `sluice resume`",
        _ if state.is_terminal() => {
            "`sluice logs` shows what it wrote, and `sluice submit --keep` keeps files for `sluice cp`"
        }
        StepState::Stopping => "it is about to end",
        _ => "wait for it with `sluice wait --for running`",
    }
}

/// Names the thing if it has a name, without revealing whether it exists.
fn named(name: &Option<String>) -> String {
    let named = |name| format!(" `{name}`, if there is one");
    name.as_ref().map_or_else(String::new, named)
}

fn lacking(denied: &Option<RoleName>, roles: &[RoleName]) -> String {
    if let Some(role) = denied {
        return format!("role `{role}` denies it");
    }
    let roles: Vec<String> = roles.iter().map(|role| format!("`{role}`")).collect();
    let roles = roles.join(", ");
    format!(
        "that needs, for all that it concerns, a role such as {roles}, which an admin gives; `sluice auth whoami` tells yours"
    )
}

/// Tells why a binding by the caller's own name gives nothing.
fn nameless(unfilled: Option<&MissingSubject>) -> String {
    unfilled.map_or_else(String::new, |it| {
        let MissingSubject { subject, why, .. } = it;
        format!(
            "; a binding gives it for the subject `{subject}`, but {why}: an admin can bind a subject of another name to you"
        )
    })
}

fn taken(allow: Option<&str>) -> String {
    allow.map_or_else(String::new, |allow| format!(": it takes {allow}"))
}

fn hint(nearest: &Option<String>, known: &str) -> String {
    match nearest {
        Some(near) => format!("did you mean `{near}`?"),
        None => known.to_owned(),
    }
}

/// Returns the known fields from serde's message about an unknown one, such as ``expected one of `a`, `b` ``.
pub(super) fn known_fields(sentence: &str) -> String {
    let known = sentence
        .split_once("`, ")
        .map_or("nothing is expected here", |(_, known)| known);
    let known = known
        .split_once(" at line ")
        .map_or(known, |(known, _)| known);
    known.to_owned()
}

impl ApiError {
    /// Returns the stable code, which determines the status.
    pub fn code(&self) -> ErrorCode {
        use ErrorCode as C;
        match self {
            ApiError::Unauthorized { .. } => C::Unauthorized,
            ApiError::Forbidden { .. }
            | ApiError::GivesMore { .. }
            | ApiError::GivesPast { .. }
            | ApiError::GivesName { .. } => C::Forbidden,
            ApiError::ForeignOrigin | ApiError::ForeignName { .. } => C::ForeignOrigin,
            ApiError::RateLimited { .. }
            | ApiError::TooManyFollowers { .. }
            | ApiError::TooManyQuestions(_) => C::RateLimited,
            ApiError::BodyTooSlow { .. } => C::BodyTooSlow,
            ApiError::UnknownRoute { .. } => C::UnknownRoute,
            ApiError::MethodNotAllowed { .. } => C::MethodNotAllowed,
            ApiError::BodyTooLarge { .. } => C::BodyTooLarge,
            ApiError::InvalidBody { .. } => C::InvalidBody,
            ApiError::UnknownField { .. } => C::UnknownField,
            ApiError::TooManySteps { .. } => C::TooManySteps,
            ApiError::UnknownParameter { .. } => C::UnknownParameter,
            ApiError::InvalidParameter { .. } => C::InvalidParameter,
            ApiError::InvalidIdempotencyKey { .. } => C::InvalidIdempotencyKey,
            ApiError::Field(error) => error.code,
            ApiError::Refused(refusal) | ApiError::TermsRefused { refusal, .. } => code_of(refusal),
            ApiError::UnknownNode { .. } => C::UnknownNode,
            ApiError::CannotIssue => C::CannotIssue,
            ApiError::UnknownPool { .. } => C::UnknownPool,
            ApiError::UnknownTemplate { .. } => C::UnknownTemplate,
            ApiError::UnknownAttempt { .. } => C::UnknownAttempt,
            ApiError::OffsetBeyondEnd { .. } => C::OffsetBeyondEnd,
            ApiError::EventsGone { .. } => C::EventsGone,
            ApiError::NodeUnreachable { .. } | ApiError::ExecUnreachable { .. } => {
                C::NodeUnreachable
            }
            ApiError::NotRunning { .. } | ApiError::ExecRefused { .. } => C::NotRunning,
            ApiError::InputRefused { .. } => C::InputRefused,
            ApiError::PortRefused { .. } => C::PortRefused,
            ApiError::OutputUnavailable { .. } => C::OutputUnavailable,
            ApiError::Stopping => C::Stopping,
            ApiError::UnknownInput { .. } => C::UnknownInput,
            ApiError::MissingInput { .. } => C::MissingInput,
            ApiError::Input(InputError::OtherContents { .. }) => C::InvalidBody,
            ApiError::Input(InputError::Full { .. } | InputError::ShareFull { .. }) => {
                C::InputsFull
            }
            ApiError::Input(InputError::Disk { .. }) => C::Internal,
            ApiError::DiskFull(_) => C::DiskFull,
            ApiError::Internal { .. } => C::Internal,
        }
    }

    /// Returns the body of the answer.
    pub fn body(&self) -> ErrorBody {
        let detail = self.detail().into_iter();
        let detail = detail.map(|(name, detail)| (name.to_owned(), detail));
        // The numbers of a rejection are those of a submit to the pool.
        let reason = match self {
            ApiError::Refused(Refusal::MoveRejected { reason, .. }) => reason.to_reason().detail,
            _ => BTreeMap::new(),
        };
        ErrorBody {
            error: ErrorView {
                code: self.code().as_str().to_owned(),
                message: self.to_string(),
                detail: reason.into_iter().chain(detail).collect(),
            },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code().status());
        let status = status.expect("each code has a status of HTTP");
        if status.is_server_error() {
            tracing::warn!("{self}");
        }
        let mut response = (status, Json(self.body())).into_response();
        response.extensions_mut().insert(self.code());
        let header = match self {
            ApiError::Unauthorized { .. } => Some((WWW_AUTHENTICATE, "Bearer".to_owned())),
            ApiError::MethodNotAllowed { allow, .. } => allow.map(|allow| (ALLOW, allow)),
            ApiError::RateLimited { after_s, .. } => Some((RETRY_AFTER, after_s.to_string())),
            ApiError::TooManyFollowers { .. } | ApiError::TooManyQuestions(_) => {
                Some((RETRY_AFTER, "1".to_owned()))
            }
            _ => None,
        };
        if let Some((name, value)) = header {
            let value = HeaderValue::from_str(&value).expect("methods are words");
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<EngineStopped> for ApiError {
    fn from(_: EngineStopped) -> Self {
        ApiError::Stopping
    }
}

impl From<QueryError> for ApiError {
    fn from(unanswered: QueryError) -> Self {
        match unanswered {
            QueryError::Gone(gone) => gone.into(),
            many @ QueryError::TooMany { .. } => ApiError::TooManyQuestions(many),
        }
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Gone { first } => ApiError::EventsGone { first },
            ReadError::Store { .. } | ReadError::Damaged { .. } => ApiError::Internal {
                message: error.to_string(),
            },
        }
    }
}
