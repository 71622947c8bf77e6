//! Number and bytes of each subject's steps, live and ended, so that a submit is checked against its subject's bounds
//! without going through all steps.

use alloc::collections::{BTreeMap, BTreeSet};

use sluice_common::id::{StepId, Subject};

/// The loads of all subjects. A subject without steps has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubjectLoads {
    subjects: BTreeMap<Subject, SubjectLoad>,
    /// Subjects by the bytes of their ended steps.
    heaviest: BTreeSet<(u64, Subject)>,
    /// Subjects by the number of their ended steps.
    fullest: BTreeSet<(usize, Subject)>,
    /// Bytes of all ended steps.
    ended_bytes: u64,
}

/// The load of one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubjectLoad {
    /// Number of steps that are not over, or still hold something.
    pub(crate) steps: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
    ended_bytes: u64,
    /// Ended steps, by the number of the record that ended them.
    ended: BTreeMap<u64, StepId>,
}

impl SubjectLoads {
    pub(crate) fn of(&self, subject: &Subject) -> Option<&SubjectLoad> {
        self.subjects.get(subject)
    }

    pub(super) fn add(&mut self, subject: &Subject, weight: u64) {
        let load = self.subjects.entry(subject.clone()).or_default();
        load.steps += 1;
        load.bytes += weight;
    }

    pub(super) fn remove(&mut self, subject: &Subject, weight: u64) {
        self.change(subject, |load| {
            load.steps -= 1;
            load.bytes -= weight;
        });
    }

    /// Counts an open step as ended.
    pub(super) fn end(&mut self, subject: &Subject, weight: u64, step: &StepId, seq: u64) {
        self.change(subject, |load| {
            load.steps -= 1;
            load.bytes -= weight;
            load.ended_bytes += weight;
            load.ended.insert(seq, step.clone());
        });
    }

    /// The reverse of [`SubjectLoads::end`].
    pub(super) fn open_again(&mut self, subject: &Subject, weight: u64, seq: u64) {
        self.change(subject, |load| {
            load.steps += 1;
            load.bytes += weight;
            load.ended_bytes -= weight;
            load.ended.remove(&seq);
        });
    }

    /// Changes the bytes of a step from `before` to `weight`. `seq` is the number of the record that ended it.
    pub(super) fn update_weight(
        &mut self,
        subject: &Subject,
        before: u64,
        weight: u64,
        seq: Option<u64>,
    ) {
        self.change(subject, |load| {
            let bytes = match seq.is_some_and(|seq| load.ended.contains_key(&seq)) {
                true => &mut load.ended_bytes,
                false => &mut load.bytes,
            };
            *bytes = *bytes - before + weight;
        });
    }

    fn change(&mut self, subject: &Subject, change: impl FnOnce(&mut SubjectLoad)) {
        let load = self.subjects.get_mut(subject);
        let load = load.expect("whose step is remembered has a load");
        let (bytes, count) = (load.ended_bytes, load.ended.len());
        change(load);
        let (bytes_now, count_now) = (load.ended_bytes, load.ended.len());
        if load.steps == 0 && load.ended.is_empty() {
            self.subjects.remove(subject);
        }
        update_ranking(&mut self.heaviest, bytes, bytes_now, subject);
        update_ranking(&mut self.fullest, count, count_now, subject);
        self.ended_bytes = self.ended_bytes - bytes + bytes_now;
    }

    /// Bytes of all ended steps.
    pub(crate) fn ended_bytes(&self) -> u64 {
        self.ended_bytes
    }

    /// The oldest ended step of the subject whose ended steps have most bytes.
    pub(crate) fn oldest_of_most_bytes(&self) -> Option<&StepId> {
        let (_, subject) = self.heaviest.last()?;
        self.subjects.get(subject)?.ended.values().next()
    }

    /// The oldest ended step of the subject with most ended steps.
    pub(crate) fn oldest_of_most_steps(&self) -> Option<&StepId> {
        let (_, subject) = self.fullest.last()?;
        self.subjects.get(subject)?.ended.values().next()
    }
}

/// Updates the rank of a subject. A subject that has nothing has no rank.
fn update_ranking<T: Ord + Default>(
    ranks: &mut BTreeSet<(T, Subject)>,
    before: T,
    now: T,
    subject: &Subject,
) {
    if before == now {
        return;
    }
    ranks.remove(&(before, subject.clone()));
    if now != T::default() {
        ranks.insert((now, subject.clone()));
    }
}
