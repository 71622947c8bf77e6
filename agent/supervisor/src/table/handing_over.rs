//! Upgrade in place: passes the state of all attempts from the running program to the new one, which replaces it in the
//! same process, and restores it there. The spool on disk has the rest.

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

/// State of the previous program in this process; empty at a normal start.
#[derive(Debug, Default)]
pub struct InheritedState {
    pub(super) children: BTreeMap<AttemptId, Option<StartReport>>,
    /// Attempts to freeze as soon as they have started.
    pub(super) freezing: BTreeSet<AttemptId>,
    pub(super) killing: BTreeSet<AttemptId>,
    pub(super) seen: Vec<KnownProcess>,
    pub(super) epilogs: Vec<HookChild>,
    pub(super) afters: Vec<HookChild>,
}

impl InheritedState {
    /// Adopts the state of a handover.
    ///
    /// # Errors
    /// If one of its descriptors is not open.
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

    /// The attempt of a record, if its process is a child of this one.
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
    /// Whether the spool is complete for the next program.
    pub fn is_saved(&self) -> bool {
        // Helpers belong to this program alone, and have a time limit. A start may take any time and is not
        // waited for.
        let told = |attempt: &Attempt| !attempt.unsaved && attempt.moving.sent().is_none();
        self.failed.is_empty() && !self.carvings.is_running() && self.attempts.values().all(told)
    }

    /// The state that is not in the spool, without descriptors of other modules.
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

    /// Running epilogs, which continue as children of this process.
    pub fn hand_over_epilogs(&self) -> Vec<HookChild> {
        self.hooking.hand_over()
    }

    /// Running hooks after attempts, which continue as children of this process.
    pub fn hand_over_after_hooks(&self) -> Vec<HookChild> {
        self.afters.hand_over()
    }

    /// The descriptors in a handover.
    pub fn handed(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.attempts
            .values()
            .filter_map(|attempt| Some(attempt.report()?.as_fd()))
    }

    /// Called before an `exec`, and after one that failed.
    pub fn lower_own_limit(&self, lower: bool) {
        self.spawner.lower_own_limit(lower);
    }

    /// Indexes the children of this process by pid; called by [`Table::open`].
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
