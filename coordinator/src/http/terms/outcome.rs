//! Results of changes of documents in the API's form: each with the thing before and after.

use std::mem::take;

use coordinator_core::{Applied, Outcome, Terms, Wanted, WantedPool};
use sluice_common::api::{
    ApplyView, ChangeOutcome, DocumentKind, InUseView, PreemptedView, SpecChangeView, SpecView,
};
use sluice_common::cluster::ClusterSpec;
use sluice_common::validation::ValidationSpec;

use super::rights;

pub(super) fn view_of(dry_run: bool, wanted: &[Wanted], applied: Applied) -> ApplyView {
    let Applied {
        outcomes,
        uses,
        exposed,
        preempted,
        rejected,
    } = applied;
    let changes = wanted.iter().zip(outcomes);
    let uses = uses.into_iter().map(|it| InUseView {
        message: it.to_string(),
        steps: it.steps.iter().map(ToString::to_string).collect(),
    });
    let preempted = preempted.into_iter().map(|(step, by)| PreemptedView {
        step: step.to_string(),
        by: by.to_string(),
    });
    ApplyView {
        dry_run,
        changes: changes.map(|(wanted, it)| change(wanted, it)).collect(),
        in_use: uses.collect(),
        exposed: exposed.iter().map(ToString::to_string).collect(),
        preempted: preempted.collect(),
        rejected: rejected.iter().map(ToString::to_string).collect(),
    }
}

fn change(wanted: &Wanted, outcome: Outcome) -> SpecChangeView {
    let mut name = None;
    let (kind, pool, subject) = match wanted {
        Wanted::Template { .. } | Wanted::NoTemplate { .. } => (DocumentKind::Template, None, None),
        Wanted::Access { change } => (rights::kind(change), None, None),
        Wanted::Cluster { .. } => (DocumentKind::Cluster, None, None),
        Wanted::Platform { pool, platform, .. } | Wanted::NoPlatform { pool, platform } => {
            name = Some(platform.to_string());
            (DocumentKind::Platform, Some(pool), None)
        }
        Wanted::Pool { pool, .. } | Wanted::NoPool { pool } => {
            (DocumentKind::Pool, Some(pool), None)
        }
        Wanted::Policy { pool, subject, .. } | Wanted::NoPolicy { pool, subject } => {
            (DocumentKind::Policy, Some(pool), Some(subject))
        }
        Wanted::Validation { .. } | Wanted::NoValidation { .. } => {
            (DocumentKind::Validation, None, None)
        }
    };
    let word = match (&outcome.before, &outcome.after) {
        (None, _) => ChangeOutcome::Created,
        (Some(_), None) => ChangeOutcome::Deleted,
        (before, after) if before == after => ChangeOutcome::Unchanged,
        (Some(_), Some(_)) => ChangeOutcome::Changed,
    };
    SpecChangeView {
        kind,
        pool: pool.map(ToString::to_string),
        subject: subject.map(ToString::to_string),
        name: name_of(wanted).or_else(|| rights::name(wanted)),
        platform: name,
        outcome: word,
        before: outcome.before.map(terms),
        after: outcome.after.map(terms),
    }
}

fn terms(terms: Terms) -> SpecView {
    match terms {
        Terms::Pool(terms) => {
            let WantedPool {
                mut spec,
                platforms,
            } = *terms;
            SpecView::Pool {
                capacity: take(&mut spec.capacity),
                platforms: platforms.unwrap_or_default(),
                spec: Box::new(spec),
            }
        }
        Terms::Validation(ValidationSpec {
            description,
            assertions,
        }) => SpecView::Validation {
            description,
            assertions,
        },
        Terms::Platform(mut spec) => SpecView::Platform {
            description: take(&mut spec.description),
            spec,
        },
        Terms::Template(template) => SpecView::Template { template },
        Terms::Cluster(ClusterSpec {
            default_pool,
            subjects,
        }) => SpecView::Cluster {
            default_pool,
            subjects,
        },
        Terms::Role(role) => SpecView::Role { role },
        Terms::Binding(binding) => SpecView::Binding { binding },
        Terms::Policy(spec) => SpecView::Policy(spec),
    }
}

/// Returns the name of the changed document.
fn name_of(wanted: &Wanted) -> Option<String> {
    match wanted {
        Wanted::Validation { validation, .. } | Wanted::NoValidation { validation } => {
            Some(validation.to_string())
        }
        Wanted::Template { template, .. } | Wanted::NoTemplate { template } => {
            Some(template.to_string())
        }
        _ => None,
    }
}
