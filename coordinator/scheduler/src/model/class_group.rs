//! Groups of waiting requests of one subject that differ only in how much they ask for beside GPUs and in how long they may
//! run. Each group knows the least that is asked for, of all of it and of parts, so that a decision can check many
//! requests by one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::iter;

use sluice_common::amount::{Amounts, ResourceKey, STEP_RUN};
use sluice_common::time::Span;

use crate::model::request::{Request, RequestClass};
use crate::model::resources::HostResources;

/// Most classes of a part; few in tests, so that small queues have several parts.
const MAX_CLASSES_OF_PART: usize = if cfg!(test) { 3 } else { 64 };

/// Classes of requests that differ only in amounts other than GPUs, and in their time limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassGroup {
    /// The classes in their order, which is by amounts; no part is empty.
    parts: Vec<GroupPart>,
    /// Places of all requests of these classes.
    places: BTreeSet<u64>,
    count: ClassCount,
}

/// Amounts that classes ask for, and their time limits.
#[derive(Clone, Debug, Default)]
struct ClassCount {
    /// Number of classes that ask for each amount of a resource.
    amounts: BTreeMap<ResourceKey, BTreeMap<u64, usize>>,
    /// Number of classes with each time limit.
    time_limits: BTreeMap<Span, usize>,
}

/// Consecutive classes of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupPart {
    /// Places of the requests of each class.
    classes: BTreeMap<RequestClass, BTreeSet<u64>>,
    count: ClassCount,
    /// The first place of all.
    first_place: u64,
}

// How classes are split into parts depends on the order in which they came, and decides nothing.
impl PartialEq for ClassGroup {
    fn eq(&self, other: &Self) -> bool {
        let same = self.places == other.places;
        same && self.classes().eq(other.classes())
    }
}

impl Eq for ClassGroup {}

impl ClassCount {
    fn insert(&mut self, class: &RequestClass) {
        let (demand, time_limit) = class.size();
        for (key, asked) in demand.iter() {
            let amounts = self.amounts.entry(key.clone()).or_default();
            *amounts.entry(asked).or_default() += 1;
        }
        if let Some(limit) = time_limit {
            *self.time_limits.entry(limit).or_default() += 1;
        }
    }

    fn remove(&mut self, class: &RequestClass) {
        let (demand, time_limit) = class.size();
        for (key, asked) in demand.iter() {
            if let Some(amounts) = self.amounts.get_mut(key) {
                remove_one(amounts, asked);
            }
        }
        if let Some(limit) = time_limit {
            remove_one(&mut self.time_limits, limit);
        }
    }
}

impl ClassGroup {
    pub(crate) fn insert(&mut self, class: RequestClass, place: u64) {
        self.places.insert(place);
        let at = self.part_for(&class);
        if self.parts.is_empty() {
            self.parts.push(GroupPart::default());
        }
        let Some(part) = self.parts.get_mut(at) else {
            return;
        };
        if !part.classes.contains_key(&class) {
            self.count.insert(&class);
        }
        part.insert(class, BTreeSet::from([place]));
        if part.classes.len() > MAX_CLASSES_OF_PART {
            let rest = part.split();
            self.parts.insert(at + 1, rest);
        }
    }

    pub(crate) fn remove(&mut self, class: &RequestClass, place: u64) {
        self.places.remove(&place);
        let at = self.part_for(class);
        let Some(part) = self.parts.get_mut(at) else {
            return;
        };
        if part.remove(class, place) {
            self.count.remove(class);
        }
        if part.classes.is_empty() {
            self.parts.remove(at);
        }
    }

    /// The part that has a class, or would have it.
    fn part_for(&self, class: &RequestClass) -> usize {
        let begins = |part: &GroupPart| {
            part.classes
                .first_key_value()
                .is_some_and(|(first, _)| first <= class)
        };
        self.parts.partition_point(begins).saturating_sub(1)
    }

    /// The classes in parts, in order.
    pub(crate) fn parts(&self) -> &[GroupPart] {
        &self.parts
    }

    /// Each class with the places of its requests.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (&RequestClass, &BTreeSet<u64>)> {
        self.parts.iter().flat_map(|part| &part.classes)
    }

    /// The places of the requests of a class.
    pub(crate) fn places_of(&self, class: &RequestClass) -> Option<&BTreeSet<u64>> {
        self.parts.get(self.part_for(class))?.classes.get(class)
    }

    /// Number of classes.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.classes.len()).sum()
    }

    /// Places of all its requests, in order.
    pub(crate) fn places(&self) -> &BTreeSet<u64> {
        &self.places
    }

    /// Whether all its requests ask for the same amount of each resource that `counts`.
    pub(crate) fn is_alike_in(&self, counts: impl Fn(&str) -> bool) -> bool {
        let amounts = self.count.amounts.iter();
        let mut counted = amounts.filter(|(key, _)| counts(key.as_str()));
        counted.all(|(_, amounts)| amounts.len() == 1)
    }

    /// A request that asks for no more of anything than any of the group, runs no longer, may run in pools of any age, goes
    /// before them, and is otherwise like `request`, which is one of them.
    pub(crate) fn least(&self, request: &Request) -> Request {
        least_of(iter::once(&self.count), self.places.first(), request)
    }

    /// A request that asks for as much as any of the group on each host, and is otherwise like `request`, which is one of
    /// them.
    pub(crate) fn most(&self, request: &Request) -> Request {
        most_of(iter::once(&self.count), request)
    }
}

impl GroupPart {
    fn insert(&mut self, class: RequestClass, places: BTreeSet<u64>) {
        let first = places.first().copied().unwrap_or(u64::MAX);
        self.first_place = match self.classes.is_empty() {
            true => first,
            false => self.first_place.min(first),
        };
        if let Some(known) = self.classes.get_mut(&class) {
            known.extend(places);
            return;
        }
        self.count.insert(&class);
        self.classes.insert(class, places);
    }

    /// Removes a request; returns whether it was the last of its class.
    fn remove(&mut self, class: &RequestClass, place: u64) -> bool {
        let Some(places) = self.classes.get_mut(class) else {
            return false;
        };
        let was_there = places.remove(&place);
        let is_over = was_there && places.is_empty();
        if is_over {
            self.count.remove(class);
            self.classes.remove(class);
        }
        if place == self.first_place {
            let firsts = self.classes.values().filter_map(BTreeSet::first);
            self.first_place = firsts.min().copied().unwrap_or_default();
        }
        is_over
    }

    /// Splits off the second half of its classes.
    fn split(&mut self) -> Self {
        let mut halves = [Self::default(), Self::default()];
        let middle = self.classes.len() / 2;
        let classes = core::mem::take(&mut self.classes).into_iter();
        for (at, (class, places)) in classes.enumerate() {
            halves[usize::from(at >= middle)].insert(class, places);
        }
        let [first, second] = halves;
        *self = first;
        second
    }

    /// The first place of its requests.
    pub(crate) fn first_place(&self) -> u64 {
        self.first_place
    }

    /// Places of the requests of each class.
    pub(crate) fn places_by_class(&self) -> impl Iterator<Item = &BTreeSet<u64>> {
        self.classes.values()
    }
}

/// The same as [`ClassGroup::least`], of some parts of a group.
pub(crate) fn least_of_parts(parts: &[GroupPart], request: &Request) -> Request {
    let places = parts.iter().map(|part| &part.first_place);
    least_of(counts_of(parts), places.min(), request)
}

/// The same as [`ClassGroup::most`], of some parts of a group.
pub(crate) fn most_of_parts(parts: &[GroupPart], request: &Request) -> Request {
    most_of(counts_of(parts), request)
}

fn most_of<'a>(counts: impl Iterator<Item = &'a ClassCount> + Clone, request: &Request) -> Request {
    let most = |amounts: &BTreeMap<u64, usize>| amounts.keys().next_back().copied();
    let demand = demand_of(counts, request, most, u64::max);
    Request {
        each: each_of(&demand, request.hosts),
        demand,
        ..request.clone()
    }
}

fn counts_of(parts: &[GroupPart]) -> impl Iterator<Item = &ClassCount> + Clone {
    parts.iter().map(|part| &part.count)
}

fn least_of<'a>(
    counts: impl Iterator<Item = &'a ClassCount> + Clone,
    place: Option<&u64>,
    request: &Request,
) -> Request {
    let least = |amounts: &BTreeMap<u64, usize>| amounts.keys().next().copied();
    let demand = demand_of(counts.clone(), request, least, u64::min);
    let limits = counts.filter_map(|counts| counts.time_limits.keys().next());
    Request {
        each: each_of(&demand, request.hosts),
        demand,
        time_limit: limits.min().copied(),
        accepted_at: None,
        place: place.copied().unwrap_or(request.place),
        ..request.clone()
    }
}

/// Resources on each of several hosts that a request with this demand asks for.
fn each_of(demand: &Amounts, hosts: u32) -> HostResources {
    let each = demand.iter().map(|(key, asked)| match key.as_str() {
        STEP_RUN => (key.clone(), asked),
        _ => (key.clone(), asked / u64::from(hosts)),
    });
    HostResources::from_amounts(&each.collect())
}

/// Of each resource the amount that `of_one` finds in each of these, and `of_two` chooses of two.
fn demand_of<'a>(
    counts: impl Iterator<Item = &'a ClassCount> + Clone,
    request: &Request,
    of_one: impl Fn(&BTreeMap<u64, usize>) -> Option<u64>,
    of_two: impl Fn(u64, u64) -> u64,
) -> Amounts {
    let keys = request.demand.iter().map(|(key, _)| key);
    let demand = keys.filter_map(|key| {
        let amounts = counts.clone();
        let amounts = amounts.filter_map(|counts| counts.amounts.get(key));
        let found = amounts.filter_map(&of_one).reduce(&of_two)?;
        Some((key.clone(), found))
    });
    demand.collect()
}

fn remove_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluice_common::amount::{MCPU, MEMORY_MB};

    use super::*;

    fn request(place: u64, (mcpu, memory, limit): (u64, u64, Option<u64>)) -> Request {
        let each = Amounts::new()
            .with_gpus(1)
            .with(MCPU, mcpu)
            .with(MEMORY_MB, memory);
        Request {
            place,
            time_limit: limit.map(Span::from_secs),
            ..Request::for_tests(&each, 2)
        }
    }

    fn covers(large: &Amounts, small: &Amounts) -> bool {
        let mut keys = small.iter();
        keys.all(|(key, amount)| amount <= large.get(key.as_str()))
    }

    proptest! {
        #[test]
        fn least_and_most_bound_all_requests_of_the_parts(
            changes in prop::collection::vec((0u64..12, (1u64..6, 1u64..6, prop::option::of(1u64..4))), 1..60),
        ) {
            let mut group = ClassGroup::default();
            let mut waiting: BTreeMap<u64, Request> = BTreeMap::new();
            for (place, size) in changes {
                // The second request at a place takes the first away.
                match waiting.remove(&place) {
                    Some(gone) => group.remove(&gone.class(false), place),
                    None => {
                        let new = request(place, size);
                        group.insert(new.class(false), place);
                        waiting.insert(place, new);
                    }
                }
            }
            let mut places: BTreeMap<RequestClass, BTreeSet<u64>> = BTreeMap::new();
            for request in waiting.values() {
                places.entry(request.class(false)).or_default().insert(request.place);
            }
            prop_assert!(group.classes().eq(&places), "{group:?} has {places:?}");
            prop_assert_eq!(group.len(), places.len());
            for parts in [group.parts()].into_iter().chain(group.parts().chunks(1)) {
                let of_parts = waiting.values().filter(|request| {
                    let class = request.class(false);
                    parts.iter().any(|part| part.classes.contains_key(&class))
                });
                let of_parts: Vec<&Request> = of_parts.collect();
                let Some(one) = of_parts.first() else { continue };
                let (least, most) = (least_of_parts(parts, one), most_of_parts(parts, one));
                for request in &of_parts {
                    prop_assert!(covers(&request.demand, &least.demand));
                    prop_assert!(request.each.cover(least.each));
                    prop_assert!(covers(&most.demand, &request.demand));
                    prop_assert!(most.each.cover(request.each));
                    prop_assert!(least.place <= request.place);
                    let longer = request.time_limit.is_none_or(|limit| least.time_limit.is_some_and(|it| it <= limit));
                    prop_assert!(longer, "{:?} of {:?}", least.time_limit, request.time_limit);
                }
                prop_assert_eq!(Some(least.place), of_parts.iter().map(|it| it.place).min());
            }
            if let Some(one) = waiting.values().next() {
                prop_assert_eq!(group.least(one), least_of_parts(group.parts(), one));
                prop_assert_eq!(group.most(one), most_of_parts(group.parts(), one));
            }
        }
    }
}
