//! What a run promises to steps that wait: those that came within their subject's reserved share. Whoever plays it
//! asks when a step comes, and which of them are kept waiting.

use std::collections::BTreeMap;

use coordinator_core::NewStep;
use sluice_common::amount::Amounts;
use sluice_common::id::{StepId, Subject};
use sluice_scheduler::Request;

use super::TraceRun;

/// What was promised to steps that wait: those that came within their subject's reserved share.
#[derive(Debug, Default)]
pub(super) struct NominationWatch {
    of: BTreeMap<StepId, (Subject, Amounts)>,
    /// All that is promised to each subject.
    sums: BTreeMap<Subject, Amounts>,
}

impl NominationWatch {
    pub(super) fn make(&mut self, step: StepId, subject: Subject, demand: Amounts) {
        self.sums.entry(subject.clone()).or_default().add(&demand);
        self.of.insert(step, (subject, demand));
    }

    /// It waits no longer.
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
    /// What a step asks for, where that would fit wholly into what is unused of its subject's reserved share and promised to
    /// nobody, in any of its pools.
    pub(super) fn demand_in_share(&self, step: &NewStep) -> Option<Amounts> {
        let request = self.core.request_of(step);
        let promised = self.promises.sums.get(&step.spec.subject);
        self.is_in_share(&request, promised)
            .then_some(request.demand)
    }

    /// The steps that wait though what they ask for is unused of their subject's reserved share, of those that came within
    /// it. What the subject uses of it otherwise by now is kept from nobody.
    pub fn kept_waiting(&self) -> Vec<StepId> {
        let market = self.state().scheduler();
        let promised = self.promises.of.keys();
        let mut waiting: Vec<&Request> = promised.filter_map(|step| market.request(step)).collect();
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

    /// Whether a request is within its subject's reserved share in any of its pools, beside what others of the subject ask.
    fn is_in_share(&self, request: &Request, beside: Option<&Amounts>) -> bool {
        let mut asked = request.clone();
        if let Some(beside) = beside {
            asked.demand.add(beside);
        }
        let market = self.state().scheduler();
        let mut pools = market.pools_for(&asked).into_iter();
        pools.any(|(_, pool)| market.is_in_share(pool, &asked))
    }
}
