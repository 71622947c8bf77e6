//! The rules of a pool as they are shown. What may be written is checked by the core (`written/rules.rs`).

use sluice_common::api::{RulesWritten, TermsView};
use sluice_common::platform::terms::UnmatchedPlatform;
use sluice_common::rules::PoolRules;

/// As terms that a change is told in; what says nothing is left out.
pub(super) fn shown(rules: &PoolRules) -> TermsView {
    let RulesWritten {
        maintenance,
        defaults,
        max,
        on_preempt_allowed,
        validations,
        default_platform,
        unmatched_platform,
        templates,
    } = RulesWritten::from(rules);
    TermsView {
        maintenance,
        defaults: Some(defaults).filter(|it| !it.is_empty()),
        max: Some(max).filter(|it| !it.is_empty()),
        on_preempt_allowed: Some(on_preempt_allowed).filter(|it| !it.is_empty()),
        validations: Some(validations).filter(|it| !it.is_empty()),
        default_platform,
        unmatched_platform: Some(unmatched_platform).filter(|it| *it != UnmatchedPlatform::Reject),
        templates: Some(templates).filter(|it| !it.is_empty()),
        ..TermsView::default()
    }
}
