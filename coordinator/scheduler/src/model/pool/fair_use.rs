//! Counts what the subjects of a pool use over time, for fair share.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

use sluice_common::id::Subject;
use sluice_common::time::Time;

use crate::model::fair_share::FairUse;
use crate::model::pool::Pool;

impl Pool {
    /// Decayed use of a subject at a time; `None` without fair share.
    pub fn fair_use(&self, subject: &Subject, at: Time) -> Option<FairUse> {
        let half_life = self.terms.fair_share.as_ref()?.half_life;
        let account = self.accounts.get(subject);
        let counted = self.fair_uses.get(subject).cloned();
        let counted = counted.unwrap_or_else(|| FairUse {
            at,
            ..FairUse::default()
        });
        let by_user = self.terms.fair_users;
        Some(counted.later(account, (half_life, by_user), at))
    }

    /// Counts the use of a subject until a time. Called before its account changes.
    pub(in crate::model) fn settle(&mut self, subject: &Subject, at: Time) {
        if let Some(used) = self.fair_use(subject, at) {
            self.fair_uses.insert(subject.clone(), used);
        }
    }

    /// Subjects whose use is counted; with fair share, also those who begin to use something.
    pub(in crate::model) fn counted_subjects(&self) -> BTreeSet<Subject> {
        let mut subjects: BTreeSet<Subject> = self.fair_uses.keys().cloned().collect();
        if self.terms.fair_share.is_some() {
            subjects.extend(self.accounts.keys().cloned());
        }
        subjects
    }

    /// Forgets the next subject by name if it holds nothing and nothing is left of its use. Called with each change of an
    /// account, so that forgotten subjects do not add up.
    pub(in crate::model) fn forget_after(
        &mut self,
        subject: &Subject,
        at: Time,
    ) -> Option<Subject> {
        let mut later = self
            .fair_uses
            .range((Bound::Excluded(subject), Bound::Unbounded));
        let next = later.next().or_else(|| self.fair_uses.first_key_value());
        let next = next.map(|(next, _)| next.clone());
        let next = next.filter(|next| !self.accounts.contains_key(next))?;
        let is_over = self.fair_use(&next, at).is_none_or(|left| left.is_over());
        if is_over {
            self.fair_uses.remove(&next);
        }
        is_over.then_some(next)
    }

    pub(crate) fn fair_uses(&self) -> &BTreeMap<Subject, FairUse> {
        &self.fair_uses
    }

    pub(in crate::model) fn set_fair_uses(&mut self, uses: BTreeMap<Subject, FairUse>) {
        self.fair_uses = uses;
    }
}
