//! Results of changes of documents in the API's form: each with the thing before and after.

use std::mem::take;

use coordinator_core::{Applied, AppliedChange, CurrentTerms, Desired, DesiredPool};
use sluice_common::api::{
    ApplyView, CarvePlanView, ChangeOutcome, DocumentKind, InUseView, PreemptedView,
    SpecChangeView, SpecView,
};
use sluice_common::cluster::ClusterSpec;
use sluice_common::topology::TopologySpec;
use sluice_common::validation::ValidationSpec;

use super::rights;

pub(super) fn view_of(dry_run: bool, wanted: &[Desired], applied: Applied) -> ApplyView {
    let Applied {
        outcomes,
        uses,
        exposed,
        preempted,
        rejected,
        carvings,
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
    let carvings = carvings.into_iter().map(|plan| CarvePlanView {
        node: plan.node.map(|node| node.to_string()),
        message: plan.message,
    });
    ApplyView {
        dry_run,
        changes: changes.map(|(wanted, it)| change(wanted, it)).collect(),
        in_use: uses.collect(),
        exposed: exposed.iter().map(ToString::to_string).collect(),
        preempted: preempted.collect(),
        rejected: rejected.iter().map(ToString::to_string).collect(),
        carvings: carvings.collect(),
    }
}

fn change(wanted: &Desired, outcome: AppliedChange) -> SpecChangeView {
    let mut name = None;
    let (kind, pool, subject) = match wanted {
        Desired::Template { .. } | Desired::NoTemplate { .. } => {
            (DocumentKind::Template, None, None)
        }
        Desired::Access { change } => (rights::kind(change), None, None),
        Desired::Cluster { .. } => (DocumentKind::Cluster, None, None),
        Desired::Topology { .. } => (DocumentKind::Topology, None, None),
        Desired::Platform { pool, platform, .. } | Desired::NoPlatform { pool, platform } => {
            name = Some(platform.to_string());
            (DocumentKind::Platform, Some(pool), None)
        }
        Desired::Pool { pool, .. } | Desired::NoPool { pool } => {
            (DocumentKind::Pool, Some(pool), None)
        }
        Desired::Policy { pool, subject, .. } | Desired::NoPolicy { pool, subject } => {
            (DocumentKind::Policy, Some(pool), Some(subject))
        }
        Desired::Validation { .. } | Desired::NoValidation { .. } => {
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

fn terms(terms: CurrentTerms) -> SpecView {
    match terms {
        CurrentTerms::Pool(terms) => {
            let DesiredPool {
                mut spec,
                platforms,
            } = *terms;
            SpecView::Pool {
                capacity: take(&mut spec.capacity),
                platforms: platforms.unwrap_or_default(),
                spec: Box::new(spec),
            }
        }
        CurrentTerms::Validation(ValidationSpec {
            description,
            assertions,
        }) => SpecView::Validation {
            description,
            assertions,
        },
        CurrentTerms::Platform(mut spec) => SpecView::Platform {
            description: take(&mut spec.description),
            spec,
        },
        CurrentTerms::Template(template) => SpecView::Template { template },
        CurrentTerms::Cluster(ClusterSpec {
            default_pool,
            subjects,
        }) => SpecView::Cluster {
            default_pool,
            subjects,
        },
        CurrentTerms::Topology(TopologySpec { levels }) => SpecView::Topology { levels },
        CurrentTerms::Role(role) => SpecView::Role { role },
        CurrentTerms::Binding(binding) => SpecView::Binding { binding },
        CurrentTerms::Policy(spec) => SpecView::Policy(spec),
    }
}

/// Returns the name of the changed document.
fn name_of(wanted: &Desired) -> Option<String> {
    match wanted {
        Desired::Validation { validation, .. } | Desired::NoValidation { validation } => {
            Some(validation.to_string())
        }
        Desired::Template { template, .. } | Desired::NoTemplate { template } => {
            Some(template.to_string())
        }
        _ => None,
    }
}
