//! The steps that wait for one pool, by place. Steps that ask hosts for the same units share their fate, so they form
//! a class, and whoever goes through the queue looks at the first of each class only.

use alloc::collections::{BTreeMap, BTreeSet};

use sluice_common::id::StepId;

use super::HostUnits;

/// One pool's queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    by_place: BTreeMap<u64, StepId>,
    classes: BTreeMap<HostUnits, BTreeSet<u64>>,
    /// The first place of each class.
    heads: BTreeSet<u64>,
}

impl Queue {
    pub(crate) fn insert(&mut self, place: u64, step: StepId, request: HostUnits) {
        self.by_place.insert(place, step);
        let class = self.classes.entry(request).or_default();
        let before = class.first().copied();
        class.insert(place);
        self.move_head(before, class_head(&self.classes, request));
    }

    pub(crate) fn remove(&mut self, place: u64, request: HostUnits) {
        self.by_place.remove(&place);
        let Some(class) = self.classes.get_mut(&request) else {
            return;
        };
        let before = class.first().copied();
        class.remove(&place);
        if class.is_empty() {
            self.classes.remove(&request);
        }
        self.move_head(before, class_head(&self.classes, request));
    }

    fn move_head(&mut self, before: Option<u64>, after: Option<u64>) {
        if let Some(place) = before {
            self.heads.remove(&place);
        }
        self.heads.extend(after);
    }

    /// The first of a class at `from` or behind it.
    pub(crate) fn next_head(&self, from: u64) -> Option<(u64, &StepId)> {
        let place = *self.heads.range(from..).next()?;
        self.by_place.get_key_value(&place).map(|(p, id)| (*p, id))
    }

    /// Whether the step at `place` is the first of its class.
    pub(crate) fn is_head(&self, place: u64) -> bool {
        self.heads.contains(&place)
    }

    /// Every step, first come first.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &StepId> {
        self.by_place.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_place.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }
}

fn class_head(classes: &BTreeMap<HostUnits, BTreeSet<u64>>, request: HostUnits) -> Option<u64> {
    classes.get(&request)?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;
    use alloc::vec::Vec;
    use sluice_common::amount::{Amounts, GPU};

    fn ask(gpus: u64) -> HostUnits {
        HostUnits::of(&Amounts::new().with(GPU, gpus))
    }

    fn heads(queue: &Queue) -> Vec<u64> {
        let mut from = 0;
        let mut seen = vec![];
        while let Some((place, _)) = queue.next_head(from) {
            seen.push(place);
            from = place + 1;
        }
        seen
    }

    #[test]
    fn only_the_first_of_each_class_is_looked_at_and_a_requeued_one_leads_again() {
        let mut queue = Queue::default();
        for (place, gpus) in [(3, 1), (5, 1), (7, 2), (9, 1)] {
            let id = StepId::new(format!("s{place}")).unwrap();
            queue.insert(place, id, ask(gpus));
        }
        assert_eq!(heads(&queue), [3, 7]);
        queue.remove(3, ask(1));
        assert_eq!(heads(&queue), [5, 7]);
        queue.remove(7, ask(2));
        assert_eq!(heads(&queue), [5]);
        queue.insert(3, StepId::new("s3").unwrap(), ask(1));
        assert_eq!(heads(&queue), [3]);
        assert_eq!(queue.len(), 3);
        for place in [3, 5, 9] {
            queue.remove(place, ask(1));
        }
        assert_eq!(queue, Queue::default());
    }
}
