//! Templates: seen, set and deleted by their own path. `terms.rs` changes them beside others.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use coordinator_core::written::{self, template_name};
use coordinator_core::{Core, Wanted};
use sluice_common::api::{Page, TemplateView};
use sluice_common::id::TemplateName;
use sluice_common::template::Template;

use super::Api;
use super::error::ApiError;
use super::page::ByNameParams;
use super::params::{NoParams, Params, Segment};
use super::put::Put;
use super::tag::tagged;
use super::terms::{self, HowParams, length};
use crate::view;

/// `GET /v1/templates`: by name.
pub(super) async fn list(
    State(api): State<Api>,
    Params(params): Params<ByNameParams>,
) -> Result<Json<Page<TemplateView>>, ApiError> {
    let wanted = params.read()?;
    let look = move |core: &Core| {
        let templates = wanted.of(core.state().templates());
        let views = templates.filter_map(|(name, _)| view::template(core, name));
        wanted.page(views, |view| view.name.clone())
    };
    Ok(Json(api.engine().read(look).await?))
}

/// `GET /v1/templates/{template}`.
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

/// `PUT /v1/templates/{template}`: makes it, or has it say this and nothing else.
pub(super) async fn put(
    State(api): State<Api>,
    Segment(segment): Segment,
    put: Put,
) -> Result<Response, ApiError> {
    let name = template_name("template", segment.clone()).map_err(ApiError::Field)?;
    let terms: Box<Template> = put.body()?;
    length::is_short("name", &terms)?;
    let wanted = written::template(segment, terms)?;
    let seen = move |core: &Core| view::template(core, &name).map(|it| (it.version, it));
    put.make(&api, wanted, seen).await
}

/// `DELETE /v1/templates/{template}`: 204. What was submitted stands on what it was.
pub(super) async fn delete(
    State(api): State<Api>,
    Segment(segment): Segment,
    Params(params): Params<HowParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let template = known(&segment)?;
    let wanted = Wanted::NoTemplate { template };
    terms::delete(&api, wanted, params.read()?, &headers).await
}

/// A name that cannot be one is that of nothing.
fn known(segment: &str) -> Result<TemplateName, ApiError> {
    TemplateName::new(segment).map_err(|_| unknown(segment))
}

fn unknown(name: &str) -> ApiError {
    ApiError::UnknownTemplate {
        template: name.escape_debug().to_string(),
    }
}
