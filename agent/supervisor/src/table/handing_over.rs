//! How a table goes over to the next program in the same process: what is left beside the spool, and how it is taken up.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use sluice_common::id::AttemptId;
use sluice_common::supervision::{FreezerState, HostPhase};

use super::{Attempt, Phase, Table};
use crate::attempt::Origin;
use crate::handover::{ChildAttempt, HookChild, KnownProcess};
use crate::spawn::StartReport;
use crate::spool::Record;

/// What an earlier program of this process left; nothing at a first start.
#[derive(Debug, Default)]
pub struct InheritedState {
    pub(super) children: BTreeMap<AttemptId, Option<StartReport>>,
    /// Those that are to be frozen as soon as they have started.
    pub(super) freezing: BTreeSet<AttemptId>,
    pub(super) killing: BTreeSet<AttemptId>,
    pub(super) seen: Vec<KnownProcess>,
    pub(super) epilogs: Vec<HookChild>,
    pub(super) afters: Vec<HookChild>,
}

impl InheritedState {
    /// Takes up what a handover says of attempts.
    ///
    /// # Errors
    /// Where a descriptor that it names is not open.
    pub fn take(
        children: Vec<ChildAttempt>,
        killing: BTreeSet<AttemptId>,
        seen: Vec<KnownProcess>,
        epilogs: Vec<HookChild>,
        afters: Vec<HookChild>,
    ) -> io::Result<Self> {
        let freezing = children.iter().filter(|child| child.freezes);
        let freezing = freezing.map(|child| child.attempt.clone()).collect();
        let children = children.into_iter().map(|child| {
            let report = child.report.map(StartReport::take_over).transpose()?;
            Ok((child.attempt, report))
        });
        Ok(Self {
            children: children.collect::<io::Result<_>>()?,
            freezing,
            killing,
            seen,
            epilogs,
            afters,
        })
    }

    /// The attempt of a record, where its process is a child of this one.
    pub(super) fn child(&mut self, record: &Record) -> Option<Attempt> {
        let report = self.children.remove(&record.attempt)?;
        let phase = match (record.phase.clone(), report) {
            (HostPhase::Running(process), Some(report)) => Phase::Starting(process, report),
            (HostPhase::Running(process), None) => Phase::Running(process, None),
            (HostPhase::Ended(end), _) => Phase::Ended(end),
            (HostPhase::Gone(end), _) => Phase::Gone(end),
        };
        Some(Attempt::handed_over(
            phase,
            record.memo.clone(),
            record.lease,
        ))
    }
}

impl Table {
    /// Whether the spool says all that the next program must know.
    pub fn is_saved(&self) -> bool {
        // Helpers and what they say are this program's alone; they take no longer than they may. Whoever is starting may
        // take for ever, and is waited for by nobody.
        let told = |attempt: &Attempt| !attempt.unsaved && attempt.moving.sent().is_none();
        self.failed.is_empty() && self.attempts.values().all(told)
    }

    /// What the next program must know beside the spool, but for the descriptors that are not the table's.
    pub fn hand_over(&self) -> (Vec<ChildAttempt>, BTreeSet<AttemptId>, Vec<KnownProcess>) {
        let live = || self.attempts.iter().filter(|(_, a)| !a.is_gone());
        let children = self.attempts.iter();
        let children = children.filter(|(_, a)| a.origin == Origin::Child);
        let children = children.map(|(id, attempt)| ChildAttempt {
            attempt: id.clone(),
            report: attempt.report().map(StartReport::hand_over),
            freezes: attempt.report().is_some() && attempt.freezer == FreezerState::Freezing,
        });
        let killing = live().filter(|(_, a)| a.killing).map(|(id, _)| id.clone());
        (
            children.collect(),
            killing.collect(),
            self.owners.hand_over(),
        )
    }

    /// The epilogs that go on while the next program takes over, children of this process as they are.
    pub fn hand_over_epilogs(&self) -> Vec<HookChild> {
        self.hooking.hand_over()
    }

    /// The same of what templates have run after attempts.
    pub fn hand_over_after_hooks(&self) -> Vec<HookChild> {
        self.afters.hand_over()
    }

    /// The descriptors that a handover names.
    pub fn handed(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.attempts
            .values()
            .filter_map(|attempt| Some(attempt.report()?.as_fd()))
    }

    /// Before and after an `exec` that did not come about.
    pub fn lower_own_limit(&self, lower: bool) {
        self.spawner.lower_own_limit(lower);
    }

    /// After [`Table::open`]: the children that this process knows by their numbers.
    pub(super) fn index_children(&mut self) {
        for (id, attempt) in &self.attempts {
            if attempt.origin == Origin::Child
                && attempt.main_is_running()
                && let Some(process) = attempt.process()
            {
                self.by_pid.insert(process.pid, id.clone());
            }
        }
    }
}
