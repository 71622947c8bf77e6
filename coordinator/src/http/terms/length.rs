//! Bounds the length of templates in documents.

use coordinator_core::spec::invalid;
use sluice_common::api::PutDocument;
use sluice_common::error_code::ErrorCode;
use sluice_common::pool::PoolSpec;
use sluice_common::request::FieldError;
use sluice_common::template::Template;
use sluice_common::template::check::MAX_TEMPLATE_BYTES;

/// Checks that the templates of a document are short enough: each step that uses one keeps a copy.
pub(in crate::http) fn can_be_kept(document: &PutDocument) -> Result<(), FieldError> {
    match document {
        PutDocument::Template { template, .. } => is_short("name", template),
        PutDocument::Platform(it) => override_is_short("override", &it.spec.overrides),
        PutDocument::Pool(it) => of_platforms_can_be_kept(&it.spec),
        _ => Ok(()),
    }
}

/// Checks the overrides in a pool's platforms.
pub(in crate::http) fn of_platforms_can_be_kept(pool: &PoolSpec) -> Result<(), FieldError> {
    let mut list = pool.platforms.iter().flatten().enumerate();
    list.try_for_each(|(at, it)| {
        override_is_short(&format!("platforms[{at}].override"), &it.spec.overrides)
    })
}

/// Checks the override of one platform.
pub(in crate::http) fn override_is_short(
    field: &str,
    overrides: &Option<Box<Template>>,
) -> Result<(), FieldError> {
    overrides
        .as_ref()
        .map_or(Ok(()), |terms| is_short(field, terms))
}

pub(in crate::http) fn is_short(field: &str, terms: &Template) -> Result<(), FieldError> {
    let bytes = serde_json::to_vec(terms).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_TEMPLATE_BYTES {
        let why = format!("it takes {bytes} bytes: the maximum is {MAX_TEMPLATE_BYTES}");
        return Err(invalid(field, ErrorCode::InvalidTemplate, &why));
    }
    Ok(())
}
