//! Join tokens of hosts: make, list and revoke. The core keeps a hash of each secret; the join line with the secret is
//! shown once, to its maker.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use coordinator_core::{Core, Input, JoinToken, NewJoinToken, Refusal, TokenStatus};
use sluice_common::access::{AccessQuery, Resource, Scope, Verb};
use sluice_common::api::{
    JoinTokenRequest, JoinTokenState, JoinTokenView, NewJoinTokenView, Page, timestamp,
};
use sluice_common::credential::{DEFAULT_TOKEN_TTL, MAX_TOKEN_TTL, MAX_TOKEN_USES};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{JoinTokenId, NodeName, PoolName};
use sluice_common::join::{JoinSecret, SECRET_BYTES};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::limit::{MAX_BODY_BYTES, MAX_NODE_LABELS};
use sluice_common::request::FieldError;
use sluice_common::time::{Span, SpanError};
use sluice_transport::join_line::{MAX_LINE_ADDRESSES, hash_of};

use super::access::{Caller, may_replace};
use super::admin::check_label;
use super::error::ApiError;
use super::page::NamePageParams;
use super::params::{self, NoParams, Params, Segment};
use super::random::random_bytes;
use super::{Api, body};
use crate::clock::wall;

/// Longest address in a join line.
const MAX_ADDRESS_BYTES: usize = 255;
/// Characters of an id, each one of sixteen.
const ID_CHARS: usize = 10;

/// Handles `GET /v1/join-tokens`, sorted by id.
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<NamePageParams>,
) -> Result<Json<Page<JoinTokenView>>, ApiError> {
    let wanted = params.read()?;
    let look = move |core: &Core| {
        let tokens = wanted.of(core.state().admission().tokens());
        let listed = tokens
            .filter(|(_, token)| caller.may_list_by(Resource::JoinTokens, token.pool.as_ref()));
        wanted.page(listed.map(|(_, token)| view(token)), |token| {
            token.id.clone()
        })
    };
    Ok(Json(api.engine().read(look).await?))
}

/// Handles `DELETE /v1/join-tokens/{id}`: the token admits no more hosts. Hosts that joined with it stay.
pub(super) async fn revoke(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<StatusCode, ApiError> {
    let token = JoinTokenId::new(segment).map_err(|error| params::invalid("token", error))?;
    let input = move |reply| Input::RevokeJoinToken { reply, token };
    api.engine().change(input, |_, result| result).await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Handles `POST /v1/join-tokens`: 201 with the join line.
pub(super) async fn make(
    State(api): State<Api>,
    caller: Caller,
    _: NoParams,
    request: Request,
) -> Result<(StatusCode, Json<NewJoinTokenView>), ApiError> {
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let written: JoinTokenRequest = body::parse(&json, "")?;
    let issuance = &api.0.issuance;
    if !issuance.can_issue() {
        return Err(ApiError::CannotIssue);
    }
    let addresses = addresses(&written.addresses)?;
    let secret = JoinSecret(random_bytes::<SECRET_BYTES>("a secret")?);
    let token = check(written, &secret)?;
    caller.require(&making_in(token.pool.as_ref()), None)?;
    if let Some(node) = &token.node {
        may_replace(&api, &caller, node.as_str()).await?;
    }
    let what = (Verb::Create, Resource::JoinTokens);
    caller.note(&api, what, Some(token.id.as_str())).await?;
    let (id, node) = (token.id.clone(), token.node.clone());
    let input = move |reply| Input::MakeJoinToken { reply, token };
    let seen = move |core: &Core, result: Result<(), Refusal>| {
        let tokens = core.state().admission().tokens();
        let made = tokens.get(&id).map(view);
        result.map(|()| made.expect("a token that was made is there"))
    };
    let token = api.engine().change(input, seen).await??;
    let line = issuance.line(secret, node, addresses).to_string();
    Ok((StatusCode::CREATED, Json(NewJoinTokenView { line, token })))
}

/// Returns the right to make a token. A token without a pool lets hosts join any.
fn making_in(pool: Option<&PoolName>) -> AccessQuery<'_> {
    AccessQuery {
        verb: Verb::Create,
        resource: Resource::JoinTokens,
        pool: pool.map_or(Scope::Every, |it| Scope::One(it.as_str())),
        subject: Scope::Unscoped,
    }
}

/// Checks a request. The id is the beginning of the secret's hash, which reveals nothing of the secret.
fn check(written: JoinTokenRequest, secret: &JoinSecret) -> Result<NewJoinToken, ApiError> {
    let hash = hash_of(secret);
    let id = hash.to_string()[..ID_CHARS].to_owned();
    let pool = written.pool.map(PoolName::new).transpose();
    Ok(NewJoinToken {
        id: JoinTokenId::new(id).expect("hexadecimal digits are a name"),
        hash,
        pool: pool.map_err(|error| invalid(ErrorCode::InvalidPool, "pool", error))?,
        node: written
            .node
            .map(NodeName::new)
            .transpose()
            .map_err(|error| invalid(ErrorCode::InvalidNode, "node", error))?,
        labels: labels(written.labels)?,
        uses: uses(written.uses)?,
        ttl: ttl(written.ttl.as_deref())?,
    })
}

fn uses(uses: Option<u32>) -> Result<u32, ApiError> {
    let uses = uses.unwrap_or(1);
    if (1..=MAX_TOKEN_USES).contains(&uses) {
        return Ok(uses);
    }
    let message = format!("{uses} is not between 1 and {MAX_TOKEN_USES} hosts");
    Err(invalid(ErrorCode::InvalidUses, "uses", message))
}

fn ttl(written: Option<&str>) -> Result<Span, ApiError> {
    let Some(written) = written else {
        return Ok(DEFAULT_TOKEN_TTL);
    };
    let refuse = |message: String| invalid(ErrorCode::InvalidDuration, "ttl", message);
    let ttl: Span = written
        .parse()
        .map_err(|error: SpanError| refuse(error.to_string()))?;
    if ttl > Span::ZERO && ttl <= MAX_TOKEN_TTL {
        return Ok(ttl);
    }
    let message = format!(
        "{ttl} is not more than 0s and at most {MAX_TOKEN_TTL}: a secret that stays valid for long may leak"
    );
    Err(refuse(message))
}

fn labels(written: BTreeMap<String, String>) -> Result<BTreeMap<LabelKey, LabelValue>, ApiError> {
    if written.len() > MAX_NODE_LABELS {
        let message = format!(
            "{} labels are too many: the maximum is {MAX_NODE_LABELS}",
            written.len()
        );
        return Err(invalid(ErrorCode::InvalidLabel, "labels", message));
    }
    let checked = written
        .into_iter()
        .map(|(key, value)| check_label((key, Some(value))));
    let checked: Result<Vec<_>, _> = checked.collect();
    let set = checked?.into_iter();
    Ok(set.filter_map(|(key, value)| Some((key, value?))).collect())
}

fn addresses(written: &[String]) -> Result<Vec<String>, ApiError> {
    let refuse = |message: String| invalid(ErrorCode::InvalidAddress, "addresses", message);
    if written.len() > MAX_LINE_ADDRESSES {
        return Err(refuse(format!(
            "{} are too many: the maximum is {MAX_LINE_ADDRESSES}",
            written.len()
        )));
    }
    for address in written {
        if !crate::config::is_host_and_port(address) || address.len() > MAX_ADDRESS_BYTES {
            return Err(refuse(format!(
                "`{}` is not an address: write HOST:PORT",
                address.escape_debug()
            )));
        }
    }
    Ok(written.to_vec())
}

fn invalid(code: ErrorCode, field: &str, message: impl ToString) -> ApiError {
    ApiError::Field(FieldError {
        code,
        field: field.to_owned(),
        message: message.to_string(),
    })
}

fn view(token: &JoinToken) -> JoinTokenView {
    // The wall clock, because the engine's last input may be old in an idle cluster.
    let now = wall();
    let labels = token.labels.iter();
    JoinTokenView {
        id: token.id.to_string(),
        state: match token.standing(now) {
            TokenStatus::Open => JoinTokenState::Open,
            TokenStatus::UsedUp => JoinTokenState::UsedUp,
            TokenStatus::Expired => JoinTokenState::Expired,
            TokenStatus::Revoked => JoinTokenState::Revoked,
        },
        pool: token.pool.as_ref().map(ToString::to_string),
        node: token.node.as_ref().map(ToString::to_string),
        labels: labels
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        uses: token.uses,
        nodes: token
            .used
            .values()
            .map(|used| used.node.to_string())
            .collect(),
        made_at: timestamp(token.made_at),
        expires_at: timestamp(token.expires_at),
    }
}
