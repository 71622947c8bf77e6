//! The spec of a queued step as its caller wrote it, without what a pool filled in, so that another pool can fill it in
//! anew.

use sluice_common::amount::{MCPU, MEMORY_MB, MGPU, ResourceKey, STORAGE_MB};
use sluice_common::limit::DEFAULT_GRACE;
use sluice_common::pool_rules::Setting;
use sluice_common::processors::CpuMode;
use sluice_common::step::{OnPreempt, StepSpec, WorkKind};

use crate::model::step::Step;

/// Amounts that templates fill in, by the field that a step leaves out for it.
const FILLED: [(&str, &str); 4] = [
    ("resources.gpu_count", MGPU),
    ("resources.cpu_count", MCPU),
    ("resources.memory", MEMORY_MB),
    ("resources.storage", STORAGE_MB),
];

/// The spec of a step as it was submitted.
pub(crate) fn as_written(step: &Step) -> StepSpec {
    let mut spec = step.spec.clone();
    for setting in spec.unset.clone() {
        match setting {
            Setting::Timeout => spec.timeout = None,
            Setting::QueueTimeout => spec.queue_timeout = None,
            Setting::GracePeriod => spec.grace = DEFAULT_GRACE,
            Setting::Retries => spec.retries = spec.work.map_or(0, WorkKind::retries),
            Setting::OnPreempt => spec.on_preempt = OnPreempt::default(),
            Setting::CpuMode => spec.cpu_mode = CpuMode::default(),
        }
    }
    let own = spec.resources.demand().unwrap_or_default();
    let settings = &step.provenance.settings;
    for (_, key) in FILLED
        .iter()
        .filter(|(field, _)| settings.contains_key(*field))
    {
        let key = ResourceKey::new(*key).expect("a constant key is well-formed");
        let amount = own.get(key.as_str());
        spec.request.set(key, amount);
    }
    spec
}
