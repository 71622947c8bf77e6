//! Fills in the amounts that a step leaves open: by the templates under it, else by the defaults of its pool.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use sluice_common::amount::table::key_name;
use sluice_common::amount::{MCPU, MEMORY_MB, MGPU, STORAGE_MB};
use sluice_common::id::{PoolName, StepId};
use sluice_common::request::ResourceSettings;
use sluice_common::step::StepSpec;
use sluice_common::template::origin::{MergedTemplate, Origin};
use sluice_reasons::Uncounted;
use sluice_scheduler::Request;

use crate::model::pool::Pool;
use crate::model::step::Step;
use crate::state::State;
use crate::submit::layers::over_templates;

/// A default amount, in the unit of its key.
type DefaultAmount = (&'static str, u64);

/// The step with all amounts that it gets in a pool. A step with GPUs gets none of the pool's defaults, because the
/// number of GPUs bounds how many such steps run. A default with which the step could never start is left out: it
/// excludes no step.
pub(crate) fn with_amounts<'a>(
    state: &State,
    pool: &Pool,
    below: &MergedTemplate,
    request: &Request,
    spec: &'a StepSpec,
) -> Cow<'a, StepSpec> {
    let filled = over_templates(below, spec);
    let mut taken = defaults_of(state, pool, below, &filled);
    let Some(known) = state.scheduler().pool(&pool.name) else {
        return filled;
    };
    let amounts = |taken: &[DefaultAmount]| {
        let own = filled.request.clone();
        let all = taken.iter();
        all.fold(own, |all, (key, amount)| all.with(key, *amount))
    };
    let is_feasible = |taken: &[DefaultAmount]| {
        let asks = request.with_amounts(&amounts(taken));
        let never = state
            .scheduler()
            .infeasible(known, &asks, pool.may_wait_for_hosts(spec));
        never.is_none()
    };
    while !taken.is_empty() && !is_feasible(&taken) {
        let without = |at: &usize| {
            let mut rest = taken.clone();
            rest.remove(*at);
            is_feasible(&rest)
        };
        let at_fault = (0..taken.len()).find(without);
        taken.remove(at_fault.unwrap_or(0));
    }
    match taken.is_empty() {
        true => filled,
        false => Cow::Owned(StepSpec {
            request: amounts(&taken),
            ..filled.into_owned()
        }),
    }
}

/// The defaults of a pool for the amounts that neither a step nor the templates under it state. A step that is not
/// preemptible gets those of keys that policies count: what it holds of others may belong to GPUs of hosts to come.
pub(crate) fn defaults_of(
    state: &State,
    pool: &Pool,
    below: &MergedTemplate,
    spec: &StepSpec,
) -> Vec<DefaultAmount> {
    // What a step inside an allocation leaves open is a part of that.
    if spec.request.get(MGPU) > 0 || spec.inside.is_some() {
        return Vec::new();
    }
    let open = |(key, amount): &DefaultAmount| {
        *amount > 0 && !states(&spec.resources, key) && !below.origins.contains_key(field_of(key))
    };
    let known = state.scheduler().pool(&pool.name);
    let may_hold = |key: &str| spec.preemptible || known.is_some_and(|it| it.is_metered(key));
    // Without hosts, what the pool does not declare is not counted.
    let is_counted =
        |key: &str| !pool.is_hostless() || known.is_some_and(|it| it.declared(key).is_some());
    let defaults = pool.spec.defaults.amounts();
    let open = defaults.into_iter().filter(open);
    open.filter(|(key, _)| may_hold(key) && is_counted(key))
        .collect()
}

/// Whether a step states its amount of a key, by a field or as a custom resource.
pub(crate) fn states(resources: &ResourceSettings, key: &str) -> bool {
    let custom = &resources.pool_resources;
    let by_field = match key {
        MCPU => resources.cpu_count.is_some(),
        MEMORY_MB => resources.memory.is_some(),
        STORAGE_MB => resources.storage.is_some(),
        _ => false,
    };
    by_field || custom.contains_key(key) || custom.contains_key(key_name(key))
}

/// The field of a step that states the amount of a key.
pub(crate) fn field_of(key: &str) -> &'static str {
    match key {
        MGPU => "resources.gpu_count",
        MCPU => "resources.cpu_count",
        MEMORY_MB => "resources.memory",
        STORAGE_MB => "resources.storage",
        _ => "resources.pool_resources",
    }
}

/// The pool whose default a stored step has for a key.
pub(crate) fn default_of(state: &State, step: &StepId, key: &str) -> Option<PoolName> {
    state.step(step).and_then(|step| taken_from(step, key))
}

/// The same for a step.
pub(crate) fn taken_from(step: &Step, key: &str) -> Option<PoolName> {
    match step.provenance.settings.get(field_of(key))? {
        Origin::Pool { pool } => Some(pool.clone()),
        Origin::Step
        | Origin::Pipeline
        | Origin::Work
        | Origin::Override { .. }
        | Origin::Template { .. }
        | Origin::BuiltIn => None,
    }
}

/// The cores and memory of which a step without GPUs holds nothing: it states 0, or the default was left out.
pub fn uncounted(step: &Step) -> Vec<Uncounted> {
    if step.state.is_terminal() || step.spec.request.get(MGPU) > 0 {
        return Vec::new();
    }
    let keys = [MCPU, MEMORY_MB].into_iter();
    let held_none = keys.filter(|key| step.spec.request.get(key) == 0);
    let told = held_none.filter(|key| {
        let filled = step.provenance.settings.contains_key(field_of(key));
        filled || states(&step.spec.resources, key)
    });
    let told = told.map(|key| Uncounted {
        key,
        default_of: taken_from(step, key),
    });
    told.collect()
}
