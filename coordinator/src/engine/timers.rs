//! Timers of the core. A timer fires only after everything that was in the inbox when it came due has been handled.

use std::collections::{BTreeMap, BTreeSet};

use coordinator_core::TimerKey;
use sluice_common::time::Time;

/// Armed timers, one for each key.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_key: BTreeMap<TimerKey, Time>,
    by_time: BTreeSet<(Time, TimerKey)>,
    /// Messages to be handled before timers fire; `None` while none has come due.
    ahead: Option<InboxSnapshot>,
}

/// The length of the inbox at a moment.
#[derive(Clone, Copy, Debug)]
struct InboxSnapshot {
    /// Number of its messages that are not handled yet.
    messages: usize,
    /// Time of the look: what comes due later may be put off by a message that came later too.
    seen: Time,
}

impl Timers {
    /// Arms a timer, replacing one with the same key.
    pub(super) fn set(&mut self, key: TimerKey, at: Time) {
        if let Some(before) = self.by_key.insert(key.clone(), at) {
            self.by_time.remove(&(before, key.clone()));
        }
        self.by_time.insert((at, key));
    }

    /// Time at which the first timer comes due.
    pub(super) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Returns and disarms the timers that fire now. `handled` messages were handled since the last call and `waiting`
    /// are in the inbox: those are handled first, however many come after them. Timers that come due meanwhile wait for
    /// the next call.
    pub(super) fn due(&mut self, now: Time, handled: usize, waiting: usize) -> Vec<TimerKey> {
        if self.next().is_none_or(|at| at > now) {
            self.ahead = None;
            return Vec::new();
        }
        let ahead = match self.ahead {
            None => InboxSnapshot {
                messages: waiting,
                seen: now,
            },
            Some(ahead) => InboxSnapshot {
                messages: ahead.messages.saturating_sub(handled),
                ..ahead
            },
        };
        if ahead.messages > 0 {
            self.ahead = Some(ahead);
            return Vec::new();
        }
        self.ahead = None;
        self.take(ahead.seen)
    }

    fn take(&mut self, now: Time) -> Vec<TimerKey> {
        let mut due = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            let (_, key) = self.by_time.pop_first().expect("it was just seen");
            self.by_key.remove(&key);
            due.push(key);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::id::NodeName;

    fn key(name: &str) -> TimerKey {
        TimerKey::NodeSilence(NodeName::new(name).unwrap())
    }

    fn at(millis: u64) -> Time {
        Time::from_unix_millis(millis)
    }

    #[test]
    fn setting_a_timer_again_replaces_it() {
        let mut timers = Timers::default();
        timers.set(key("a"), at(10));
        timers.set(key("b"), at(20));
        timers.set(key("a"), at(30));
        assert_eq!(timers.next(), Some(at(20)));
        assert_eq!(timers.due(at(25), 0, 0), [key("b")]);
        assert_eq!(timers.due(at(40), 0, 0), [key("a")]);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn what_waited_in_the_inbox_is_heard_first_and_what_comes_later_is_not_waited_for() {
        let mut timers = Timers::default();
        timers.set(key("a"), at(10));
        assert!(timers.due(at(10), 5, 3).is_empty());
        assert!(timers.due(at(11), 2, 100).is_empty());
        assert_eq!(timers.due(at(12), 1, 100), [key("a")]);
    }

    #[test]
    fn a_timer_that_was_put_off_by_what_was_heard_does_not_fire() {
        let mut timers = Timers::default();
        timers.set(key("a"), at(10));
        assert!(timers.due(at(10), 0, 1).is_empty());
        timers.set(key("a"), at(50));
        assert!(timers.due(at(12), 1, 0).is_empty());
        assert_eq!(timers.next(), Some(at(50)));
    }

    #[test]
    fn a_timer_that_came_due_while_others_were_waited_for_overtakes_nothing_that_came_before_it() {
        let mut timers = Timers::default();
        timers.set(key("a"), at(10));
        timers.set(key("b"), at(20));
        assert!(timers.due(at(10), 0, 1).is_empty());
        // While that one was handled `b` came due, and a message that puts it off arrived.
        assert_eq!(timers.due(at(30), 1, 1), [key("a")]);
        assert!(timers.due(at(31), 0, 1).is_empty());
        timers.set(key("b"), at(60));
        assert!(timers.due(at(32), 1, 0).is_empty());
        assert_eq!(timers.next(), Some(at(60)));
    }
}
