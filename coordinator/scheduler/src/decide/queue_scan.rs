//! Goes through the requests of a pool in queue order. Requests of one subject that differ only in amounts are one range, until
//! it turns out that one of them may start; then the range is split. So a decision by one of the first costs nothing for
//! those behind it, and thousands that cannot start are passed over at once. An optimisation only.

use alloc::borrow::Cow;
use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::cmp::{Ordering, Reverse};

use sluice_common::amount::Amounts;
use sluice_common::id::{PoolName, StepId};

use super::Scheduler;
use crate::model::account::Account;
use crate::model::class_group::{ClassGroup, GroupPart, least_of_parts, most_of_parts};
use crate::model::fair_share::FairUse;
use crate::model::pool::Pool;
use crate::model::queue_order::{self, CountedUse, QueueRank, fits_share};
use crate::model::request::Request;

/// The next in queue order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queued<'a> {
    /// A request; `is_blocked` if it is known to be able neither to start nor to preempt.
    Request {
        request: &'a Request,
        is_blocked: bool,
    },
    /// Requests of which none asks for less than `least` or goes before it. All of them are in share, or none is.
    Range {
        least: &'a Request,
        range: Range<'a>,
    },
}

/// Consecutive parts of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range<'a> {
    group: &'a QueueGroup<'a>,
    parts: &'a [GroupPart],
    /// Position of the range among the halves of the group; `None` if it is all of it.
    half: Option<usize>,
}

/// A group of the queue of a subject.
#[derive(Debug)]
pub(super) struct QueueGroup<'a> {
    account: &'a Account,
    group: &'a ClassGroup,
    fair_use: Option<FairUse>,
    /// Use that counts against its requests; none that is gone through has a firm nomination of its own.
    counted: Cow<'a, Amounts>,
    /// One of its requests that only wait for their turn; `None` if all are special, or the group is small.
    ordinary: Option<&'a Request>,
    /// The requests that stand for the group, for its halves, for the halves of these and so on, made when they are needed.
    least: OnceCell<Request>,
    least_of_halves: OnceCell<Vec<OnceCell<Request>>>,
}

/// The groups of a pool. Those with fewer than so many classes are gone through request by request.
pub(super) fn groups_of<'a>(
    scheduler: &'a Scheduler,
    pool: &'a Pool,
    classes: usize,
) -> Vec<QueueGroup<'a>> {
    let mut found = Vec::new();
    let accounts = pool.accounts().iter();
    for (subject, account) in accounts.filter(|(_, account)| !account.queue.is_empty()) {
        let fair_use = pool.fair_use(subject, scheduler.clock);
        let counted = CountedUse::new(scheduler, pool, account);
        for group in account.queue.groups() {
            let places = group.places().iter();
            let mut steps = places.filter_map(|place| account.queue.step_at(*place));
            let Some(request) = steps
                .clone()
                .next()
                .and_then(|step| scheduler.request(step))
            else {
                continue;
            };
            let ordinary = match group.len() < classes {
                true => None,
                false => steps.find(|step| is_ordinary(scheduler, pool, step)),
            };
            found.push(QueueGroup {
                account,
                group,
                fair_use: fair_use.clone(),
                counted: counted.against(request).clone(),
                ordinary: ordinary.and_then(|step| scheduler.request(step)),
                least: OnceCell::new(),
                least_of_halves: OnceCell::new(),
            });
        }
    }
    found
}

/// Whether only its amounts and its place decide what a request may take: it has no nomination, and nothing went past it.
fn is_ordinary(scheduler: &Scheduler, pool: &Pool, step: &StepId) -> bool {
    scheduler.nomination(step).is_none() && !is_special(pool, step)
}

/// Whether a request is gone through by itself.
fn is_special(pool: &Pool, step: &StepId) -> bool {
    pool.soft_nomination.as_ref() == Some(step) || pool.backfill.contains_key(step)
}

impl<'a> QueueGroup<'a> {
    fn is_in_share(&self, pool: &Pool, request: &Request) -> bool {
        fits_share(pool, self.account, request, &self.counted)
    }

    fn rank(&self, pool: &Pool, request: &Request) -> QueueRank {
        let in_share = self.is_in_share(pool, request);
        queue_order::rank_of(self.account, self.fair_use.as_ref(), request, in_share)
    }
}

impl<'a> Range<'a> {
    /// The request that stands for the range.
    fn least(&self) -> Option<&'a Request> {
        let Self { group, parts, half } = *self;
        let ordinary = group.ordinary?;
        let Some(half) = half else {
            let least = || group.group.least(ordinary);
            return Some(group.least.get_or_init(least));
        };
        let least = || least_of_parts(parts, ordinary);
        let halves = group.least_of_halves.get_or_init(|| {
            let halves = 0..2 * group.group.parts().len();
            halves.map(|_| OnceCell::new()).collect()
        });
        Some(halves.get(half)?.get_or_init(least))
    }

    /// A request that asks for as much as any of the range, for which `least` stands.
    pub(super) fn most(&self, least: &Request) -> Request {
        match self.half {
            None => self.group.group.most(least),
            Some(_) => most_of_parts(self.parts, least),
        }
    }

    /// The two halves of the range; `None` if it has only one part.
    fn halves(&self) -> Option<[Self; 2]> {
        let Self { group, parts, half } = *self;
        let (first, second) = parts.split_at(parts.len() / 2);
        let at = half.map_or(0, |half| half + 1);
        // The halves of a range follow it; a range of n parts has 2 (n - 1) of them.
        let after = at + (2 * first.len()).checked_sub(1)?;
        let of = |parts, half| Self {
            group,
            parts,
            half: Some(half),
        };
        Some([of(first, at), of(second, after)])
    }
}

/// A scan through a queue.
pub(super) struct QueueScan<'a> {
    scheduler: &'a Scheduler,
    name: &'a PoolName,
    pool: &'a Pool,
    next: BinaryHeap<Reverse<Entry<'a>>>,
}

/// Something in the queue, with a rank that none of its requests goes before.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    rank: QueueRank,
    queued: Queued<'a>,
    /// The class for which a request stands.
    class: Option<ClassInQueue<'a>>,
}

/// A group, and the places of the requests of one of its classes.
type ClassInQueue<'a> = (&'a QueueGroup<'a>, &'a BTreeSet<u64>);

impl<'a> QueueScan<'a> {
    pub(super) fn new(
        scheduler: &'a Scheduler,
        name: &'a PoolName,
        pool: &'a Pool,
        groups: &'a [QueueGroup<'a>],
    ) -> Self {
        let mut scan = Self {
            scheduler,
            name,
            pool,
            next: BinaryHeap::new(),
        };
        for group in groups {
            let range = Range {
                group,
                parts: group.group.parts(),
                half: None,
            };
            scan.push_range(range);
        }
        scan.push_special();
        scan
    }

    fn push_range(&mut self, range: Range<'a>) {
        match range.least() {
            Some(least) => {
                let rank = range.group.rank(self.pool, least);
                self.push(rank, Queued::Range { least, range }, None);
            }
            None => self.push_classes(range),
        }
    }

    fn push(&mut self, rank: QueueRank, queued: Queued<'a>, class: Option<ClassInQueue<'a>>) {
        self.next.push(Reverse(Entry {
            rank,
            queued,
            class,
        }));
    }

    /// Adds the requests that are gone through by themselves.
    fn push_special(&mut self) {
        let Self {
            scheduler, pool, ..
        } = *self;
        let special = pool.soft_nomination.iter().chain(pool.backfill.keys());
        let special: BTreeSet<&StepId> = special.collect();
        for request in special.into_iter().filter_map(|it| scheduler.request(it)) {
            let Some(account) = pool.account(&request.subject) else {
                continue;
            };
            let waits = account.queue.step_at(request.place) == Some(&request.step);
            if waits && !account.queue.follows_alike(request) {
                let rank = queue_order::rank(scheduler, pool, account, request);
                let is_blocked = false;
                let queued = Queued::Request {
                    request,
                    is_blocked,
                };
                self.push(rank, queued, None);
            }
        }
    }

    fn push_request(
        &mut self,
        group: &'a QueueGroup<'a>,
        request: &'a Request,
        is_blocked: bool,
        class: Option<&'a BTreeSet<u64>>,
    ) {
        let rank = group.rank(self.pool, request);
        let queued = Queued::Request {
            request,
            is_blocked,
        };
        self.push(rank, queued, class.map(|class| (group, class)));
    }

    /// Adds the first request of each class of a range.
    fn push_classes(&mut self, range: Range<'a>) {
        let classes = range.parts.iter().flat_map(GroupPart::places_by_class);
        for places in classes {
            self.push_first(range.group, places, None);
        }
    }

    /// Adds the first request of a class after a place.
    fn push_first(
        &mut self,
        group: &'a QueueGroup<'a>,
        class: &'a BTreeSet<u64>,
        after: Option<u64>,
    ) {
        let queue = &group.account.queue;
        let mut place = queue.first_of(class, after);
        let mut is_first = after.is_none();
        while let Some(step) = place.and_then(|place| queue.step_at(place)) {
            let Some(request) = self.scheduler.request(step) else {
                return;
            };
            // If the first of its class is special, it is added already.
            if !is_first || !is_special(self.pool, step) {
                return self.push_request(group, request, false, Some(class));
            }
            place = match self.is_elsewhere(step) {
                true => queue.first_of(class, place),
                false => None,
            };
            is_first = false;
        }
    }

    /// Whether a request is nominated in another pool.
    fn is_elsewhere(&self, step: &StepId) -> bool {
        let nomination = self.scheduler.nomination(step);
        nomination.is_some_and(|nomination| nomination.pool != *self.name)
    }

    /// Goes on with the halves of a range, or with its requests.
    pub(super) fn split(&mut self, range: Range<'a>) {
        match range.halves() {
            Some(halves) => halves.into_iter().for_each(|half| self.push_range(half)),
            None => self.push_classes(range),
        }
    }

    /// Passes over the requests of a range, which are blocked, but for the first that may be the head.
    pub(super) fn pass_over(&mut self, range: Range<'a>, may_be_head: impl Fn(&Request) -> bool) {
        let Self {
            scheduler, pool, ..
        } = *self;
        let queue = &range.group.account.queue;
        let could_be = |place| {
            let step = queue.step_at(place);
            let step = step.filter(|step| is_ordinary(scheduler, pool, step));
            let request = step.and_then(|step| scheduler.request(step));
            request.filter(|request| may_be_head(request))
        };
        // Mostly it is the first.
        let first = range.parts.iter().map(GroupPart::first_place).min();
        if let Some(request) = first.and_then(could_be) {
            return self.push_request(range.group, request, true, None);
        }
        let classes = range.parts.iter().flat_map(GroupPart::places_by_class);
        let firsts =
            classes.filter_map(|class| Some(Reverse((queue.first_of(class, None)?, class))));
        let mut firsts: BinaryHeap<Reverse<(u64, &BTreeSet<u64>)>> = firsts.collect();
        while let Some(Reverse((place, class))) = firsts.pop() {
            if let Some(request) = could_be(place) {
                return self.push_request(range.group, request, true, None);
            }
            let next = queue.first_of(class, Some(place));
            firsts.extend(next.map(|next| Reverse((next, class))));
        }
    }

    /// Whether all requests of a range are in share or none is.
    fn is_alike_in_share(&self, range: Range<'a>, least: &Request) -> bool {
        let group = range.group;
        let all_are = || group.is_in_share(self.pool, &range.most(least));
        !group.is_in_share(self.pool, least) || all_are()
    }
}

impl<'a> Iterator for QueueScan<'a> {
    type Item = (QueueRank, Queued<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Reverse(Entry {
                rank,
                queued,
                class,
            }) = self.next.pop()?;
            match queued {
                Queued::Request { request, .. } => {
                    let goes_on = |_: &_| self.is_elsewhere(&request.step);
                    if let Some((group, class)) = class.filter(goes_on) {
                        self.push_first(group, class, Some(request.place));
                    }
                    return Some((rank, queued));
                }
                Queued::Range { least, range } if self.is_alike_in_share(range, least) => {
                    return Some((rank, queued));
                }
                Queued::Range { range, .. } => self.split(range),
            }
        }
    }
}

impl PartialEq for Entry<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry<'_> {}

impl PartialOrd for Entry<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry<'_> {
    /// By rank; the head before a range that begins with it, so that no other head is looked for there.
    fn cmp(&self, other: &Self) -> Ordering {
        let is_range = |entry: &Self| matches!(entry.queued, Queued::Range { .. });
        let key = |entry: &Self| (entry.rank, is_range(entry));
        key(self).cmp(&key(other))
    }
}
