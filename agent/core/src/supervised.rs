//! What the supervisor tells: that it is up with all that it knows, that it is gone, and where an attempt stands.
//! [`crate::attempt`] says what a view means; what is said to the supervisor goes out by [`crate::core`].

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::AttemptId;
use sluice_common::supervision::{AttemptView, Exit, ToSupervisor};

use crate::attempt::{Attempt, Effect};
use crate::core::{Core, Supervisor};
use crate::input::Now;
use crate::spawn::never_started;

impl Core {
    pub(crate) fn on_supervisor_up(&mut self, now: Now, views: &[AttemptView]) {
        self.supervisor = Supervisor::Up;
        if let Some(until) = self.lease_until {
            self.supervise(ToSupervisor::Renew { until });
        }
        for view in views {
            self.on_listed(now, view);
        }
        let listed: BTreeSet<&AttemptId> = views.iter().map(|view| &view.attempt).collect();
        let unlisted = self.attempts.keys().filter(|id| !listed.contains(id));
        let unlisted: Vec<AttemptId> = unlisted.cloned().collect();
        for id in &unlisted {
            self.on_unlisted(now, id);
        }
        self.judge_early_look(now);
        self.greet(now);
    }

    /// Takes a view as usual. Whatever signal was due while the supervisor was away is lost, so where the view itself
    /// brings about none, that of the stop's stage goes out again.
    fn on_listed(&mut self, now: Now, view: &AttemptView) {
        self.note_gpus(&view.attempt, &view.memo.gpus);
        self.note_processors(&view.attempt, &view.memo.processors);
        if !self.attempts.contains_key(&view.attempt) {
            return self.on_view(now, view);
        }
        self.change(&view.attempt, |attempt| {
            let mut effects = attempt.on_view(now, view);
            if !effects.iter().any(Effect::is_signal) {
                effects.extend(attempt.signal_again());
            }
            effects
        });
    }

    /// What was to start is started now, unless its lease has passed meanwhile. Anything else is over.
    fn on_unlisted(&mut self, now: Now, id: &AttemptId) {
        let starting = matches!(self.attempts.get(id), Some(Attempt::Starting { .. }));
        if starting && !self.lease_passed(now) {
            return self.spawn(id);
        }
        self.change(id, |attempt| {
            if starting {
                return attempt.on_refused(never_started(now, Exit::LeaseExpired, None));
            }
            attempt.on_unlisted(now)
        });
    }

    pub(crate) fn on_supervisor_down(&mut self) {
        if self.supervisor == Supervisor::Up {
            self.supervisor = Supervisor::Down;
        }
    }

    pub(crate) fn on_view(&mut self, now: Now, view: &AttemptView) {
        self.note_gpus(&view.attempt, &view.memo.gpus);
        self.note_processors(&view.attempt, &view.memo.processors);
        if self.attempts.contains_key(&view.attempt) {
            return self.change(&view.attempt, |attempt| attempt.on_view(now, view));
        }
        let (attempt, effects) = Attempt::seen(now, view);
        self.attempts.insert(view.attempt.clone(), attempt);
        self.act(&view.attempt, effects);
        self.meet_moved(view);
    }
}
