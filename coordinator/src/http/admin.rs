//! What admins do with nodes: close, empty, open, label and forget them. The core decides; these calls read what is
//! asked and show the node as it stands then.

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

/// Longest reason, in bytes: a sentence or two that every list of nodes and every event carries along.
const MAX_REASON_BYTES: usize = 1024;

/// `POST /v1/nodes/{node}:cordon`, `:uncordon`, `:drain`, `:revoke` and `:move`; the body may be left out but of the last.
/// 204 where the access has ended of a node that has never been linked, so that there is none to show.
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
            let NothingSaid {} = optional(&json)?;
            NodeChange::Revoke
        }
        _ => uncordon(optional(&json)?),
    };
    Ok(match change_node(&api, node, change).await? {
        Some(view) => Json(view).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// A body in which nothing can be said.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NothingSaid {}

/// Methods that neither a node nor its verbs take, by what they are called on.
pub(super) async fn no_method(method: Method, Segment(segment): Segment) -> ApiError {
    NODES.refuse(&segment, method.as_str())
}

/// A body that says nothing where there is none.
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

/// Whoever takes a node out of a pool was judged by its place; he must have the right where it goes, too.
fn to_pool(caller: &Caller, request: MoveRequest) -> Result<NodeChange, ApiError> {
    let pool = PoolName::new(request.pool);
    let pool = pool.map_err(|error| invalid(ErrorCode::InvalidPool, "pool", error.to_string()))?;
    let there = AccessQuery {
        verb: Verb::Move,
        resource: Resource::Nodes,
        pool: Scope::One(pool.as_str()),
        subject: Scope::Unscoped,
    };
    caller.need(&there, None)?;
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

/// `PATCH /v1/nodes/{node}/labels`: those with `null` are taken away.
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
            "label `{name}`: what begins with `{prefix}` is what was detected, and set by nobody: choose another prefix, \
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

/// `DELETE /v1/nodes/{node}`: 204 where it is forgotten, 202 with the node where it will be as soon as it is lost.
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

/// Makes a change; the node as it stands then, if it is still there.
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
