//! Decides whether preempting one run would help a request that is short of something.

use sluice_common::amount::MGPU;
use sluice_common::id::{AttemptId, NodeName};

use crate::model::request::Run;
use crate::preemption::candidate_list::Candidate;
use crate::preemption::what_if::{Shortage, WhatIf};

impl Shortage<'_> {
    /// Whether preempting a run would help with a resource of which its subject (if it is another one) holds more
    /// than its share.
    pub(crate) fn is_helped_by_excess(
        &self,
        what_if: &WhatIf<'_, '_>,
        candidate: &Candidate<'_>,
    ) -> bool {
        let (id, run) = (candidate.id, candidate.run());
        let subject = &run.request.subject;
        let keys = self.keys(what_if, id, run);
        let mut keys =
            keys.filter(|(_, key)| !candidate.in_share.iter().any(|held| held.as_str() == *key));
        keys.any(|(node, key)| {
            what_if.excess(subject, key) > 0 && what_if.may_be_taken_for(candidate, node, key)
        })
    }

    /// Whether preempting a backfill run of the request would help.
    pub(crate) fn is_helped_by_backfill(
        &self,
        what_if: &WhatIf<'_, '_>,
        candidate: &Candidate<'_>,
    ) -> bool {
        let (id, run) = (candidate.id, candidate.run());
        let own = run.request.subject == what_if.in_pool.request.subject;
        let mut keys = self.keys(what_if, id, run);
        let may_be_taken = |(node, key)| what_if.may_be_taken_back_for(candidate, node, key);
        keys.any(may_be_taken) || (own && self.reduces_limit_use(run))
    }

    /// Whether preempting a run would help; `own` if it is of the request's own subject.
    pub(crate) fn is_helped_by(
        &self,
        what_if: &WhatIf<'_, '_>,
        own: bool,
        id: &AttemptId,
        run: &Run,
    ) -> bool {
        self.keys(what_if, id, run).next().is_some() || (own && self.reduces_limit_use(run))
    }

    fn reduces_limit_use(&self, run: &Run) -> bool {
        let mut limit = self.limit.iter();
        limit.any(|key| run.demand().get(key) > 0)
    }

    /// The resources that are short and that a run holds, each with the host on which it is short, or `None` if it is
    /// short in the pool.
    fn keys<'b>(
        &'b self,
        what_if: &'b WhatIf<'_, '_>,
        id: &'b AttemptId,
        run: &'b Run,
    ) -> impl Iterator<Item = (Option<&'b NodeName>, &'b str)> {
        let here = self
            .hosts
            .iter()
            .filter(|(node, _)| run.holding.contains(node));
        let of_hosts = here.flat_map(move |(node, missing)| {
            let each = what_if.in_pool.released_for(node, id, run.each());
            let missing = missing.iter().filter(|(_, missing)| *missing > 0);
            missing
                .map(|(key, _)| key)
                .filter(move |key| *key != MGPU || self.wants_gpus_of(run, node))
                .filter(move |key| each.get(key) > 0)
                .map(move |key| (Some(node), key))
        });
        let of_pool = self.pool.iter().copied();
        let of_pool = of_pool.filter(|key| run.demand().get(key) > 0);
        of_hosts.chain(of_pool.map(|key| (None, key)))
    }

    /// Whether GPUs of a run would do: any, or the exact ones that a resumption waits for.
    fn wants_gpus_of(&self, run: &Run, node: &NodeName) -> bool {
        let held = run.gpus_on(node);
        self.own_gpus
            .is_none_or(|own| held.is_some_and(|held| !own.is_disjoint(held)))
    }
}
