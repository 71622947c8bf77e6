//! Templates: seen, set and deleted by their own path. `terms.rs` changes them beside others.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use coordinator_core::{Core, Wanted};
use sluice_common::api::{Page, TemplateView};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::TemplateName;
use sluice_common::request::FieldError;
use sluice_common::template::Template;
use sluice_common::template::check::{MAX_TEMPLATE_BYTES, MAX_TEMPLATES};

use super::Api;
use super::error::ApiError;
use super::page::ByNameParams;
use super::params::{NoParams, Params, Segment};
use super::pools::invalid;
use super::put::Put;
use super::terms::{self, HowParams, tagged};
use crate::view;

pub(super) fn template_name(field: &str, name: String) -> Result<TemplateName, FieldError> {
    TemplateName::new(name).map_err(|e| invalid(field, ErrorCode::InvalidTemplate, &e))
}

/// The templates that a pool names.
pub(super) fn named(names: &[String]) -> Result<Vec<TemplateName>, FieldError> {
    let wrong = |field: &str, why: &str| invalid(field, ErrorCode::InvalidTemplate, &why);
    if names.len() > MAX_TEMPLATES {
        let why = format!("{} templates: {MAX_TEMPLATES} are the most", names.len());
        return Err(wrong("templates", &why));
    }
    let mut found = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let field = format!("templates[{at}]");
        let name = template_name(&field, name.clone())?;
        if found.contains(&name) {
            let why = format!("`{name}` is there twice: a layer over itself changes nothing");
            return Err(wrong(&field, &why));
        }
        found.push(name);
    }
    Ok(found)
}

/// A template as somebody wrote it, checked.
pub(super) fn wanted(name: String, terms: Box<Template>) -> Result<Wanted, FieldError> {
    let template = template_name("name", name)?;
    check("name", &terms)?;
    Ok(Wanted::Template { template, terms })
}

/// Whether it may be stored; `whole` is the field that stands for all of it.
pub(super) fn check(whole: &str, terms: &Template) -> Result<(), FieldError> {
    terms.check()?;
    let bytes = serde_json::to_vec(terms).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_TEMPLATE_BYTES {
        let why = format!("it takes {bytes} bytes: {MAX_TEMPLATE_BYTES} are the most");
        return Err(invalid(whole, ErrorCode::InvalidTemplate, &why));
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
    let wanted = wanted(segment, put.body()?).map_err(ApiError::Field)?;
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
