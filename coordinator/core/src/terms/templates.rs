//! Templates: stored by name, named by pools, and merged into steps at submission. Each distinct merge is stored with
//! the step, so a change affects only later submits.
//!
//! `submit/layers.rs` says which layers apply and in which order; the common crate merges them.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::TemplateName;
use sluice_common::nearest::nearest;
use sluice_common::template::Template;
use sluice_reasons::InUse;

use crate::context::Context;
use crate::input::{Desired, TermsChange};
use crate::output::{CurrentTerms, Refusal, Refused, Use};
use crate::record::Record;

/// The current contents of a template, with the version.
pub(crate) fn template_terms(ctx: &Context, name: &TemplateName) -> Option<(CurrentTerms, u64)> {
    let stored = ctx.state().templates().get(name)?;
    let terms = CurrentTerms::Template(Box::new(stored.template.clone()));
    Some((terms, stored.version))
}

/// Makes one change of a template.
pub(crate) fn put_template(ctx: &mut Context, name: &TemplateName, terms: &Template) {
    let known = ctx.state().templates().get(name);
    if known.is_none_or(|stored| stored.template != *terms) {
        ctx.record(Record::TemplatePut {
            template: name.clone(),
            terms: terms.clone(),
        });
    }
}

/// Deletes one template.
pub(crate) fn delete_template(ctx: &mut Context, name: &TemplateName) -> Result<(), Refusal> {
    let template = name.clone();
    if !ctx.state().templates().contains_key(name) {
        return Err(Refusal::UnknownTemplate { template });
    }
    ctx.record(Record::TemplateDeleted { template });
    Ok(())
}

/// Checks that every template that the changed pools name exists, once all changes are made.
pub(crate) fn check_templates(ctx: &Context, changes: &[TermsChange]) -> Result<(), Refused> {
    for (at, change) in changes.iter().enumerate() {
        let Desired::Pool { pool, terms } = &change.desired else {
            continue;
        };
        let mut named = terms.spec.templates.iter();
        if let Some(template) = named.find(|name| !ctx.state().templates().contains_key(name)) {
            let refusal = Refusal::PoolNamesTemplate {
                pool: pool.clone(),
                hint: hint_of(ctx, template),
                template: template.clone(),
            };
            let at = Some(at);
            return Err(Refused { at, refusal });
        }
    }
    Ok(())
}

/// The pools that still name a deleted template once all changes are made.
pub(crate) fn naming_what_is_gone(ctx: &Context, changes: &[TermsChange]) -> Vec<Use> {
    let deleted = changes.iter().filter_map(|change| match &change.desired {
        Desired::NoTemplate { template } => Some(template),
        Desired::Pool { .. }
        | Desired::NoPool { .. }
        | Desired::Policy { .. }
        | Desired::NoPolicy { .. }
        | Desired::Cluster { .. }
        | Desired::Topology { .. }
        | Desired::Template { .. }
        | Desired::Validation { .. }
        | Desired::NoValidation { .. }
        | Desired::Platform { .. }
        | Desired::Access { .. }
        | Desired::NoPlatform { .. } => None,
    });
    let uses = deleted.flat_map(|name| {
        let pools = ctx.state().pools().values();
        let naming = pools.filter(|pool| pool.spec.templates.contains(name));
        naming.map(move |pool| Use {
            what: InUse::Template {
                template: name.clone(),
                pool: pool.name.clone(),
            },
            steps: Vec::new(),
        })
    });
    uses.collect()
}

fn hint_of(ctx: &Context, template: &TemplateName) -> String {
    let known = ctx.state().templates().keys().map(TemplateName::as_str);
    match nearest(template.as_str(), known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => String::from("apply it too, or leave it out"),
    }
}
