//! The queue of one subject in one pool. Requests that are alike form a class: if the first of a class must wait, all
//! of it must, so a decision looks only at the first of each class.
//!
//! The priority of a step only reorders the steps of its own subject: they exchange the places in the queue that they
//! already hold. So does fair share among the users of a subject, which comes before the priority.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};
use core::ops::Bound;

use sluice_common::amount::Amounts;
use sluice_common::id::{StepId, UserName};

use crate::model::class_group::ClassGroup;
use crate::model::fair_share::FairUse;
use crate::model::request::{Request, RequestClass};

/// Places by the priority of the requests that hold them; each list is sorted.
type QueueByPriority = BTreeMap<Reverse<i64>, Vec<u64>>;

/// The queue of one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    steps: BTreeMap<u64, StepId>,
    groups: BTreeMap<RequestClass, ClassGroup>,
    places: Vec<u64>,
    /// Places of each user, if the pool shares fairly among users; else all places under `None`.
    levels: BTreeMap<Option<UserName>, QueueByPriority>,
    /// Whether the pool shares fairly among the users of a subject.
    by_user: bool,
    /// Sum of what all requests ask for.
    asked: Amounts,
    /// Places of requests with a firm nomination, which only wait for its release.
    nominated: BTreeSet<u64>,
}

impl Queue {
    pub(crate) fn new(by_user: bool) -> Self {
        Self {
            by_user,
            ..Self::default()
        }
    }

    pub(crate) fn insert(&mut self, request: &Request) {
        if self
            .steps
            .insert(request.place, request.step.clone())
            .is_some()
        {
            return;
        }
        self.asked.add(&request.demand);
        let class = request.class(self.by_user);
        let group = self.groups.entry(class.group()).or_default();
        group.insert(class, request.place);
        insert_sorted(&mut self.places, request.place);
        let levels = self.levels.entry(self.user_of(request)).or_default();
        let level = levels.entry(Reverse(request.priority)).or_default();
        insert_sorted(level, request.place);
    }

    pub(crate) fn remove(&mut self, request: &Request) {
        if self.steps.remove(&request.place).is_none() {
            return;
        }
        self.asked.subtract(&request.demand);
        let class = request.class(self.by_user);
        let key = class.group();
        if let Some(group) = self.groups.get_mut(&key) {
            group.remove(&class, request.place);
            if group.places().is_empty() {
                self.groups.remove(&key);
            }
        }
        remove_sorted(&mut self.places, request.place);
        let user = self.user_of(request);
        if let Some(levels) = self.levels.get_mut(&user) {
            if let Some(level) = levels.get_mut(&Reverse(request.priority)) {
                remove_sorted(level, request.place);
            }
            levels.retain(|_, places| !places.is_empty());
            if levels.is_empty() {
                self.levels.remove(&user);
            }
        }
        self.nominated.remove(&request.place);
    }

    pub(crate) fn set_nominated(&mut self, place: u64) {
        if self.steps.contains_key(&place) {
            self.nominated.insert(place);
        }
    }

    pub(crate) fn unset_nominated(&mut self, place: u64) {
        self.nominated.remove(&place);
    }

    /// Requests with a firm nomination.
    pub(crate) fn nominated(&self) -> impl Iterator<Item = &StepId> {
        let places = self.nominated.iter();
        places.filter_map(|place| self.steps.get(place))
    }

    fn classes_with_places(&self) -> impl Iterator<Item = (&RequestClass, &BTreeSet<u64>)> {
        self.groups.values().flat_map(ClassGroup::classes)
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = &ClassGroup> {
        self.groups.values()
    }

    /// The first request of each class without a firm nomination.
    pub(crate) fn heads(&self) -> impl Iterator<Item = &StepId> {
        self.classes_with_places().filter_map(|(_, places)| {
            let first = places
                .iter()
                .find(|place| !self.nominated.contains(place))?;
            self.steps.get(first)
        })
    }

    /// Whether a request of the same class is ahead and has no firm nomination, so that both can start only together.
    pub(crate) fn follows_alike(&self, request: &Request) -> bool {
        let class = request.class(self.by_user);
        let group = self.groups.get(&class.group());
        let places = group.and_then(|group| group.places_of(&class));
        let mut ahead = places.into_iter().flat_map(|it| it.range(..request.place));
        ahead.any(|place| !self.nominated.contains(place))
    }

    /// Each class with its first request.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (&RequestClass, &StepId)> {
        let firsts = self.classes_with_places();
        firsts.filter_map(|(class, places)| Some((class, self.steps.get(places.first()?)?)))
    }

    /// The first place without a firm nomination of some places, after a given one or of all.
    pub(crate) fn first_of(&self, places: &BTreeSet<u64>, after: Option<u64>) -> Option<u64> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = places.range((from, Bound::Unbounded));
        later.find(|place| !self.nominated.contains(place)).copied()
    }

    /// The first two requests without a firm nomination of each class, or of a whole group if all of it ask for the same of
    /// what `counts`.
    pub(crate) fn first_two<'a>(
        &'a self,
        counts: impl Fn(&str) -> bool + 'a,
    ) -> impl Iterator<Item = &'a StepId> {
        let alike = self.groups.values().flat_map(move |group| {
            let is_whole = group.is_alike_in(&counts);
            let whole = is_whole.then(|| group.places()).into_iter();
            let classes = (!is_whole).then(|| group.classes().map(|(_, places)| places));
            whole.chain(classes.into_iter().flatten())
        });
        alike.flat_map(|places| {
            let places = places.iter();
            let places = places.filter(|place| !self.nominated.contains(place));
            places.take(2).filter_map(|place| self.steps.get(place))
        })
    }

    /// The place of a request after reordering: by the use of its user, the least first, then by its own priority.
    pub(crate) fn effective_place(&self, request: &Request, used: Option<&FairUse>) -> u64 {
        let used = used.filter(|_| self.by_user);
        let use_of = |user: Option<&UserName>| used.map_or(0, |used| used.gpu_seconds_of(user));
        let own = use_of(request.user.as_ref());
        let ahead =
            self.levels
                .iter()
                .map(|(user, levels)| match use_of(user.as_ref()).cmp(&own) {
                    Ordering::Less => levels.values().map(Vec::len).sum(),
                    Ordering::Equal => ahead_in(levels, request),
                    Ordering::Greater => 0,
                });
        let effective_place = self.places.get(ahead.sum::<usize>());
        effective_place.copied().unwrap_or(request.place)
    }

    fn user_of(&self, request: &Request) -> Option<UserName> {
        request.user.clone().filter(|_| self.by_user)
    }

    /// The first submitted request, with its place.
    pub(crate) fn oldest(&self) -> Option<(u64, &StepId)> {
        self.steps
            .first_key_value()
            .map(|(place, step)| (*place, step))
    }

    /// The request at a place, unless it has a firm nomination.
    pub(crate) fn step_at(&self, place: u64) -> Option<&StepId> {
        let step = self.steps.get(&place);
        step.filter(|_| !self.nominated.contains(&place))
    }

    /// All requests in the order of submission.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &StepId> {
        self.steps.values()
    }

    /// Sum of what all requests ask for.
    pub(crate) fn asked(&self) -> &Amounts {
        &self.asked
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }
}

/// Number of places whose requests go before a request, by priority and then by place.
fn ahead_in(levels: &QueueByPriority, request: &Request) -> usize {
    let above = levels.range(..Reverse(request.priority));
    let above: usize = above.map(|(_, places)| places.len()).sum();
    let level = levels.get(&Reverse(request.priority));
    above
        + level.map_or(0, |places| {
            places.partition_point(|place| *place < request.place)
        })
}

fn insert_sorted(places: &mut Vec<u64>, place: u64) {
    if let Err(at) = places.binary_search(&place) {
        places.insert(at, place);
    }
}

fn remove_sorted(places: &mut Vec<u64>, place: u64) {
    if let Ok(at) = places.binary_search(&place) {
        places.remove(at);
    }
}
