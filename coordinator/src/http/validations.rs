//! Reads and changes of one validation document. `terms.rs` changes several at once; the core evaluates the assertions.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use coordinator_core::spec::{validation, validation_name};
use coordinator_core::{Core, Desired, Refusal, Validation};
use sluice_common::api::{Page, ValidationView};
use sluice_common::id::ValidationName;

use super::Api;
use super::error::ApiError;
use super::etag::tagged;
use super::page::NamePageParams;
use super::params::{NoParams, Params, Segment};
use super::put::PutRequest;
use super::terms::{ChangeParams, delete as delete_terms};

fn view(core: &Core, name: &ValidationName, known: &Validation) -> ValidationView {
    let pools = core.state().pools().values();
    let naming = pools
        .clone()
        .filter(|pool| pool.spec.validations.contains(name));
    let platforms = pools.flat_map(|pool| pool.platforms.iter().map(move |it| (pool, it)));
    let platforms = platforms.filter(|(_, (_, it))| it.terms.validations.contains(name));
    let platforms = platforms.map(|(pool, (platform, _))| format!("{}/{platform}", pool.name));
    ValidationView {
        name: name.to_string(),
        description: known.terms.description.clone(),
        assertions: known.terms.assertions.clone(),
        pools: naming.map(|pool| pool.name.to_string()).collect(),
        platforms: platforms.collect(),
        version: known.version,
    }
}

fn one(core: &Core, name: &ValidationName) -> Option<ValidationView> {
    let known = core.state().validations().get(name)?;
    Some(view(core, name, known))
}

/// Handles `GET /v1/validations`, sorted by name.
pub(super) async fn list(
    State(api): State<Api>,
    Params(params): Params<NamePageParams>,
) -> Result<Json<Page<ValidationView>>, ApiError> {
    let wanted = params.read()?;
    let look = move |core: &Core| {
        let known = wanted.of(core.state().validations());
        let views = known.map(|(name, known)| view(core, name, known));
        wanted.page(views, |view| view.name.clone())
    };
    Ok(Json(api.engine().read(look).await?))
}

/// Handles `GET /v1/validations/{validation}`.
pub(super) async fn get(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<Response, ApiError> {
    let validation = validation_name(segment)?;
    let name = validation.clone();
    let found = api.engine().read(move |core| one(core, &name)).await?;
    let found = found.ok_or(ApiError::Refused(Refusal::UnknownValidation { validation }))?;
    Ok(tagged(found.version, Json(found)))
}

/// Handles `PUT /v1/validations/{validation}`: creates or replaces it.
pub(super) async fn put(
    State(api): State<Api>,
    Segment(segment): Segment,
    put: PutRequest,
) -> Result<Response, ApiError> {
    let name = validation_name(segment.clone())?;
    let wanted = validation(segment, put.body()?)?;
    let seen = move |core: &Core| one(core, &name).map(|it| (it.version, it));
    put.make(&api, wanted, seen).await
}

/// Handles `DELETE /v1/validations/{validation}`: 204. No pool may name it.
pub(super) async fn delete(
    State(api): State<Api>,
    Segment(segment): Segment,
    Params(params): Params<ChangeParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let validation = validation_name(segment)?;
    let wanted = Desired::NoValidation { validation };
    delete_terms(&api, wanted, params.read()?, &headers).await
}
