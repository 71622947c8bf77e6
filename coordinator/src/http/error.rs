//! Every error that the API answers with: its code, its status and its words.

mod detail;
mod refusal;

use axum::Json;
use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use coordinator_core::Refusal;
use sluice_common::access::{Resource, Verb};
use sluice_common::api::{ErrorBody, ErrorView};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{RoleName, UserName};
use sluice_common::request::FieldError;
use sluice_common::state::StepState;

use crate::engine::{EngineGone, Unanswered};
use crate::room::DiskFull;
use crate::store::ReadError;
use refusal::code_of;

/// An error of a call.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// `unauthorized`, 401.
    #[error(
        "{why}: this call needs the header `Authorization: Bearer TOKEN` with the coordinator's own token or an API token"
    )]
    Unauthorized {
        /// What is wrong with what is shown.
        why: &'static str,
    },
    /// `forbidden`, 403.
    #[error(
        "{who} may not `{verb}` `{resource}`{}{place}: {}",
        named(name),
        lacking(denied, roles)
    )]
    Forbidden {
        /// Who is refused.
        who: String,
        /// What he wants to do.
        verb: Verb,
        /// To what.
        resource: Resource,
        /// Which, as he named it.
        name: Option<String>,
        /// Where, as he named it.
        place: String,
        /// The role that takes the right away, where one does.
        denied: Option<RoleName>,
        /// Roles that would give it.
        roles: Vec<RoleName>,
    },
    /// `forbidden`, 403.
    #[error(
        "{who} may not give role `{role}` to others: have it yourself, for all that you give, or ask an admin"
    )]
    GivesMore {
        /// Who is refused.
        who: String,
        /// What he does not have.
        role: RoleName,
    },
    /// `forbidden`, 403.
    #[error("role `{role}` denies {who} something: name it among the roles that you give")]
    GivesPast {
        /// Who is refused.
        who: String,
        /// What he would leave out.
        role: RoleName,
    },
    /// `forbidden`, 403.
    #[error(
        "{who} may make no token by which user `{user}` submits: an admin may, and {user} with what shows that it is him"
    )]
    GivesName {
        /// Who is refused.
        who: String,
        /// As whom the token would submit.
        user: UserName,
    },
    /// `rate_limited`, 429.
    #[error("{who} calls too often: try again after {after_s} s")]
    RateLimited {
        /// Who.
        who: String,
        /// After how many seconds it is worth another try.
        after_s: u64,
    },
    /// `rate_limited`, 429.
    #[error(
        "{who} follows too many streams of events, of which one caller may have {most}: follow one and pick from it, or end some"
    )]
    TooManyFollowers {
        /// Who.
        who: String,
        /// How many he may follow.
        most: usize,
    },
    /// `rate_limited`, 429.
    #[error(transparent)]
    TooManyQuestions(Unanswered),
    /// `body_too_slow`, 408.
    #[error("the body comes too slowly: nothing came for {limit_s} s, or less than one may expect")]
    BodyTooSlow {
        /// How long it may fall silent.
        limit_s: u64,
    },
    /// `foreign_origin`, 403.
    #[error(
        "web pages of other sites may not call this coordinator: call it by its address or as `localhost`, or configure `api_token_file`"
    )]
    ForeignOrigin,
    /// `foreign_origin`, 403.
    #[error(
        "this coordinator is not called `{name}`: call it by its address or as `localhost`, or add the name to `http_names` of coordinator.toml"
    )]
    ForeignName {
        /// What it was called.
        name: String,
    },
    /// `unknown_route`, 404.
    #[error(
        "there is nothing at `{path}`: calls begin with /v1/steps, /v1/nodes, /v1/pools or /v1/events"
    )]
    UnknownRoute {
        /// The path of the call.
        path: String,
    },
    /// `method_not_allowed`, 405.
    #[error("`{path}` does not take {method}{}", taken(allow.as_deref()))]
    MethodNotAllowed {
        /// The method of the call.
        method: String,
        /// The path of the call.
        path: String,
        /// What it takes, where the router does not know.
        allow: Option<String>,
    },
    /// `body_too_large`, 413.
    #[error(
        "the body is larger than {limit} bytes: keep large inputs in files that the step reads"
    )]
    BodyTooLarge {
        /// The most that is read.
        limit: usize,
    },
    /// `invalid_body`, 400.
    #[error("the body cannot be read: {message}")]
    InvalidBody {
        /// What is wrong, and where.
        message: String,
        /// The field, such as `resources.gpu_count`; empty for the body as a whole.
        field: String,
    },
    /// `unknown_field`, 400.
    #[error("there is no field `{field}`: {}", hint(nearest, known))]
    UnknownField {
        /// The field with its path.
        field: String,
        /// The known one that is nearest.
        nearest: Option<String>,
        /// What is known, in words.
        known: String,
    },
    /// `too_many_steps`, 400.
    #[error("{count} steps in one batch: the most is {limit}, submit the rest in another")]
    TooManySteps {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// `unknown_parameter`, 400.
    #[error("there is no parameter `{name}`: {}", hint(nearest, known))]
    UnknownParameter {
        /// What was written.
        name: String,
        /// The known one that is nearest.
        nearest: Option<String>,
        /// What is known, in words.
        known: String,
    },
    /// `invalid_parameter`, 400.
    #[error("the parameter `{name}`: {message}")]
    InvalidParameter {
        /// Which.
        name: &'static str,
        /// What is wrong and the way out.
        message: String,
    },
    /// `invalid_idempotency_key`, 400.
    #[error("the header `Idempotency-Key`: write 1 to {limit} visible characters")]
    InvalidIdempotencyKey {
        /// The most.
        limit: usize,
    },
    /// A code of the field's own, such as `invalid_memory`, 400.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// `unknown_step`, `unknown_pool`, `unknown_policy` or `unknown_node`, 404; `id_in_use`, `invalid_policy`,
    /// Changes of terms that the core does not make, by the code of the refusal.
    #[error("{refusal}")]
    TermsRefused {
        /// The place of the change that is to blame, counted from 0 over those to put and those to delete.
        at: Option<usize>,
        /// Why.
        refusal: Refusal,
    },
    /// `node_linked`, `node_holds_steps` or `too_many_labels`, 409.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// `cannot_issue`, 409.
    #[error(
        "this coordinator has no key of the cluster's authority, so it lets nobody join: issue the host's certificate where \
         the key is, with the URI `sluice:node:NAME`"
    )]
    CannotIssue,
    /// `unknown_node`, 404.
    #[error("there is no node `{node}`: `sluice get nodes` lists those that are remembered")]
    UnknownNode {
        /// What was asked for.
        node: String,
    },
    /// `unknown_pool`, 404.
    #[error("there is no pool `{pool}`: `sluice get pools` lists them")]
    UnknownPool {
        /// What was asked for.
        pool: String,
    },
    /// `unknown_template`, 404.
    #[error("there is no template `{template}`: `sluice get templates` lists them")]
    UnknownTemplate {
        /// What was asked for.
        template: String,
    },
    /// `unknown_attempt`, 404.
    #[error(
        "step `{step}` has no attempt {attempt}: the latest is {latest}, and very old ones are forgotten"
    )]
    UnknownAttempt {
        /// The step.
        step: String,
        /// What was asked for.
        attempt: u32,
        /// The latest one; 0 before the first.
        latest: u32,
    },
    /// `offset_beyond_end`, 416.
    #[error(
        "offset {offset} is beyond the end: {end} bytes were written so far, so begin at {end} or before; each attempt and each stream counts from 0"
    )]
    OffsetBeyondEnd {
        /// What was asked for.
        offset: u64,
        /// What there is.
        end: u64,
    },
    /// `events_gone`, 410.
    #[error("events before {first} are no longer kept: begin with since={}, and read the steps for what was before", first.saturating_sub(1))]
    EventsGone {
        /// First one that is kept.
        first: u64,
    },
    /// `node_unreachable`, 503.
    #[error(
        "node `{node}`, which has the output, cannot be reached now: try again, output stays there"
    )]
    NodeUnreachable {
        /// Which.
        node: String,
    },
    /// `output_unavailable`, 404.
    #[error("node `{node}` does not have the output: {message}")]
    OutputUnavailable {
        /// Which.
        node: String,
        /// What its agent says.
        message: String,
    },
    /// `not_running`, 409.
    #[error("step `{step}` is {state}, so nothing can run beside it: {}", way_to_run(*state))]
    NotRunning {
        /// Which.
        step: String,
        /// Where it is.
        state: StepState,
    },
    /// `not_running`, 409.
    #[error("nothing can run beside the step on node `{node}`: {message}")]
    ExecRefused {
        /// Which.
        node: String,
        /// What its agent says.
        message: String,
    },
    /// `node_unreachable`, 503.
    #[error(
        "node `{node}`, which runs the step, cannot be reached now, or its agent is older than this call: look at `sluice get nodes`, and try again"
    )]
    ExecUnreachable {
        /// Which.
        node: String,
    },
    /// `stopping`, 503.
    #[error(
        "the coordinator is stopping, and whether the call took place is unknown: repeat it with the same id when it is back"
    )]
    Stopping,
    /// `disk_full`, 507.
    #[error(transparent)]
    DiskFull(#[from] DiskFull),
    /// `internal`, 500.
    #[error("the coordinator failed: {message}")]
    Internal {
        /// What happened.
        message: String,
    },
}

/// What lets something run beside a step that does not run.
fn way_to_run(state: StepState) -> &'static str {
    match state {
        StepState::Suspending | StepState::Suspended => "let it go on with `sluice resume`",
        _ if state.is_terminal() => "`sluice logs` shows what it wrote",
        StepState::Stopping => "it is about to end",
        _ => "wait for it with `sluice wait --for running`",
    }
}

/// Which, where it has a name. Whether there is any such thing is not for whoever may not see it.
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

fn taken(allow: Option<&str>) -> String {
    allow.map_or_else(String::new, |allow| format!(": it takes {allow}"))
}

fn hint(nearest: &Option<String>, known: &str) -> String {
    match nearest {
        Some(near) => format!("did you mean `{near}`?"),
        None => known.to_owned(),
    }
}

/// What serde's sentence about an unknown field says of the known ones, such as ``expected one of `a`, `b` ``.
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
    /// The stable code, which says the status too.
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
            ApiError::OutputUnavailable { .. } => C::OutputUnavailable,
            ApiError::Stopping => C::Stopping,
            ApiError::DiskFull(_) => C::DiskFull,
            ApiError::Internal { .. } => C::Internal,
        }
    }

    /// The body that says it.
    pub fn body(&self) -> ErrorBody {
        let detail = self.detail().into_iter();
        ErrorBody {
            error: ErrorView {
                code: self.code().as_str().to_owned(),
                message: self.to_string(),
                detail: detail
                    .map(|(name, detail)| (name.to_owned(), detail))
                    .collect(),
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

impl From<EngineGone> for ApiError {
    fn from(_: EngineGone) -> Self {
        ApiError::Stopping
    }
}

impl From<Unanswered> for ApiError {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Gone(gone) => gone.into(),
            many @ Unanswered::TooMany { .. } => ApiError::TooManyQuestions(many),
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
