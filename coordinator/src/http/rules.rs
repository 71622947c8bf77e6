//! The rules of a pool as they are shown. What may be written is checked by the core (`written/rules.rs`).

use sluice_common::api::{PoolDefaults, PoolMaxima, TermsView};
use sluice_common::platform::terms::UnmatchedPlatform;
use sluice_common::rules::PoolRules;

/// As terms that a change is told in; what says nothing is left out.
pub(super) fn shown(rules: PoolRules) -> TermsView {
    let templates: Vec<String> = rules.templates.iter().map(ToString::to_string).collect();
    TermsView {
        maintenance: rules.maintenance,
        defaults: Some(PoolDefaults::from(&rules.defaults)).filter(|it| !it.is_empty()),
        max: Some(PoolMaxima::from(&rules.max)).filter(|it| !it.is_empty()),
        on_preempt_allowed: Some(rules.on_preempt_allowed).filter(|it| !it.is_empty()),
        validations: Some(rules.validations).filter(|it| !it.is_empty()),
        default_platform: rules.default_platform,
        unmatched_platform: Some(rules.unmatched_platform)
            .filter(|it| *it != UnmatchedPlatform::Reject),
        templates: Some(templates).filter(|it| !it.is_empty()),
        ..TermsView::default()
    }
}
