//! Messages of the supervisor: its list of attempts, its absence, and changes of attempts. [`crate::attempt`]
//! interprets views; [`crate::core`] sends orders.

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

/// Longest unreported absence of a supervisor that has answered before: a restart or upgrade
/// takes less.
const ABSENCE_LIMIT: Span = Span::from_secs(1);
/// The same limit for a supervisor that has not answered since the agent started, because both start with the
/// host.
const START_LIMIT: Span = Span::from_secs(5);

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
        self.drop_unknown_endpoints();
        self.apply_early_scan(now);
        self.order_carving_again();
        match self.greeted_link() {
            Some(link) if was_unheard => self.reject(link, &Rejection::SupervisorHeard),
            Some(_) if was_told => self.report_supervisor_state(),
            Some(_) | None => {}
        }
        self.greet(now);
    }

    /// Handles a listed view. If it causes no signal itself, the stop's current signal is repeated, because
    /// it may have been lost during the absence.
    fn on_listed(&mut self, now: Now, view: &AttemptView) {
        let record = &view.launch_record;
        self.note_gpus(&view.attempt, &record.gpus, record.is_allocation);
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

    /// Starts an attempt that was waiting, unless its lease has expired. Ends any other.
    fn on_unlisted(&mut self, now: Now, id: &AttemptId) {
        let was_sent = match self.attempts.get(id) {
            Some(Attempt::Starting { was_sent, .. }) => Some(*was_sent),
            Some(_) | None => None,
        };
        if was_sent.is_some() && !self.lease_passed(now) {
            return self.spawn(id);
        }
        self.change(id, |attempt| match was_sent {
            Some(false) => attempt.give_back(now, None, LEASE_PASSED),
            // A supervisor that lost its state may have started it.
            Some(true) => attempt.on_refused(never_started(now, Exit::LeaseExpired, None)),
            None => attempt.on_unlisted(now),
        });
    }

    pub(crate) fn on_supervisor_down(&mut self, now: Now, why: String) {
        let patience = match self.supervisor {
            Supervisor::Unheard => START_LIMIT,
            Supervisor::Up | Supervisor::Down => ABSENCE_LIMIT,
        };
        if self.supervisor == Supervisor::Up {
            self.supervisor = Supervisor::Down;
        }
        match &mut self.absence {
            Some(absence) if absence.why == why => {}
            Some(absence) => {
                absence.why = why;
                if absence.is_told {
                    self.report_supervisor_state();
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

    /// Reports the absence, and returns attempts that cannot have started.
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
        self.report_supervisor_state();
        self.return_unstarted(now, &why);
        self.greet(now);
    }

    fn return_unstarted(&mut self, now: Now, why: &str) {
        let unbegun = |attempt: &Attempt| {
            matches!(
                attempt,
                Attempt::Starting {
                    was_sent: false,
                    ..
                }
            )
        };
        let ids = self.attempts.iter().filter(|(_, attempt)| unbegun(attempt));
        let ids: Vec<AttemptId> = ids.map(|(id, _)| id.clone()).collect();
        for id in &ids {
            self.change(id, |attempt| attempt.give_back(now, None, why));
        }
    }

    fn report_supervisor_state(&mut self) {
        if let Some(link) = self.greeted_link() {
            let message = FromNode::Supervisor(self.supervisor_state());
            self.outputs.push(Output::Send { link, message });
        }
    }

    /// Whether a coordinator can be greeted: the supervisor has answered, or its absence is reported.
    pub fn can_greet(&self) -> bool {
        self.supervisor != Supervisor::Unheard || self.is_absence_reported()
    }

    pub(crate) fn is_absence_reported(&self) -> bool {
        self.reported_absence().is_some()
    }

    /// The reason of a reported absence.
    pub(crate) fn reported_absence(&self) -> Option<&str> {
        let told = self.absence.as_ref().filter(|absence| absence.is_told);
        told.map(|absence| absence.why.as_str())
    }

    /// The state for the coordinator: a short absence is not reported.
    pub(crate) fn supervisor_state(&self) -> SupervisorState {
        match (self.reported_absence(), self.supervisor) {
            (None, _) => SupervisorState::Responding,
            (Some(why), Supervisor::Unheard) => SupervisorState::NeverSeen(why.to_owned()),
            (Some(why), Supervisor::Up | Supervisor::Down) => {
                SupervisorState::Unresponsive(why.to_owned())
            }
        }
    }

    pub(crate) fn on_view(&mut self, now: Now, view: &AttemptView) {
        let record = &view.launch_record;
        self.note_gpus(&view.attempt, &record.gpus, record.is_allocation);
        self.note_processors(&view.attempt, &view.launch_record.processors);
        if self.attempts.contains_key(&view.attempt) {
            return self.change(&view.attempt, |attempt| attempt.on_view(now, view));
        }
        let (attempt, effects) = Attempt::seen(now, view);
        self.attempts.insert(view.attempt.clone(), attempt);
        self.act(&view.attempt, effects);
        self.adopt_moved(view);
    }
}
