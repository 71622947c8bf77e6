//! The one set of victims that victim order leads to. `victims.rs` judges any set; this file computes which one a
//! request arrives at on given hosts, and whether it could keep it.

use sluice_common::id::AttemptId;

use super::Judge;
use super::facts::RemovedRuns;
use super::victims::JudgedPreemption;

impl<'a> JudgedPreemption<'a> {
    /// The same for other victims only.
    pub(super) fn of<'b>(&self, victims: &'b RemovedRuns) -> JudgedPreemption<'b>
    where
        'a: 'b,
    {
        JudgedPreemption {
            victims,
            awaits: victims,
            ..*self
        }
    }
}

impl Judge {
    /// "Else it would be taken back at once; then nobody is touched": whether the set that cures the shortage when all are
    /// counted off in order, and that is then pruned, is one that a waiter who must borrow may not take. Each of it alone
    /// may be one that it could keep.
    pub(super) fn set_by_order_is_taken_back(
        &self,
        preemption: JudgedPreemption<'_>,
        ids: &[&AttemptId],
    ) -> bool {
        let mut order = ids.to_vec();
        order.sort_by_cached_key(|id| self.victim_order(preemption, id));
        let counted = self.counted_off(preemption, &order);
        let pruned = self.pruned(preemption, &order, counted);
        self.cures(preemption, &pruned) && self.stability(preemption.of(&pruned)).is_err()
    }

    fn cures(&self, preemption: JudgedPreemption<'_>, set: &RemovedRuns) -> bool {
        self.preemption_cures_the_shortage(preemption.of(set))
            .is_ok()
    }

    /// "Candidates are counted off against their subject's excess one by one."
    fn counted_off(&self, preemption: JudgedPreemption<'_>, order: &[&AttemptId]) -> RemovedRuns {
        let mut counted = RemovedRuns::new();
        for id in order {
            if self.cures(preemption, &counted) {
                break;
            }
            let mut with = counted.clone();
            with.insert((*id).clone());
            let ground = self.victim_has_a_ground(preemption.of(&with), id, &counted);
            if ground.is_ok() {
                counted = with;
            }
        }
        counted
    }

    /// "Sparing tried in reverse victim order: a victim without which the request still fits is spared."
    fn pruned(
        &self,
        preemption: JudgedPreemption<'_>,
        order: &[&AttemptId],
        mut set: RemovedRuns,
    ) -> RemovedRuns {
        for id in order.iter().rev() {
            let mut without = set.clone();
            without.remove(*id);
            if self.cures(preemption, &without) {
                set = without;
            }
        }
        set
    }
}
