//! Views of templates, and of steps with their templates applied.

use coordinator_core::{Core, Step};
use sluice_common::api::{EffectiveSpecView, TemplateView};
use sluice_common::id::{PoolName, TemplateName};

/// Returns a template, if there is one of this name.
pub fn template(core: &Core, name: &TemplateName) -> Option<TemplateView> {
    let stored = core.state().templates().get(name)?;
    let pools = core.state().pools().values();
    let naming = pools.filter(|pool| pool.spec.templates.contains(name));
    Some(TemplateView {
        name: name.to_string(),
        template: stored.template.clone(),
        pools: naming.map(|pool| pool.name.to_string()).collect(),
        version: stored.version,
    })
}

/// Returns a step's effective spec.
pub(super) fn merged(core: &Core, step: &Step, pool: Option<&PoolName>) -> EffectiveSpecView {
    let merged = core.merged(step, pool);
    let from = merged.origins.iter();
    EffectiveSpecView {
        pool: merged.pool.as_ref().map(ToString::to_string),
        platform: merged.platform.as_ref().map(ToString::to_string),
        from: from
            .map(|(field, origin)| (field.clone(), origin.to_string()))
            .collect(),
        result: merged.template,
    }
}
