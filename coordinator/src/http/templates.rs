//! Templates: seen, set and deleted by their own path. `terms.rs` changes them beside others.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use coordinator_core::written::{self, invalid, template_name};
use coordinator_core::{Core, Wanted};
use sluice_common::api::{NamedPlatform, Page, PutDocument, TemplateView};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::TemplateName;
use sluice_common::request::FieldError;
use sluice_common::template::Template;
use sluice_common::template::check::MAX_TEMPLATE_BYTES;

use super::Api;
use super::error::ApiError;
use super::page::ByNameParams;
use super::params::{NoParams, Params, Segment};
use super::put::Put;
use super::terms::{self, HowParams, tagged};
use crate::view;

/// Whether the templates of a document are short enough to be kept: each step that stands on one keeps what it was.
pub(super) fn can_be_kept(document: &PutDocument) -> Result<(), FieldError> {
    match document {
        PutDocument::Template { template, .. } => is_short("name", template),
        PutDocument::Platform { overrides, .. } => override_is_short("override", overrides),
        PutDocument::Pool { platforms, .. } => of_platforms_can_be_kept(platforms.as_deref()),
        _ => Ok(()),
    }
}

/// The same of what the platforms of a pool lay over its templates.
pub(super) fn of_platforms_can_be_kept(list: Option<&[NamedPlatform]>) -> Result<(), FieldError> {
    let mut list = list.unwrap_or_default().iter().enumerate();
    list.try_for_each(|(at, platform)| {
        override_is_short(&format!("platforms[{at}].override"), &platform.overrides)
    })
}

/// The same of what a platform lays over the templates of its pool.
pub(super) fn override_is_short(
    field: &str,
    overrides: &Option<Box<Template>>,
) -> Result<(), FieldError> {
    overrides
        .as_ref()
        .map_or(Ok(()), |terms| is_short(field, terms))
}

fn is_short(field: &str, terms: &Template) -> Result<(), FieldError> {
    let bytes = serde_json::to_vec(terms).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_TEMPLATE_BYTES {
        let why = format!("it takes {bytes} bytes: {MAX_TEMPLATE_BYTES} are the most");
        return Err(invalid(field, ErrorCode::InvalidTemplate, &why));
    }
    Ok(())
}

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
    is_short("name", &terms)?;
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
