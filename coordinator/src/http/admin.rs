//! Changes of nodes by admins: cordon, drain, uncordon, label, move and delete. The core decides; these calls parse the
//! request and return the node afterwards.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use coordinator_core::{Core, Input, NodeChange, Refusal};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluice_common::access::{AccessQuery, Resource, Scope, Verb};
use sluice_common::api::{
    CordonRequest, DrainRequest, LabelsRequest, MoveRequest, NodeView, UncordonRequest,
};
use sluice_common::error_code::ErrorCode;
use sluice_common::facts;
use sluice_common::id::{NodeName, PoolName};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::limit::MAX_BODY_BYTES;
use sluice_common::request::FieldError;
use sluice_common::time::Span;

use super::access::Caller;
use super::error::ApiError;
use super::params::{self, NoParams, Params, Segment};
use super::verbs::NODES;
use super::{Api, body};
use crate::view;

/// Longest reason in bytes: a sentence or two, because every list of nodes and every event contains it.
const MAX_REASON_BYTES: usize = 1024;

/// Handles `POST /v1/nodes/{node}:cordon`, `:uncordon`, `:drain`, `:revoke` and `:move`; only the last needs a body.
/// 204 if access was revoked of a node that was never linked, so that there is none to return.
pub(super) async fn act(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    _: NoParams,
    request: Request,
) -> Result<Response, ApiError> {
    let (node, verb) = NODES.split(&segment, "POST")?;
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let change = match verb {
        Some("cordon") => cordon(optional(&json)?)?,
        Some("drain") => drain(optional(&json)?)?,
        Some("move") => to_pool(&caller, body::parse(&json, "")?)?,
        Some("revoke") => {
            let EmptyBody {} = optional(&json)?;
            NodeChange::Revoke
        }
        _ => uncordon(optional(&json)?),
    };
    Ok(match change_node(&api, node, change).await? {
        Some(view) => Json(view).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// A body without fields.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

/// Rejects methods that neither a node nor its verbs have.
pub(super) async fn no_method(method: Method, Segment(segment): Segment) -> ApiError {
    NODES.refuse(&segment, method.as_str())
}

/// Parses a body that may be absent.
fn optional<T: DeserializeOwned + Default>(json: &[u8]) -> Result<T, ApiError> {
    if json.is_empty() {
        return Ok(T::default());
    }
    body::parse(json, "")
}

fn cordon(CordonRequest { reason, gpu }: CordonRequest) -> Result<NodeChange, ApiError> {
    let reason = check_reason(reason)?;
    Ok(match gpu {
        Some(gpu) => NodeChange::CordonGpu { gpu, reason },
        None => NodeChange::Cordon { reason },
    })
}

fn uncordon(UncordonRequest { gpu }: UncordonRequest) -> NodeChange {
    match gpu {
        Some(gpu) => NodeChange::UncordonGpu { gpu },
        None => NodeChange::Uncordon,
    }
}

fn drain(DrainRequest { reason, deadline }: DrainRequest) -> Result<NodeChange, ApiError> {
    Ok(NodeChange::Drain {
        reason: check_reason(reason)?,
        deadline: check_deadline(deadline)?,
    })
}

/// Checks the right to the target pool; the right to the node was checked before.
fn to_pool(caller: &Caller, request: MoveRequest) -> Result<NodeChange, ApiError> {
    let pool = PoolName::new(request.pool);
    let pool = pool.map_err(|error| invalid(ErrorCode::InvalidPool, "pool", error.to_string()))?;
    let there = AccessQuery {
        verb: Verb::Move,
        resource: Resource::Nodes,
        pool: Scope::One(pool.as_str()),
        subject: Scope::Unscoped,
    };
    caller.require(&there, None)?;
    Ok(NodeChange::Move {
        pool,
        reason: check_reason(request.reason)?,
        deadline: check_deadline(request.deadline)?,
    })
}

fn check_deadline(text: Option<String>) -> Result<Option<Span>, ApiError> {
    let deadline = text.map(|text| text.parse::<Span>()).transpose();
    deadline.map_err(|error| invalid(ErrorCode::InvalidDuration, "deadline", error.to_string()))
}

fn check_reason(reason: Option<String>) -> Result<Option<String>, ApiError> {
    let bytes = reason.as_ref().map_or(0, String::len);
    if bytes > MAX_REASON_BYTES {
        let message = format!("the reason has {bytes} bytes: write at most {MAX_REASON_BYTES}");
        return Err(invalid(ErrorCode::InvalidReason, "reason", message));
    }
    Ok(reason)
}

fn invalid(code: ErrorCode, field: &str, message: String) -> ApiError {
    ApiError::Field(FieldError {
        code,
        field: field.to_owned(),
        message,
    })
}

/// Handles `PATCH /v1/nodes/{node}/labels`; labels with `null` are removed.
pub(super) async fn label(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
    request: Request,
) -> Result<Json<NodeView>, ApiError> {
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let LabelsRequest(labels) = body::parse(&json, "")?;
    let labels = labels.into_iter().map(check_label);
    let labels: BTreeMap<_, _> = labels.collect::<Result<_, _>>()?;
    let view = change_node(&api, &segment, NodeChange::Label(labels)).await?;
    Ok(Json(view.expect("a node that was changed is there")))
}

pub(super) fn check_label(
    (key, value): (String, Option<String>),
) -> Result<(LabelKey, Option<LabelValue>), ApiError> {
    let refuse = |error: sluice_common::label::LabelError| {
        invalid(ErrorCode::InvalidLabel, &key, error.to_string())
    };
    let value = value.map(LabelValue::new).transpose().map_err(refuse)?;
    let name = LabelKey::new(key.as_str()).map_err(refuse)?;
    if facts::is_reserved(&name) && value.is_some() {
        let prefix = facts::PREFIX;
        let why = format!(
            "label `{name}`: labels that begin with `{prefix}` are detected and cannot be set: choose another prefix, \
             such as `example.com/`, or none"
        );
        return Err(invalid(ErrorCode::ReservedLabel, &key, why));
    }
    Ok((name, value))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteParams {
    force: Option<String>,
}

/// Handles `DELETE /v1/nodes/{node}`: 204 if it is forgotten, 202 with the node if it will be once it is lost.
pub(super) async fn delete(
    State(api): State<Api>,
    Segment(segment): Segment,
    params: Result<Params<DeleteParams>, ApiError>,
) -> Result<Response, ApiError> {
    let (node, _) = NODES.split(&segment, "DELETE")?;
    let Params(params) = params?;
    let force = params::flag("force", params.force.as_deref())?;
    let view = change_node(&api, node, NodeChange::Delete { force }).await?;
    Ok(match view {
        None => StatusCode::NO_CONTENT.into_response(),
        Some(view) => (StatusCode::ACCEPTED, Json(view)).into_response(),
    })
}

/// Makes a change, and returns the node afterwards, if it still exists.
async fn change_node(
    api: &Api,
    segment: &str,
    change: NodeChange,
) -> Result<Option<NodeView>, ApiError> {
    let unknown = |_| ApiError::UnknownNode {
        node: segment.escape_debug().to_string(),
    };
    let node = NodeName::new(segment).map_err(unknown)?;
    let readings = api.0.nodes.readings(&node);
    let name = node.clone();
    let input = move |reply| Input::ChangeNode {
        reply,
        node,
        change,
    };
    let seen = move |core: &Core, result: Result<(), Refusal>| {
        let found = core.state().node(&name);
        result.map(|()| found.map(|node| view::node(core, node, readings.as_deref())))
    };
    Ok(api.engine().change(input, seen).await??)
}
