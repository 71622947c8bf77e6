//! Decides by the load of a service how many replicas it has. Pure: a function of the terms, the load, what was needed
//! lately, and the time.
//!
//! A service needs as many replicas as its load divided by the target of one, rounded up. It gets more as soon as more
//! are needed, and fewer once no more were needed for `down_after`. In 15 seconds the number at most doubles (or grows
//! by 4, if that is more) or halves. A load within a tenth of what the present number is for changes nothing, and so
//! does an unknown one. The rules are those of Kubernetes' horizontal autoscaler, with a shorter way.

use alloc::collections::VecDeque;

use sluice_common::service::ScaleSpec;
use sluice_common::time::{Span, Time};

/// Time in which the number at most doubles or halves.
const STEP_PERIOD: Span = Span::from_secs(15);

/// Replicas that may be added in this time in any case.
const MIN_STEP_UP: u32 = 4;

/// Part of the load by which it may differ from what the present number is for.
const TOLERANCE: u64 = 10;

/// Facts by which the number of replicas is decided.
#[derive(Clone, Copy, Debug)]
pub struct ScaleInput<'a> {
    pub scale: &'a ScaleSpec,
    /// Present number of replicas.
    pub count: u32,
    /// Most replicas that the policy's limit lets run.
    pub limit: u32,
    /// Load of all replicas together, in thousandths of the metric's unit; `None` if it is unknown.
    pub load_milli: Option<u64>,
    /// Whether requests are under way or wait; `None` if nobody counts them.
    pub has_requests: Option<bool>,
    pub now: Time,
}

/// The number of replicas, and the time at which it is to be decided again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleDecision {
    pub count: u32,
    pub again_at: Option<Time>,
}

impl ScaleInput<'_> {
    /// Replicas that the load needs, within the bounds of the service.
    pub(crate) fn needed(&self) -> u32 {
        let target = self.scale.target_milli.filter(|target| *target > 0);
        let needed = match self.load_milli.zip(target) {
            Some((load, target)) if !self.is_near(load, target) => load.div_ceil(target),
            Some(_) | None => u64::from(self.count),
        };
        // If nobody counts requests, nobody would wake a service that sleeps.
        let least = match self.has_requests {
            Some(has_requests) => u32::from(has_requests),
            None => self.count.min(1),
        };
        let needed = u32::try_from(needed).unwrap_or(u32::MAX).max(least);
        self.within_bounds(needed)
    }

    /// The nearest number within the bounds of the service and of the policy. The policy's limit does not lower `min`.
    fn within_bounds(&self, replicas: u32) -> u32 {
        let max = self.scale.max.min(self.limit).max(self.scale.min);
        replicas.clamp(self.scale.min, max)
    }

    fn is_near(&self, load: u64, target: u64) -> bool {
        let meant = target.saturating_mul(self.count.into());
        self.count > 0 && load.abs_diff(meant) <= meant / TOLERANCE
    }
}

/// Numbers of replicas that were needed lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadHistory {
    /// Number of replicas when it was decided last. Another number was set by somebody.
    count: u32,
    needed: u32,
    /// Higher numbers that were needed before, with the time until which they count: each lower than the one before it.
    before: VecDeque<(Time, u32)>,
    /// Begin of the present period, and the number of replicas then.
    period: (Time, u32),
}

impl LoadHistory {
    /// The present number is what was needed until now.
    pub fn new(count: u32, now: Time) -> Self {
        Self {
            count,
            needed: count,
            before: VecDeque::new(),
            period: (now, count),
        }
    }

    /// Decides the number of replicas, and remembers what is needed.
    pub fn decide(&mut self, input: &ScaleInput) -> ScaleDecision {
        let (now, count) = (input.now, input.count);
        if count != self.count {
            // What somebody sets holds for a while like what the load needed.
            self.needed = count;
            self.period = (now, count);
        }
        let needed = input.needed();
        self.note(needed, now, input.scale.down_after);
        if now.since(self.period.0) >= STEP_PERIOD {
            self.period = (now, count);
        }
        let base = self.period.1;
        let most = base.saturating_mul(2).max(base.saturating_add(MIN_STEP_UP));
        let least = base / 2;
        let held = self.before.front().map_or(needed, |(_, before)| *before);
        let wanted = if needed > count {
            needed
        } else {
            held.min(count)
        };
        let bounded = wanted.clamp(least, most);
        self.count = input.within_bounds(bounded);
        let limited = (bounded != wanted).then_some(self.period.0 + STEP_PERIOD);
        let drops = self.before.front().map(|(until, _)| *until);
        ScaleDecision {
            count: self.count,
            again_at: limited.into_iter().chain(drops).min(),
        }
    }

    /// Replicas that the load needed when it was looked at last.
    pub(crate) fn needed(&self) -> u32 {
        self.needed
    }

    fn note(&mut self, needed: u32, now: Time, down_after: Span) {
        if needed < self.needed {
            self.forget_up_to(self.needed);
            self.before.push_back((now + down_after, self.needed));
        }
        self.forget_up_to(needed);
        while self.before.front().is_some_and(|(until, _)| *until <= now) {
            self.before.pop_front();
        }
        self.needed = needed;
    }

    /// Forgets numbers that a later one of this size makes needless.
    fn forget_up_to(&mut self, needed: u32) {
        while self.before.back().is_some_and(|(_, it)| *it <= needed) {
            self.before.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;
    use sluice_common::service::ScaleMetric;

    use super::*;

    /// From `min` to `max` replicas, each for a load of 10.
    fn scale(min: u32, max: u32) -> ScaleSpec {
        ScaleSpec {
            min,
            max,
            fixed: false,
            metric: Some(ScaleMetric::Concurrency),
            target_milli: Some(10_000),
            down_after: Span::from_secs(60),
            ..ScaleSpec::fixed(min)
        }
    }

    /// A service whose load is given second by second.
    struct ServiceRun {
        scale: ScaleSpec,
        limit: u32,
        count: u32,
        now: Time,
        history: LoadHistory,
        counts: Vec<u32>,
    }

    impl ServiceRun {
        fn new(scale: ScaleSpec, count: u32) -> Self {
            let now = Time::from_unix_millis(1_000_000);
            Self {
                scale,
                limit: u32::MAX,
                count,
                now,
                history: LoadHistory::new(count, now),
                counts: Vec::new(),
            }
        }

        /// Gives it this load for so many seconds.
        fn load(&mut self, load: Option<u64>, secs: u64) -> u32 {
            for _ in 0..secs {
                self.now = self.now + Span::from_secs(1);
                let input = ScaleInput {
                    scale: &self.scale,
                    count: self.count,
                    limit: self.limit,
                    load_milli: load.map(|load| load * 1000),
                    has_requests: load.map(|load| load > 0),
                    now: self.now,
                };
                self.count = self.history.decide(&input).count;
                self.counts.push(self.count);
            }
            self.count
        }
    }

    #[test]
    fn more_come_at_once_in_steps_and_fewer_after_a_while() {
        let mut run = ServiceRun::new(scale(1, 50), 1);
        assert_eq!(run.load(Some(35), 1), 4);
        assert_eq!(run.load(Some(400), 1), 5, "4 more than 1 in one period");
        assert_eq!(run.load(Some(400), 15), 10);
        assert_eq!(run.load(Some(400), 30), 40);
        assert_eq!(run.load(Some(10), 60), 40);
        assert_eq!(run.load(Some(10), 1), 20, "at most half in one period");
        assert_eq!(run.load(Some(10), 90), 1);
    }

    #[test]
    fn a_load_near_the_target_changes_nothing() {
        let mut run = ServiceRun::new(scale(1, 50), 10);
        assert_eq!(run.load(Some(110), 300), 10);
        assert_eq!(run.load(Some(90), 300), 10);
        assert_eq!(run.load(Some(111), 1), 12);
    }

    #[test]
    fn an_unknown_load_changes_nothing_and_forgets_no_need() {
        let mut run = ServiceRun::new(scale(1, 50), 10);
        assert_eq!(run.load(None, 1000), 10);
        assert_eq!(run.load(Some(10), 60), 10);
        assert_eq!(run.load(None, 100), 10);
        assert_eq!(run.load(Some(10), 60), 10, "the unknown load held 10");
        assert_eq!(run.load(Some(10), 1), 5);
    }

    #[test]
    fn a_service_that_may_sleep_does_and_wakes_at_the_first_request() {
        let mut run = ServiceRun::new(scale(0, 5), 1);
        assert_eq!(run.load(Some(0), 60), 1);
        assert_eq!(run.load(Some(0), 1), 0);
        assert_eq!(run.load(None, 100), 0, "nobody counts requests");
        assert_eq!(run.load(Some(1), 1), 1);
    }

    #[test]
    fn nobody_would_wake_a_service_whose_requests_are_not_counted() {
        let scale = scale(0, 5);
        let mut history = LoadHistory::new(1, Time::default());
        for secs in 0..1000 {
            let input = ScaleInput {
                scale: &scale,
                count: 1,
                limit: u32::MAX,
                load_milli: Some(0),
                has_requests: None,
                now: Time::from_unix_millis(secs * 1000),
            };
            assert_eq!(history.decide(&input).count, 1);
        }
    }

    #[test]
    fn what_somebody_sets_holds_for_a_while() {
        let mut run = ServiceRun::new(scale(1, 50), 2);
        run.load(Some(20), 100);
        run.count = 8;
        assert_eq!(run.load(Some(20), 60), 8);
        assert_eq!(run.load(Some(20), 1), 4);
    }

    #[test]
    fn the_policy_s_limit_bounds_it_but_not_below_the_fewest() {
        let mut run = ServiceRun::new(scale(2, 50), 2);
        run.limit = 3;
        assert_eq!(run.load(Some(500), 60), 3);
        run.limit = 0;
        assert_eq!(run.load(Some(500), 60), 2);
    }

    fn loads() -> impl Strategy<Value = Vec<(Option<u64>, u64)>> {
        let load = prop_oneof![4 => (0..600u64).prop_map(Some), 1 => Just(None)];
        proptest::collection::vec((load, 1..200u64), 1..12)
    }

    proptest! {
        /// Named promises: never outside the bounds; never down sooner than `down_after` after a number was needed; no
        /// change of direction within that time; at most twice as many in a period.
        #[test]
        fn it_stays_within_bounds_and_does_not_flap(
            loads in loads(), min in 0..5u32, room in 1..60u32, first in 0..80u32,
        ) {
            let max = min + room;
            let mut run = ServiceRun::new(scale(min, max), first.clamp(min, max));
            for (load, secs) in loads {
                run.load(load, secs);
            }
            let counts = &run.counts;
            prop_assert!(counts.iter().all(|it| (min..=max).contains(it)));
            for (at, pair) in counts.windows(2).enumerate() {
                let rose_lately = counts[at.saturating_sub(59)..=at]
                    .windows(2)
                    .any(|earlier| earlier[1] > earlier[0]);
                prop_assert!(pair[1] >= pair[0] || !rose_lately, "at {at}: {counts:?}");
            }
            // Any 15 seconds touch two periods at most, and a period begins at a number of the 15 seconds before.
            let up = |from: u32| (from * 2).max(from + MIN_STEP_UP);
            for around in counts.windows(30) {
                let from = around[..15].iter().copied().max().unwrap_or(0);
                prop_assert!(around[29] <= up(up(from)), "{around:?}");
            }
        }

        /// Named promise: a load that stays is served by the number that it needs after a bounded time, and by that from
        /// then on.
        #[test]
        fn it_settles_at_what_a_steady_load_needs(load in 1..600u64, first in 0..60u32) {
            let mut run = ServiceRun::new(scale(0, 60), first);
            // Six doublings or halvings, and the time after which there may be fewer.
            let count = run.load(Some(load), 60 + 6 * 15 + 1);
            let meant = u64::from(count) * 10;
            let is_near = load.abs_diff(meant) * TOLERANCE <= meant;
            prop_assert!(u64::from(count) == load.div_ceil(10) || is_near, "{count}");
            let before = run.counts.len();
            run.load(Some(load), 200);
            prop_assert!(run.counts[before..].iter().all(|it| *it == count));
        }

        /// Named promise: what is remembered is bounded by the number of replicas, not by time.
        #[test]
        fn the_memory_of_needs_is_bounded(loads in loads()) {
            let mut run = ServiceRun::new(scale(0, 60), 1);
            for (load, secs) in loads {
                run.load(load, secs);
                let before = &run.history.before;
                prop_assert!(before.len() <= 61);
                prop_assert!(before.iter().zip(before.iter().skip(1)).all(|(a, b)| a.1 > b.1 && a.0 <= b.0));
            }
        }
    }
}
