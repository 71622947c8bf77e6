//! Orders of the coordinator.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;

use sluice_common::id::AttemptId;
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::supervision::{Exit, ToSupervisor};
use sluice_common::time::Span;
use sluice_common::wire::{Assignment, AttemptEnd, AttemptPhase, Command, StopReason, ToNode};

use crate::attempt::Attempt;
use crate::core::{Core, Supervisor};
use crate::input::{LinkId, Now};
use crate::link::{EpochComparison, LinkTerms, Rejection, check_epoch};
use crate::output::Output;
use crate::spawn::{self, LEASE_PASSED, never_started};

impl Core {
    pub(crate) fn on_command(&mut self, now: Now, link: LinkId, command: Command) {
        if !self.is_current(link) {
            return;
        }
        match self.admit(now, &command) {
            // Running attempts are unknown, so the order cannot be executed. The answer to the next hello
            // repeats what still matters.
            Ok(_) if self.supervisor == Supervisor::Unheard => {}
            Ok(terms) => self.on_order(now, terms, command.order),
            Err(rejection) => self.reject(link, &rejection),
        }
    }

    /// Accepts orders only in the epoch of the last welcome: a later epoch comes with a welcome, which has
    /// its seal.
    pub(crate) fn admit(&mut self, now: Now, command: &Command) -> Result<LinkTerms, Rejection> {
        let terms = self.terms().ok_or(Rejection::OrderBeforeWelcome)?;
        match check_epoch(self.highest_epoch(), &command.epoch)? {
            EpochComparison::Known => {}
            EpochComparison::New => {
                return Err(Rejection::NotWelcomed {
                    found: command.epoch.counter,
                });
            }
        }
        if let Some(link) = &mut self.link {
            link.count(command.number)?;
        }
        terms.check_age(&command.order, command.last_heard, now.boot)?;
        Ok(terms)
    }

    pub(crate) fn on_order(&mut self, now: Now, terms: LinkTerms, order: ToNode) {
        match order {
            ToNode::Assign(assignment) => self.on_assign(now, terms, *assignment),
            ToNode::Stop {
                attempt,
                why,
                grace,
            } => self.on_stop(now, attempt, why, grace),
            ToNode::Forget { attempt } => self.on_forget(attempt),
            ToNode::Suspend { attempt, room_mb } => self.on_suspend(now, attempt, room_mb),
            ToNode::Resume { attempt } => self.on_resume(now, attempt),
            ToNode::RestoreGpus { gpus } => self.on_restore_gpus(&gpus),
            ToNode::ShowWarrant { attempt } => self.on_show(attempt),
            ToNode::Carve(order) => self.on_carve(*order),
        }
    }

    pub(crate) fn on_show(&mut self, attempt: AttemptId) {
        if let Some(link) = self.link.as_ref().map(|link| link.id) {
            self.outputs.push(Output::ShowWarrant { link, attempt });
        }
    }

    pub(crate) fn on_assign(&mut self, now: Now, terms: LinkTerms, mut assignment: Assignment) {
        let id = assignment.attempt.clone();
        if let Some(phase) = self.status(&id) {
            return self.report(&id, phase);
        }
        if let Some(exit) = self.refusal(now, &assignment) {
            return self.settle(id, never_started(now, exit, None));
        }
        let processors = match self.processors_for(&assignment) {
            Ok(processors) => processors,
            Err(exit) => return self.settle(id, never_started(now, exit, None)),
        };
        let ports = match self.ports_for(&assignment) {
            Ok(ports) => ports,
            Err(exit) => return self.settle(id, never_started(now, exit, None)),
        };
        let warrant = core::mem::take(&mut assignment.warrant);
        if !warrant.is_empty() {
            let attempt = id.clone();
            self.outputs.push(Output::KeepWarrant { attempt, warrant });
        }
        self.note_gpus(&id, &assignment.gpus, assignment.is_allocation());
        self.note_processors(&id, &processors.own);
        let probes = core::mem::take(&mut assignment.probes);
        let is_measured = assignment.is_measured;
        let names = assignment.ports.clone();
        let files = core::mem::take(&mut assignment.inputs);
        let mut spec = spawn::spec(assignment, processors, &ports, &self.settings, terms);
        let awaits_inputs = !files.is_empty();
        spec.inputs = awaits_inputs.then(|| format!("{}/{id}", self.settings.inputs_dir));
        let starting = Attempt::Starting {
            spec: Box::new(spec),
            was_sent: false,
            awaits_inputs,
        };
        self.attempts.insert(id.clone(), starting);
        self.report(&id, AttemptPhase::Starting);
        let ports = names.into_iter().zip(ports).collect();
        self.begin_endpoint(&id, ports, probes, is_measured);
        if awaits_inputs {
            let attempt = id.clone();
            self.outputs.push(Output::FetchInputs { attempt, files });
        }
        self.spawn(&id);
    }

    /// Why an assignment does not start at all.
    pub(crate) fn refusal(&self, now: Now, assignment: &Assignment) -> Option<Exit> {
        if self.attempts.len() >= MAX_ATTEMPTS_PER_NODE {
            return Some(Exit::StartFailed(format!(
                "the host already holds {} attempts, and the maximum is {MAX_ATTEMPTS_PER_NODE}: wait until some of them have ended, or add hosts",
                self.attempts.len()
            )));
        }
        if let Some(why) = self.reported_absence() {
            return Some(Exit::NotBegun(why.to_owned()));
        }
        let gpus = assignment.gpus.iter();
        let mut carved = gpus.filter(|gpu| self.is_carved(gpu));
        if let Some(gpu) = carved.next() {
            return Some(Exit::NotBegun(format!(
                "GPU `{gpu}` is being cut into slices"
            )));
        }
        self.lease_passed(now)
            .then(|| Exit::NotBegun(LEASE_PASSED.to_owned()))
    }

    /// Reports an unknown attempt as released and remembers it, so that a late assignment does not start it.
    /// A host at its maximum of attempts only reports.
    pub(crate) fn settle(&mut self, id: AttemptId, end: AttemptEnd) {
        self.report(&id, AttemptPhase::Released(end.clone()));
        if self.attempts.len() < MAX_ATTEMPTS_PER_NODE {
            self.attempts.insert(id, Attempt::Released { end });
        }
    }

    pub(crate) fn on_stop(&mut self, now: Now, id: AttemptId, why: StopReason, grace: Span) {
        if self.attempts.contains_key(&id) {
            self.release_gpus_early(&id);
            self.change(&id, |attempt| attempt.on_stop(now, why, grace));
        } else {
            self.settle(id, never_started(now, Exit::Unknown, Some(why)));
        }
    }

    /// Forgets an attempt if it is released; before that its resources are not free, so the order is invalid.
    pub(crate) fn on_forget(&mut self, attempt: AttemptId) {
        if let Some(Attempt::Released { .. }) = self.attempts.get(&attempt) {
            self.attempts.remove(&attempt);
            self.forget_gpus(&attempt);
            self.endpoints.remove(&attempt);
            self.supervise(ToSupervisor::Forget { attempt });
        }
    }
}
