//! The one set of victims to which their order leads. `victims.rs` says of any set whether it is lawful; this file says
//! which one a waiter comes to by counting off on given hosts, and whether it could keep that.

use sluice_common::id::AttemptId;

use super::Judge;
use super::facts::Gone;
use super::victims::Taking;

impl<'a> Taking<'a> {
    /// The same, of other victims, and of them alone.
    fn of<'b>(&self, victims: &'b Gone) -> Taking<'b>
    where
        'a: 'b,
    {
        Taking {
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
        taking: Taking<'_>,
        ids: &[&AttemptId],
    ) -> bool {
        let mut order = ids.to_vec();
        order.sort_by_cached_key(|id| self.victim_order(taking, id));
        let counted = self.counted_off(taking, &order);
        let pruned = self.pruned(taking, &order, counted);
        self.cures(taking, &pruned) && self.stability(taking.of(&pruned)).is_err()
    }

    fn cures(&self, taking: Taking<'_>, set: &Gone) -> bool {
        self.preemption_cures_the_shortage(taking.of(set)).is_ok()
    }

    /// "Candidates are counted off against their subject's excess one by one."
    fn counted_off(&self, taking: Taking<'_>, order: &[&AttemptId]) -> Gone {
        let mut counted = Gone::new();
        for id in order {
            if self.cures(taking, &counted) {
                break;
            }
            let mut with = counted.clone();
            with.insert((*id).clone());
            let ground = self.victim_has_a_ground(taking.of(&with), id, &counted);
            if ground.is_ok() {
                counted = with;
            }
        }
        counted
    }

    /// "Sparing tried in reverse victim order: a victim without which the request still fits is spared."
    fn pruned(&self, taking: Taking<'_>, order: &[&AttemptId], mut set: Gone) -> Gone {
        for id in order.iter().rev() {
            let mut without = set.clone();
            without.remove(*id);
            if self.cures(taking, &without) {
                set = without;
            }
        }
        set
    }
}
