//! Kinds of steps: the parts that steps which were submitted alike have in common, kept once for all of them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use sluice_common::id::{PoolName, Subject, UserName};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::step::WorkKind;

use crate::model::step::Step;

/// The parts of a step that lists read and that many steps have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepKind {
    /// Subject of the step.
    pub subject: Subject,
    /// User who submitted it, if the caller was one.
    pub submitted_by: Option<UserName>,
    /// Kind of work that it does.
    pub work: Option<WorkKind>,
    /// Whether it is an allocation.
    pub is_allocation: bool,
    /// Labels set by the submitter.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// Order among the steps of its subject.
    pub priority: i64,
    /// The pool of the latest attempt.
    pub granted: Option<PoolName>,
    /// The only pool that it may run in.
    pub only_pool: Option<PoolName>,
    /// The subject whose policies it uses.
    pub policy_subject: Subject,
    /// Pools in which it may not run.
    pub excluded_pools: BTreeSet<PoolName>,
}

impl StepKind {
    pub(super) fn of(step: &Step) -> Self {
        let spec = &step.spec;
        Self {
            subject: spec.subject.clone(),
            submitted_by: spec.submitted_by.clone(),
            work: spec.work,
            is_allocation: spec.lease.is_some(),
            labels: spec.labels.clone(),
            priority: spec.priority,
            granted: granted(step).cloned(),
            only_pool: step.only_pool().cloned(),
            policy_subject: step.policy_subject().clone(),
            excluded_pools: step.excluded_pools.clone(),
        }
    }

    /// Whether it is still the kind of a step, which a grant or a move may have changed.
    pub(super) fn is_of(&self, step: &Step) -> bool {
        let spec = &step.spec;
        self.granted.as_ref() == granted(step)
            && self.only_pool.as_ref() == step.only_pool()
            && self.policy_subject == *step.policy_subject()
            && self.excluded_pools == step.excluded_pools
            && self.subject == spec.subject
            && self.submitted_by == spec.submitted_by
            && self.work == spec.work
            && self.labels == spec.labels
            && self.priority == spec.priority
    }
}

fn granted(step: &Step) -> Option<&PoolName> {
    step.latest().map(|attempt| &attempt.pool)
}

/// All kinds of the remembered steps, with the number of steps of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KindTable(BTreeMap<Arc<StepKind>, usize>);

impl KindTable {
    /// Counts one more step of a kind.
    pub(super) fn take(&mut self, kind: StepKind) -> Arc<StepKind> {
        let shared = match self.0.get_key_value(&kind) {
            Some((known, _)) => known.clone(),
            None => Arc::new(kind),
        };
        *self.0.entry(shared.clone()).or_default() += 1;
        shared
    }

    /// Counts one less.
    pub(super) fn release(&mut self, kind: &Arc<StepKind>) {
        if let Some(steps) = self.0.get_mut(kind) {
            *steps -= 1;
            if *steps == 0 {
                self.0.remove(kind);
            }
        }
    }
}
