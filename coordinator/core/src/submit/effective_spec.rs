//! The effective spec of a step: its own fields and all that templates and pools fill in, with the origin of each
//! value. For display and for checks before a submit; decides nothing.

use alloc::string::String;
use alloc::vec::Vec;
use core::slice;

use sluice_common::amount::table::bytes_text;
use sluice_common::amount::{MCPU, MEMORY_MB, STORAGE_MB, cores_of};
use sluice_common::id::{PlatformName, PoolName, StepId};
use sluice_common::pool_rules::Setting;
use sluice_common::step::StepSpec;
use sluice_common::template::origin::{MergedTemplate, Origin, Origins};
use sluice_common::template::{DefaultResources, Template};
use sluice_scheduler::Request;

use crate::context::Context;
use crate::model::pool::Pool;
use crate::model::step::Step;
use crate::model::template::Provenance;
use crate::state::request;
use crate::submit::default_amounts::{field_of, with_amounts};
use crate::submit::fill::fill;
use crate::submit::layers::provenance_of;
use crate::submit::origins::of_settings;

/// A step with everything that is filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EffectiveStep {
    /// The pool of this spec.
    pub pool: Option<PoolName>,
    /// The granted hardware there, if it is known.
    pub platform: Option<PlatformName>,
    /// The command and its settings, with variables as they are written.
    pub template: Template,
    /// The origin of each value, by field. Absent fields are not set.
    pub origins: Origins,
}

/// The effective spec of a step in the pool that granted it last, or else in `pool`.
pub(crate) fn effective_step(ctx: &Context, step: &Step, pool: Option<&PoolName>) -> EffectiveStep {
    let latest = step.latest();
    let part = latest.and_then(|attempt| attempt.parts.first());
    let granted = latest.zip(part);
    let granted = granted.map(|(attempt, part)| ctx.state().granted(step, attempt, part));
    let pool = latest.map(|attempt| &attempt.pool).or(pool);
    let asked = || {
        let asked = pool.map(|pool| ctx.state().asked_in(pool, &request(step)));
        asked.into_iter().flatten().take(1).collect()
    };
    let platform = granted.as_ref().and_then(|of| of.first().cloned());
    let platforms: Vec<PlatformName> = granted.unwrap_or_else(asked);
    let below = pool.and_then(|pool| step.provenance.at(pool, &platforms));
    EffectiveStep {
        pool: pool.cloned(),
        ..merged(&step.spec, below, &step.provenance, platform)
    }
}

/// The effective spec of a step in a pool if it were submitted now, and the step with all settings of the pool filled
/// in. The pool may exclude the step all the same: [`Core`] tells when it is submitted.
pub(crate) fn preview_effective_step(
    ctx: &Context,
    spec: &StepSpec,
    pool: &Pool,
) -> (StepSpec, EffectiveStep) {
    let request = Request::from_spec(placeholder_id(), 0, spec);
    let layers = ctx.state().layers_of(pool, &request);
    let below = layers.first();
    let mut filled = with_amounts(ctx.state(), pool, below, &request, spec).into_owned();
    let settings = of_settings(pool, ctx.state(), &request, &filled);
    fill(&pool.spec, &mut filled);
    let mut provenance = provenance_of(ctx, &request, spec, core::iter::once(pool));
    provenance.settings = settings;
    let merged = EffectiveStep {
        pool: Some(pool.name.clone()),
        ..merged(&filled, Some(below), &provenance, None)
    };
    (filled, merged)
}

/// The id of a step that is not submitted.
pub(crate) fn placeholder_id() -> StepId {
    StepId::new("none").expect("the word is a well-formed name")
}

fn merged(
    spec: &StepSpec,
    below: Option<&MergedTemplate>,
    provenance: &Provenance,
    platform: Option<PlatformName>,
) -> EffectiveStep {
    let mut all = below.cloned().unwrap_or_default();
    // Amounts are those of the preferred pool, wherever the step is granted.
    all.template.resources = DefaultResources::default();
    all.origins
        .retain(|field, _| !field.starts_with("resources."));
    all.put(&own(spec), &Origin::Step);
    fill_resources(&mut all.template.resources, provenance);
    fill_defaults(&mut all.template.resources, &provenance.settings, spec);
    let mut origins = all.origins;
    note_settings(&mut origins, spec);
    origins.extend(provenance.settings.clone());
    for field in &spec.inherited {
        if let Some(origin) = origins.get_mut(field) {
            *origin = Origin::Pipeline;
        }
    }
    EffectiveStep {
        pool: None,
        platform,
        template: all.template,
        origins,
    }
}

/// The step's own fields, as a layer.
fn own(spec: &StepSpec) -> Template {
    Template {
        env: spec.env.clone(),
        workdir: spec.workdir.clone(),
        resources: DefaultResources {
            gpu_count: spec.resources.gpu_count,
            cpu_count: spec.resources.cpu_count,
            memory: spec.resources.memory.clone(),
            storage: spec.resources.storage.clone(),
        },
        mounts: spec.mounts.clone(),
        ..Template::default()
    }
}

/// Adds the amounts that the step took from a template.
fn fill_resources(resources: &mut DefaultResources, provenance: &Provenance) {
    let from = |field: &str| {
        let origin = provenance.settings.get(field)?;
        let below = match origin {
            Origin::Template { pool, .. } => provenance.at(pool, &[]),
            Origin::Override { pool, platform } => provenance.at(pool, slice::from_ref(platform)),
            Origin::Step
            | Origin::Pipeline
            | Origin::Work
            | Origin::Pool { .. }
            | Origin::BuiltIn => None,
        };
        Some(&below?.template.resources)
    };
    if let Some(below) = from("resources.gpu_count") {
        resources.gpu_count = resources.gpu_count.or(below.gpu_count);
    }
    if let Some(below) = from("resources.cpu_count") {
        resources.cpu_count = resources.cpu_count.or(below.cpu_count);
    }
    if let Some(below) = from("resources.memory") {
        resources.memory = resources.memory.take().or_else(|| below.memory.clone());
    }
    if let Some(below) = from("resources.storage") {
        resources.storage = resources.storage.take().or_else(|| below.storage.clone());
    }
}

/// Adds the amounts that the step took from the defaults of a pool.
fn fill_defaults(resources: &mut DefaultResources, settings: &Origins, spec: &StepSpec) {
    let of_pool = |key| {
        let origin = settings.get(field_of(key));
        let amount = spec.request.get(key);
        origin
            .is_some_and(|origin| matches!(origin, Origin::Pool { .. }))
            .then_some(amount)
    };
    if let Some(mcpu) = of_pool(MCPU) {
        resources.cpu_count = Some(cores_of(mcpu));
    }
    if let Some(megabytes) = of_pool(MEMORY_MB) {
        resources.memory = bytes_text(megabytes);
    }
    if let Some(megabytes) = of_pool(STORAGE_MB) {
        resources.storage = bytes_text(megabytes);
    }
}

/// Notes the settings of the step, or else the built-in ones; settings of a pool are noted over them.
fn note_settings(origins: &mut Origins, spec: &StepSpec) {
    for setting in Setting::ALL {
        let origin = match spec.unset.contains(&setting) {
            true => Origin::BuiltIn,
            false => Origin::Step,
        };
        origins.insert(String::from(setting.as_str()), origin);
    }
    let says = spec.resources.preemptible.is_some() || spec.priority_class.is_some();
    let gives_way = match (says, spec.work) {
        (true, _) => Origin::Step,
        (false, Some(_)) => Origin::Work,
        (false, None) => Origin::BuiltIn,
    };
    origins.insert(String::from("preemptible"), gives_way);
}
