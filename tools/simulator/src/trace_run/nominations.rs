//! Watches starts within reserved shares: jobs that arrived within their subject's reserved share, and how long they
//! are kept waiting.

use std::collections::BTreeMap;

use coordinator_core::NewStep;
use sluice_common::amount::Amounts;
use sluice_common::id::{StepId, Subject};
use sluice_scheduler::Request;

use super::TraceRun;

/// The queued steps that were within their subject's reserved share on arrival.
#[derive(Debug, Default)]
pub(super) struct NominationWatch {
    of: BTreeMap<StepId, (Subject, Amounts)>,
    /// Sum of their resources by subject.
    sums: BTreeMap<Subject, Amounts>,
}

impl NominationWatch {
    pub(super) fn make(&mut self, step: StepId, subject: Subject, demand: Amounts) {
        self.sums.entry(subject.clone()).or_default().add(&demand);
        self.of.insert(step, (subject, demand));
    }

    /// Removes a step that is no longer queued.
    pub(super) fn end(&mut self, step: &StepId) {
        let Some((subject, demand)) = self.of.remove(step) else {
            return;
        };
        if let Some(sum) = self.sums.get_mut(&subject) {
            sum.subtract(&demand);
        }
    }
}

impl TraceRun {
    /// The resources of a step, if they fit wholly into the part of its subject's reserved share, in any of its
    /// pools, that is unused and not needed by earlier such steps.
    pub(super) fn demand_in_share(&self, step: &NewStep) -> Option<Amounts> {
        let request = self.core.request_of(step);
        let promised = self.promises.sums.get(&step.spec.subject);
        self.is_in_share(&request, promised)
            .then_some(request.demand)
    }

    /// The watched steps that are queued although their resources are unused in their subject's reserved share. If
    /// the subject uses the share for other steps by now, they do not count.
    pub fn kept_waiting(&self) -> Vec<StepId> {
        let scheduler = self.state().scheduler();
        let promised = self.promises.of.keys();
        let mut waiting: Vec<&Request> = promised
            .filter_map(|step| scheduler.request(step))
            .collect();
        waiting.sort_unstable_by_key(|request| request.place);
        let mut ahead: BTreeMap<&Subject, Amounts> = BTreeMap::new();
        waiting.retain(|request| {
            let ahead = ahead.entry(&request.subject).or_default();
            let fits = self.is_in_share(request, Some(ahead));
            if fits {
                ahead.add(&request.demand);
            }
            fits
        });
        waiting.into_iter().map(|it| it.step.clone()).collect()
    }

    /// Whether a request is within its subject's reserved share in any of its pools, together with other requests of
    /// the subject.
    fn is_in_share(&self, request: &Request, others: Option<&Amounts>) -> bool {
        let mut asked = request.clone();
        if let Some(others) = others {
            asked.demand.add(others);
        }
        let scheduler = self.state().scheduler();
        let mut pools = scheduler.pools_for(&asked).into_iter();
        pools.any(|(_, pool)| scheduler.is_in_share(pool, &asked))
    }
}
