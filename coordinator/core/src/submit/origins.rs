//! Origins of the settings that a pool fills in, noted when they are filled in because the pool may change later.
//! Fields of the step itself, and built-in values, are not noted.

use alloc::string::String;

use sluice_common::pool_rules::Setting;
use sluice_common::step::{StepSpec, WorkKind};
use sluice_common::template::origin::{Origin, Origins};
use sluice_scheduler::Request;

use crate::model::pool::Pool;
use crate::state::State;
use crate::submit::default_amounts::{defaults_of, field_of};
use crate::submit::fill::{cpu_mode, is_open_ended};

/// Notes the origins of amounts, and of settings before they are filled in. The step has its amounts already.
pub(crate) fn of_settings(
    pool: &Pool,
    state: &State,
    request: &Request,
    spec: &StepSpec,
) -> Origins {
    let layers = state.layers_of(pool, request);
    let below = layers.first();
    let unsaid = spec.unset.iter();
    let settings = unsaid.filter_map(|setting| {
        let origin = of_setting(pool, spec, *setting)?;
        Some((String::from(setting.as_str()), origin))
    });
    let mut found: Origins = settings.collect();
    let is_set = [
        (
            "resources.gpu_count",
            spec.resources.gpu_count.is_some() || spec.resources.mig.is_some(),
        ),
        ("resources.cpu_count", spec.resources.cpu_count.is_some()),
        ("resources.memory", spec.resources.memory.is_some()),
        ("resources.storage", spec.resources.storage.is_some()),
    ];
    for (field, _) in is_set.into_iter().filter(|(_, is_set)| !is_set) {
        if let Some(origin) = below.origins.get(field) {
            found.insert(String::from(field), origin.clone());
        }
    }
    // Also those that were left out because the step could not start with them.
    for (key, _) in defaults_of(state, pool, below, spec) {
        let pool = pool.name.clone();
        found.insert(String::from(field_of(key)), Origin::Pool { pool });
    }
    found
}

fn of_setting(pool: &Pool, spec: &StepSpec, setting: Setting) -> Option<Origin> {
    let (defaults, max) = (&pool.spec.defaults, &pool.spec.max);
    let has_say = match setting {
        Setting::Timeout => {
            defaults.timeout.is_some() && !is_open_ended(spec.work) || max.timeout.is_some()
        }
        Setting::QueueTimeout => defaults.queue_timeout.is_some() || max.queue_timeout.is_some(),
        Setting::GracePeriod => {
            defaults.grace_period.is_some()
                || max.grace_period.is_some_and(|most| spec.grace > most)
        }
        Setting::Retries => {
            defaults.retries.is_some() && spec.work.is_none()
                || max.retries.is_some_and(|most| spec.retries > most)
        }
        Setting::OnPreempt => defaults.on_preempt.is_some() || !pool.spec.allows(spec.on_preempt),
        Setting::CpuMode => cpu_mode(&pool.spec, spec).is_some(),
    };
    if has_say {
        let pool = pool.name.clone();
        return Some(Origin::Pool { pool });
    }
    let by_work = setting == Setting::Retries && spec.work.is_some_and(has_retries);
    by_work.then_some(Origin::Work)
}

/// Whether the kind of work sets other retries than the built-in ones.
fn has_retries(work: WorkKind) -> bool {
    work.retries() != 0
}
