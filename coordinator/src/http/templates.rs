//! Reads and changes of one template. `terms.rs` changes several documents at once.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use coordinator_core::spec::{self, template_name};
use coordinator_core::{Core, Desired};
use sluice_common::api::{Page, TemplateView};
use sluice_common::id::TemplateName;
use sluice_common::template::Template;

use super::Api;
use super::error::ApiError;
use super::etag::tagged;
use super::page::NamePageParams;
use super::params::{NoParams, Params, Segment};
use super::put::PutRequest;
use super::terms::{self, ChangeParams, length};
use crate::view;

/// Handles `GET /v1/templates`, sorted by name.
pub(super) async fn list(
    State(api): State<Api>,
    Params(params): Params<NamePageParams>,
) -> Result<Json<Page<TemplateView>>, ApiError> {
    let wanted = params.read()?;
    let look = move |core: &Core| {
        let templates = wanted.of(core.state().templates());
        let views = templates.filter_map(|(name, _)| view::template(core, name));
        wanted.page(views, |view| view.name.clone())
    };
    Ok(Json(api.engine().read(look).await?))
}

/// Handles `GET /v1/templates/{template}`.
pub(super) async fn get(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<Response, ApiError> {
    let name = known(&segment)?;
    let look = {
        let name = name.clone();
        move |core: &Core| view::template(core, &name)
    };
    let unknown = || unknown(name.as_str());
    let found = api.engine().read(look).await?.ok_or_else(unknown)?;
    Ok(tagged(found.version, Json(found)))
}

/// Handles `PUT /v1/templates/{template}`: creates or replaces it.
pub(super) async fn put(
    State(api): State<Api>,
    Segment(segment): Segment,
    put: PutRequest,
) -> Result<Response, ApiError> {
    let name = template_name("template", segment.clone()).map_err(ApiError::Field)?;
    let terms: Box<Template> = put.body()?;
    length::is_short("name", &terms)?;
    let wanted = spec::template(segment, terms)?;
    let seen = move |core: &Core| view::template(core, &name).map(|it| (it.version, it));
    put.make(&api, wanted, seen).await
}

/// Handles `DELETE /v1/templates/{template}`: 204. Submitted steps keep the template as it was.
pub(super) async fn delete(
    State(api): State<Api>,
    Segment(segment): Segment,
    Params(params): Params<ChangeParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let template = known(&segment)?;
    let wanted = Desired::NoTemplate { template };
    terms::delete(&api, wanted, params.read()?, &headers).await
}

/// Parses a name; an invalid name counts as unknown.
fn known(segment: &str) -> Result<TemplateName, ApiError> {
    TemplateName::new(segment).map_err(|_| unknown(segment))
}

fn unknown(name: &str) -> ApiError {
    ApiError::UnknownTemplate {
        template: name.escape_debug().to_string(),
    }
}
