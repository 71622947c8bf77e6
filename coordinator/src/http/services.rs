//! Services: reads, changes, scaling, going back and deletion; and the endpoints of all services. A service is as
//! accessible as the steps that are its replicas.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use coordinator_core::{
    Core, Input, NewStep, Refusal, ReplyId, Service, ServiceChange, ServiceReport,
};
use serde::Deserialize;
use sluice_common::access::{AccessQuery, Resource, Scope, Verb};
use sluice_common::api::{
    ChangeOutcome, EndpointView, LoadReport, Page, RollbackRequest, ScaleRequest,
    ServicePreviewView, ServiceView, TargetGroup,
};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{ReporterName, ServiceName};
use sluice_common::limit::MAX_BODY_BYTES;
use sluice_common::request::{FieldError, StepRequest, load_milli, replicas};
use sluice_common::service::{RequestLoad, ServiceSpec};

use super::access::Caller;
use super::error::ApiError;
use super::etag::{expected, tagged};
use super::page::NamePageParams;
use super::params::{self, NoParams, Params, Segment};
use super::submit::permit;
use super::verbs::SERVICES;
use super::{Api, body, ids};
use crate::view;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PutParams {
    dry_run: Option<String>,
}

/// Handles `GET /v1/services`, sorted by name.
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<NamePageParams>,
) -> Result<Json<Page<ServiceView>>, ApiError> {
    let wanted = params.read()?;
    let look = move |core: &Core| {
        let known = wanted.of(core.state().services());
        let seen = known.filter(|(_, known)| is_listed(&caller, known));
        let views = seen.filter_map(|(name, known)| view::service(core, name, known));
        wanted.page(views, |view| view.name.clone())
    };
    Ok(Json(api.engine().read(look).await?))
}

fn is_listed(caller: &Caller, known: &Service) -> bool {
    let subject = known.subject();
    subject.is_some_and(|subject| caller.lists_of(subject, view::pool_of(known)))
}

/// Handles `GET /v1/services/{service}`.
pub(super) async fn get(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<Response, ApiError> {
    let (name, _) = SERVICES.split(&segment, "GET")?;
    let name = service_name(name)?;
    let view = read(&api, name).await?;
    Ok(tagged(view.version, Json(view)))
}

/// Handles `PUT /v1/services/{service}`: makes it, or changes it. With `dry_run`, answers what would come of it.
pub(super) async fn put(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    Params(params): Params<PutParams>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ApiError> {
    let (name, _) = SERVICES.split(&segment, "PUT")?;
    let dry_run = params::flag("dry_run", params.dry_run.as_deref())?;
    let version = expected(&headers)?;
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let wanted: StepRequest = body::parse(&json, "")?;
    let (name, mut spec) = wanted.check_service(name)?;
    let mut step = NewStep::new(ids::draw()?, spec.replica);
    permit(&caller, &mut step)?;
    spec.replica = step.spec.clone();
    permit_change(&api, &caller, &name).await?;
    if dry_run {
        return preview(&api, name, spec, step).await;
    }
    api.disk_space().check()?;
    let what = (Verb::Create, Resource::Steps);
    caller
        .note(&api, what, Some(&format!("service {name}")))
        .await?;
    let wanted = name.clone();
    let look = move |core: &Core| core.state().services().get(&wanted).map(|it| it.version);
    let before = api.engine().read(look).await?;
    let change = ServiceChange::Put(Box::new(spec));
    let mut view = make(&api, name, change, version).await?;
    view.outcome = Some(match before {
        None => ChangeOutcome::Created,
        Some(version) if version == view.version => ChangeOutcome::Unchanged,
        Some(_) => ChangeOutcome::Changed,
    });
    Ok(tagged(view.version, Json(view)))
}

/// Fails if there is a service of this name that the caller may not change: whose replicas he may not stop.
async fn permit_change(api: &Api, caller: &Caller, name: &ServiceName) -> Result<(), ApiError> {
    if caller.is_unbounded() {
        return Ok(());
    }
    let wanted = name.clone();
    let look = move |core: &Core| {
        let known = core.state().services().get(&wanted)?;
        Some((known.subject()?.clone(), view::pool_of(known).cloned()))
    };
    let Some((subject, pool)) = api.engine().read(look).await? else {
        return Ok(());
    };
    let pool = pool
        .as_ref()
        .map_or(Scope::Every, |pool| Scope::One(pool.as_str()));
    for verb in [Verb::Create, Verb::Cancel] {
        let query = AccessQuery {
            verb,
            resource: Resource::Steps,
            pool,
            subject: Scope::One(subject.as_str()),
        };
        caller.require(&query, Some(name.as_str()))?;
    }
    Ok(())
}

async fn preview(
    api: &Api,
    name: ServiceName,
    spec: ServiceSpec,
    step: NewStep,
) -> Result<Response, ApiError> {
    let look = move |core: &Core| core.foresee_service(&name, &spec);
    let (outcome, new_revision) = match api.engine().read(look).await?? {
        None => (ChangeOutcome::Created, true),
        Some((false, _)) => (ChangeOutcome::Unchanged, false),
        Some((true, new_revision)) => (ChangeOutcome::Changed, new_revision),
    };
    let mut replica = api.engine().preview(step, view::preview).await?;
    replica.step = None;
    Ok(Json(ServicePreviewView {
        outcome,
        new_revision,
        replica,
    })
    .into_response())
}

/// Handles `POST /v1/services/{service}:report`, `:scale` and `:undo`.
pub(super) async fn act(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    _: NoParams,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ApiError> {
    let (name, verb) = SERVICES.split(&segment, "POST")?;
    let name = service_name(name)?;
    // Fewer replicas, or another version, stop some.
    permit_change(&api, &caller, &name).await?;
    let version = expected(&headers)?;
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let change = match verb {
        Some("report") => return report(&api, name, body::parse(&json, "")?).await,
        Some("scale") => {
            let ScaleRequest { replicas: count } = body::parse(&json, "")?;
            ServiceChange::Scale(replicas("replicas", count)?)
        }
        _ => {
            let RollbackRequest { revision } = match json.is_empty() {
                true => RollbackRequest::default(),
                false => body::parse(&json, "")?,
            };
            ServiceChange::Undo(revision)
        }
    };
    let view = make(&api, name, change, version).await?;
    Ok(tagged(view.version, Json(view)))
}

/// Takes a report of the load: 204.
async fn report(api: &Api, service: ServiceName, told: LoadReport) -> Result<Response, ApiError> {
    let reporter = ReporterName::new(&*told.reporter);
    let reporter = reporter.map_err(|e| FieldError::new(ErrorCode::InvalidName, "reporter", e))?;
    let load = RequestLoad {
        concurrency_milli: load_milli("concurrency", told.concurrency)?,
        rps_milli: load_milli("rps", told.rps)?,
    };
    let report = ServiceReport {
        service,
        reporter,
        load,
    };
    let input = move |reply| Input::ReportLoad { reply, report };
    api.engine().change(input, |_, result| result).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Handles `DELETE /v1/services/{service}`: 204. Its replicas are drained and stopped.
pub(super) async fn delete(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let (name, _) = SERVICES.split(&segment, "DELETE")?;
    let name = service_name(name)?;
    let version = expected(&headers)?;
    let input = change_of(name, ServiceChange::Delete, version);
    api.engine().change(input, |_, result| result).await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers every other method.
pub(super) async fn no_method(method: Method, Segment(segment): Segment) -> ApiError {
    SERVICES.refuse(&segment, method.as_str())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndpointParams {
    service: Option<String>,
    format: Option<String>,
}

/// Handles `GET /v1/endpoints`: the replicas of all services that are ready, or their addresses as Prometheus reads them.
pub(super) async fn endpoints(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<EndpointParams>,
) -> Result<Response, ApiError> {
    let wanted = params.service.as_deref().map(service_name).transpose()?;
    let targets = match params.format.as_deref() {
        None | Some("json") => false,
        Some("http_sd") => true,
        Some(other) => {
            let why = format!(
                "`{}` is no format: write json or http_sd",
                other.escape_debug()
            );
            return Err(params::invalid("format", why));
        }
    };
    let look = move |core: &Core| {
        let known = core.state().services().iter();
        let asked = known.filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| wanted == *name));
        let seen = asked.filter(|(_, known)| is_listed(&caller, known));
        let found = seen.flat_map(|(name, known)| view::endpoints(core, name, known));
        found.collect::<Vec<_>>()
    };
    let items = api.engine().read(look).await?;
    if targets {
        return Ok(Json(target_groups(&items)).into_response());
    }
    Ok(Json(Page {
        items,
        next_cursor: None,
        left_out: None,
    })
    .into_response())
}

/// One group for each port of each endpoint.
fn target_groups(endpoints: &[EndpointView]) -> Vec<TargetGroup> {
    let groups = endpoints.iter().flat_map(|endpoint| {
        endpoint.ports.iter().map(|(name, port)| {
            let labels = [
                ("service", &endpoint.service),
                ("subject", &endpoint.subject),
                ("replica", &endpoint.replica),
                ("node", &endpoint.node),
                ("port", name),
            ];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.clone()));
            TargetGroup {
                targets: vec![join_port(&endpoint.address, *port)],
                labels: BTreeMap::from(labels),
            }
        })
    });
    groups.collect()
}

/// Joins an address and a port; an address of IPv6 stands in brackets.
fn join_port(address: &str, port: u16) -> String {
    match address.contains(':') && !address.starts_with('[') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    }
}

fn service_name(text: &str) -> Result<ServiceName, ApiError> {
    let name = ServiceName::new(text);
    Ok(name.map_err(|e| FieldError::new(ErrorCode::InvalidName, "name", e))?)
}

fn change_of(
    service: ServiceName,
    change: ServiceChange,
    version: Option<u64>,
) -> impl FnOnce(ReplyId) -> Input + Send {
    move |reply| Input::ChangeService {
        reply,
        service,
        change,
        version,
    }
}

/// Makes a change, and returns the service as it is then.
async fn make(
    api: &Api,
    name: ServiceName,
    change: ServiceChange,
    version: Option<u64>,
) -> Result<ServiceView, ApiError> {
    let input = change_of(name.clone(), change, version);
    let changed = api.engine().change(input, move |core, result| {
        result.map(|()| found(core, &name)).and_then(|found| found)
    });
    Ok(changed.await??)
}

async fn read(api: &Api, name: ServiceName) -> Result<ServiceView, ApiError> {
    Ok(api.engine().read(move |core| found(core, &name)).await??)
}

fn found(core: &Core, name: &ServiceName) -> Result<ServiceView, Refusal> {
    let known = core.state().services().get(name);
    let view = known.and_then(|known| view::service(core, name, known));
    view.ok_or_else(|| Refusal::UnknownService {
        service: name.clone(),
    })
}
