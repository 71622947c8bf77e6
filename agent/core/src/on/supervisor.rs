//! What the supervisor tells: that it is up with all that it knows, that it is away, and where an attempt stands.
//! [`crate::attempt`] says what a view means; what is said to the supervisor goes out by [`crate::core`].

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::host_health::SupervisorState;
use sluice_common::id::AttemptId;
use sluice_common::supervision::{AttemptView, Exit, ToSupervisor};
use sluice_common::time::Span;
use sluice_common::wire::FromNode;

use crate::attempt::{Attempt, Effect};
use crate::core::{Absence, Core, Supervisor};
use crate::input::{Now, TimerKey};
use crate::link::Rejection;
use crate::output::Output;
use crate::spawn::{LEASE_PASSED, never_started};
use crate::stop::later;

/// How long a supervisor that has answered may be away before the coordinator is told: one that is restarted or upgraded is
/// back in less.
const BRIEFLY_AWAY: Span = Span::from_secs(1);
/// The same of one that has not answered since the agent started: both start with the host.
const SLOW_TO_START: Span = Span::from_secs(5);

impl Core {
    pub(crate) fn on_supervisor_up(&mut self, now: Now, views: &[AttemptView]) {
        let was_unheard = self.supervisor == Supervisor::Unheard;
        let was_told = self.absence.take().is_some_and(|absence| absence.is_told);
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
        match self.greeted_link() {
            Some(link) if was_unheard => self.reject(link, &Rejection::SupervisorHeard),
            Some(_) if was_told => self.tell_supervisor_state(),
            Some(_) | None => {}
        }
        self.greet(now);
    }

    /// Takes a view as usual. Whatever signal was due while the supervisor was away is lost, so where the view itself
    /// brings about none, that of the stop's stage goes out again.
    fn on_listed(&mut self, now: Now, view: &AttemptView) {
        self.note_gpus(&view.attempt, &view.launch_record.gpus);
        self.note_processors(&view.attempt, &view.launch_record.processors);
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
        let handed = match self.attempts.get(id) {
            Some(Attempt::Starting { handed, .. }) => Some(*handed),
            Some(_) | None => None,
        };
        if handed.is_some() && !self.lease_passed(now) {
            return self.spawn(id);
        }
        self.change(id, |attempt| match handed {
            Some(false) => attempt.give_back(now, None, LEASE_PASSED),
            // A supervisor that has lost its memory may have started it.
            Some(true) => attempt.on_refused(never_started(now, Exit::LeaseExpired, None)),
            None => attempt.on_unlisted(now),
        });
    }

    pub(crate) fn on_supervisor_down(&mut self, now: Now, why: String) {
        let patience = match self.supervisor {
            Supervisor::Unheard => SLOW_TO_START,
            Supervisor::Up | Supervisor::Down => BRIEFLY_AWAY,
        };
        if self.supervisor == Supervisor::Up {
            self.supervisor = Supervisor::Down;
        }
        match &mut self.absence {
            Some(absence) if absence.why == why => {}
            Some(absence) => {
                absence.why = why;
                if absence.is_told {
                    self.tell_supervisor_state();
                }
            }
            None => {
                let told_at = later(now.boot, patience);
                self.absence = Some(Absence {
                    why,
                    told_at,
                    is_told: false,
                });
                self.wake(TimerKey::Supervisor, told_at);
            }
        }
    }

    /// The supervisor was not back in time: the coordinator is told, and what cannot have begun is given back to it.
    pub(crate) fn on_supervisor_timer(&mut self, now: Now) {
        let Some(absence) = self.absence.as_mut().filter(|absence| !absence.is_told) else {
            return;
        };
        if now.boot < absence.told_at {
            let at = absence.told_at;
            return self.wake(TimerKey::Supervisor, at);
        }
        absence.is_told = true;
        let why = absence.why.clone();
        self.tell_supervisor_state();
        self.give_back_unbegun(now, &why);
        self.greet(now);
    }

    fn give_back_unbegun(&mut self, now: Now, why: &str) {
        let unbegun =
            |attempt: &Attempt| matches!(attempt, Attempt::Starting { handed: false, .. });
        let ids = self.attempts.iter().filter(|(_, attempt)| unbegun(attempt));
        let ids: Vec<AttemptId> = ids.map(|(id, _)| id.clone()).collect();
        for id in &ids {
            self.change(id, |attempt| attempt.give_back(now, None, why));
        }
    }

    fn tell_supervisor_state(&mut self) {
        if let Some(link) = self.greeted_link() {
            let message = FromNode::Supervisor(self.supervisor_state());
            self.outputs.push(Output::Send { link, message });
        }
    }

    /// Whether a coordinator can be greeted: the supervisor has told what runs, or is away for too long to be waited for.
    pub fn can_greet(&self) -> bool {
        self.supervisor != Supervisor::Unheard || self.absence_is_told()
    }

    pub(crate) fn absence_is_told(&self) -> bool {
        self.told_absence().is_some()
    }

    /// Why the supervisor does not answer, once that was told.
    pub(crate) fn told_absence(&self) -> Option<&str> {
        let told = self.absence.as_ref().filter(|absence| absence.is_told);
        told.map(|absence| absence.why.as_str())
    }

    /// As the coordinator is told: a supervisor that is only just away answers as far as it knows.
    pub(crate) fn supervisor_state(&self) -> SupervisorState {
        match (self.told_absence(), self.supervisor) {
            (None, _) => SupervisorState::Responding,
            (Some(why), Supervisor::Unheard) => SupervisorState::NeverSeen(why.to_owned()),
            (Some(why), Supervisor::Up | Supervisor::Down) => {
                SupervisorState::Unresponsive(why.to_owned())
            }
        }
    }

    pub(crate) fn on_view(&mut self, now: Now, view: &AttemptView) {
        self.note_gpus(&view.attempt, &view.launch_record.gpus);
        self.note_processors(&view.attempt, &view.launch_record.processors);
        if self.attempts.contains_key(&view.attempt) {
            return self.change(&view.attempt, |attempt| attempt.on_view(now, view));
        }
        let (attempt, effects) = Attempt::seen(now, view);
        self.attempts.insert(view.attempt.clone(), attempt);
        self.act(&view.attempt, effects);
        self.meet_moved(view);
    }
}
