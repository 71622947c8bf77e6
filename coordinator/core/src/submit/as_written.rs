//! The spec of a queued step as its caller wrote it, without what a pool filled in, so that another pool can fill it in
//! anew.

use sluice_common::amount::{MCPU, MEMORY_MB, MGPU, ResourceKey, STORAGE_MB};
use sluice_common::limit::DEFAULT_GRACE;
use sluice_common::pool_rules::Setting;
use sluice_common::processors::CpuMode;
use sluice_common::step::{OnPreempt, StepSpec, WorkKind};

use crate::model::step::Step;
use crate::submit::default_amounts::field_of;

/// Amounts that templates and pools fill in.
const FILLED: [&str; 4] = [MGPU, MCPU, MEMORY_MB, STORAGE_MB];

/// The spec of a step as it was submitted.
pub(crate) fn as_written(step: &Step) -> StepSpec {
    let mut spec = StepSpec::clone(&step.spec);
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
    let filled = FILLED.into_iter();
    for key in filled.filter(|key| settings.contains_key(field_of(key))) {
        let key = ResourceKey::new(key).expect("a constant key is well-formed");
        let amount = own.get(key.as_str());
        spec.request.set(key, amount);
    }
    spec
}
