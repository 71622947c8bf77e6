//! Whether a preemption is lawful.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId};

use super::facts::{Gone, Kept};
use super::units::{GPU, MCPU, plus};
use super::{Ask, Judge, JudgedRun, Verdict, rule};
use crate::Nomination;

/// A preemption to be judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taking<'a> {
    pub(super) ask: &'a Ask,
    pub(super) pool: &'a PoolName,
    pub(super) hosts: &'a [NodeName],
    pub(super) victims: &'a Gone,
    /// All that it awaits: the victims, and what goes anyhow.
    pub(super) awaits: &'a Gone,
    pub(super) keeps: Keeps,
}

/// What must stay free for others while some runs are gone.
pub(super) type Keeps = fn(&Judge, &PoolName, &Ask, &Gone) -> Kept;

impl Judge {
    pub(super) fn judge_preemption(
        &self,
        step: &StepId,
        nomination: &Nomination,
        victims: &BTreeSet<AttemptId>,
        frozen: &BTreeSet<AttemptId>,
    ) -> Verdict {
        let ask = self.waiting.get(step);
        rule("only_what_waits_is_nominated", ask.is_some(), || {
            format!("{step} does not wait")
        })?;
        let Some(ask) = ask else { return Ok(()) };
        let taking = Taking {
            ask,
            pool: &nomination.pool,
            hosts: &nomination.hosts,
            victims,
            awaits: &nomination.awaits,
            keeps: Judge::promised,
        };
        self.awaited_runs_go(taking)?;
        self.waiter_is_not_promised_twice(taking)?;
        self.nobody_is_evicted_twice_for_the_same_waiter(taking)?;
        self.no_preemption_when_it_would_fit_without(taking)?;
        // Without what the head is promised, or else with it.
        let whole = |taking| {
            self.is_lawful(taking)?;
            self.what_may_be_frozen_is(taking, frozen)
        };
        if whole(taking).is_err() {
            let keeps = Judge::forbidden;
            whole(Taking { keeps, ..taking })?;
        }
        self.the_head_is_nominated(ask, &nomination.pool)?;
        self.nobody_ahead_could_start_or_preempt(taking)
    }

    /// All rules about a set of victims and the hosts for which it is taken.
    pub(super) fn is_lawful(&self, taking: Taking<'_>) -> Verdict {
        self.victims_are_preemptible_runs_of_the_pool(taking)?;
        self.preemption_cures_the_shortage(taking)?;
        self.own_gpus_are_not_promised(taking)?;
        self.every_victim_is_needed(taking)?;
        self.every_victim_has_a_ground(taking)?;
        self.stability(taking)
    }

    /// "With the set of runs whose end it awaits."
    fn awaited_runs_go(&self, taking: Taking<'_>) -> Verdict {
        let Taking {
            victims,
            awaits,
            ask,
            ..
        } = taking;
        let mut others = awaits.difference(victims);
        let stays = others.find(|id| self.runs.get(*id).is_none_or(|run| !run.stopping));
        let kept = stays.is_none() && victims.is_subset(awaits);
        rule("awaited_runs_go", kept, || {
            format!("{}: {stays:?} of {awaits:?}", ask.step)
        })
    }

    /// "It does not move elsewhere meanwhile, and victims are not revoked."
    fn waiter_is_not_promised_twice(&self, taking: Taking<'_>) -> Verdict {
        let promise = self.promises.get(&taking.ask.step);
        let kept = promise.is_none_or(|promise| !promise.firm);
        rule("waiter_is_not_promised_twice", kept, || {
            format!("{promise:?}")
        })
    }

    /// "With finished runs and the same queue, no run is evicted twice for the same waiter."
    fn nobody_is_evicted_twice_for_the_same_waiter(&self, taking: Taking<'_>) -> Verdict {
        let waiter = &taking.ask.step;
        let mut victims = taking.victims.iter();
        let again = victims.find(|id| self.gave_way.contains(&(id.step.clone(), waiter.clone())));
        rule(
            "nobody_is_evicted_twice_for_the_same_waiter",
            again.is_none(),
            || format!("{again:?} for {waiter}"),
        )
    }

    /// "All are tried for free units, in order of policy priority, before any preemption in any."
    fn no_preemption_when_it_would_fit_without(&self, taking: Taking<'_>) -> Verdict {
        let pools = self.pools_of(taking.ask);
        let free = pools.iter().find(|pool| self.could_start(pool, taking.ask));
        rule(
            "no_preemption_when_it_would_fit_without",
            free.is_none(),
            || {
                format!(
                    "{} could start in {free:?}, takes {:?}",
                    taking.ask.step, taking.victims
                )
            },
        )
    }

    /// "A preemptible run of the same pool"; "no non-preemptible victim".
    fn victims_are_preemptible_runs_of_the_pool(&self, taking: Taking<'_>) -> Verdict {
        let mut victims = taking.victims.iter();
        let wrong = victims.find(|id| {
            let run = self.runs.get(*id);
            run.is_none_or(|run| {
                let stays = !run.ask.preemptible || run.stopping || self.is_resuming(run);
                stays || run.pool != *taking.pool
            })
        });
        rule(
            "victims_are_preemptible_runs_of_the_pool",
            wrong.is_none(),
            || format!("{wrong:?} for {}", taking.ask.step),
        )
    }

    /// "It happens only if it cures the shortage."
    pub(super) fn preemption_cures_the_shortage(&self, taking: Taking<'_>) -> Verdict {
        let Taking {
            ask,
            pool,
            hosts,
            awaits,
            keeps,
            ..
        } = taking;
        let kept = &keeps(self, pool, ask, awaits);
        let cures = self.fits(pool, ask, hosts, awaits, kept)
            && self.leaves_promises_possible(pool, ask, awaits);
        rule("preemption_cures_the_shortage", cures, || {
            format!(
                "{} on {hosts:?} without {awaits:?}, others keep {kept:?}",
                ask.step
            )
        })
    }

    /// "A victim without which the request still fits is spared."
    fn every_victim_is_needed(&self, taking: Taking<'_>) -> Verdict {
        let Taking {
            ask,
            pool,
            hosts,
            awaits,
            keeps,
            ..
        } = taking;
        let mut victims = taking.victims.iter();
        let idle = victims.find(|id| {
            let mut without = awaits.clone();
            without.remove(*id);
            let kept = &keeps(self, pool, ask, &without);
            self.fits(pool, ask, hosts, &without, kept)
                && self.leaves_promises_possible(pool, ask, &without)
        });
        rule("every_victim_is_needed", idle.is_none(), || {
            format!("{idle:?} is not, for {} on {hosts:?}", ask.step)
        })
    }

    /// The keys of which the request is short where those `counted` so far give way, and that a run uses there.
    fn short_keys_of(&self, taking: Taking<'_>, run: &JudgedRun, counted: &Gone) -> Vec<usize> {
        let Taking {
            ask,
            pool,
            hosts,
            awaits,
            victims,
            keeps,
        } = taking;
        let anyhow = awaits.difference(victims).chain(counted);
        let anyhow: Gone = anyhow.cloned().collect();
        // What it takes of what a head awaits is the head's first.
        let kept = &keeps(self, pool, ask, awaits);
        let mut short: BTreeSet<usize> = self.short_in_pool(pool, ask, &anyhow, kept).collect();
        if run.ask.subject == ask.subject {
            // What another of the subject is promised of the limit is as good as used.
            short.extend(self.over_limit_beside_promises(pool, ask, &anyhow));
        }
        short.retain(|key| run.total()[*key] > 0);
        for node in hosts.iter().filter(|node| run.holding.contains(*node)) {
            let there = self.short_on(node, ask, &anyhow, kept);
            short.extend(there.filter(|key| run.each()[*key] > 0));
        }
        short.into_iter().collect()
    }

    /// "Own, then lowest policy priority; then the run whose loss costs least; then the latest attempt start; then the
    /// latest submission."
    pub(super) fn victim_order(&self, taking: Taking<'_>, id: &AttemptId) -> impl Ord + use<> {
        let run = &self.runs[id];
        let priority = self.priority(taking.pool, &run.ask.subject);
        let own = self.is_own(taking, run);
        let lost = self.work_lost(run);
        (
            !own,
            priority,
            lost,
            Reverse(run.began),
            Reverse(run.ask.place),
        )
    }

    /// "GPU-seconds, or core-seconds where no GPU is held, since its start."
    fn work_lost(&self, run: &JudgedRun) -> u64 {
        let units = match run.ask.each[GPU] {
            0 => run.ask.each[MCPU] / 1000,
            gpus => gpus,
        };
        // What is younger than a second has lost nothing.
        units * run.ask.nodes * ((self.now - run.began) / 1000)
    }

    /// "*own*: the waiter is non-preemptible inside `reserved`, and the run is its own subject's."
    fn is_own(&self, taking: Taking<'_>, run: &JudgedRun) -> bool {
        let Taking { ask, pool, .. } = taking;
        !ask.preemptible && self.is_in_share(pool, ask) && run.ask.subject == ask.subject
    }

    /// "*own*", "*take-back*", "*priority*" or "*reclaim*"; "candidates are counted off against their subject's excess
    /// one by one, so a subject is never pushed below its reserved share except by the one run that straddles the
    /// line"; "a run is exempt from *priority* and *reclaim* for the pool's `min_runtime` after its start".
    fn every_victim_has_a_ground(&self, taking: Taking<'_>) -> Verdict {
        let mut order: Vec<&AttemptId> = taking.victims.iter().collect();
        order.sort_by_cached_key(|id| self.victim_order(taking, id));
        // What goes anyhow is nobody's to lose any more.
        let leaving = self.runs.iter().filter(|(_, run)| run.stopping);
        let mut gone: Gone = leaving.map(|(id, _)| id.clone()).collect();
        for id in order {
            self.victim_has_a_ground(taking, id, &gone)?;
            gone.insert(id.clone());
        }
        Ok(())
    }

    pub(super) fn victim_has_a_ground(
        &self,
        taking: Taking<'_>,
        id: &AttemptId,
        gone: &Gone,
    ) -> Verdict {
        let Taking { ask, pool, .. } = taking;
        let run = &self.runs[id];
        let counted: Gone = gone.intersection(taking.victims).cloned().collect();
        let short = self.short_keys_of(taking, run, &counted);
        rule("victims_use_a_short_key", !short.is_empty(), || {
            format!("{id} for {} on {:?}", ask.step, taking.hosts)
        })?;
        if self.is_own(taking, run) {
            return Ok(());
        }
        if run.backfill.contains(&ask.step) {
            return self.in_share_goes_only_for_keys_that_count(taking, id, gone, &short);
        }
        let mine = run.ask.subject == ask.subject;
        rule("a_subject_never_preempts_itself", !mine, || {
            format!("{id} for {}", ask.step)
        })?;
        let spared = self.now < run.began + self.pools[pool].min_runtime;
        rule("min_runtime_is_kept", !spared, || {
            format!("{id} for {}", ask.step)
        })?;
        let theirs = self.policy(pool, &run.ask.subject);
        let used = self.used_by(pool, &run.ask.subject, gone);
        let reserved = |key| theirs.map_or(0, |policy| policy.reserved(key).unwrap_or(0));
        let excess: Vec<usize> = short
            .iter()
            .copied()
            .filter(|k| used[*k] > reserved(*k))
            .collect();
        rule(
            "nobody_is_pushed_below_its_reserved_share",
            !excess.is_empty(),
            || format!("{id} for {}: holds {used:?}, short {short:?}", ask.step),
        )?;
        let higher = self.priority(pool, &ask.subject) > self.priority(pool, &run.ask.subject);
        let reclaims = self.is_in_share(pool, ask);
        let excess: Vec<usize> = excess
            .into_iter()
            .filter(|key| reclaims || !self.fits_in_its_share(pool, id, *key))
            .collect();
        rule(
            "a_borrower_takes_no_in_share_run",
            !excess.is_empty(),
            || format!("{id} for {}: short {short:?}", ask.step),
        )?;
        rule("only_priority_or_reclaim", higher || reclaims, || {
            format!("{id} for {}", ask.step)
        })?;
        self.in_share_goes_only_for_keys_that_count(taking, id, gone, &excess)
    }

    /// "Only those runs are candidates for a short key that are left over when its reserved share of that key is filled
    /// with its runs, non-preemptible first, then the largest, then the oldest."
    fn fits_in_its_share(&self, pool: &PoolName, id: &AttemptId, key: usize) -> bool {
        let subject = &self.runs[id].ask.subject;
        let policy = self.policy(pool, subject);
        let mut room = policy.map_or(0, |policy| policy.reserved(key).unwrap_or(0));
        let runs = self.runs_of(pool);
        let mut runs: Vec<_> = runs
            .filter(|(_, run)| run.ask.subject == *subject && !run.stopping && run.total()[key] > 0)
            .collect();
        runs.sort_by_key(|(id, run)| {
            let held = Reverse(run.total()[key]);
            (run.ask.preemptible, held, run.began, run.ask.place, *id)
        });
        for (other, run) in runs {
            let held = run.total()[key];
            if held <= room {
                room -= held;
                if other == id {
                    return true;
                }
            }
        }
        false
    }

    /// Not in so many words in the law, which thrashes without it: a run that would be in share again is not taken for a
    /// key that does not count in the waiter's share, for the two would take it from each other for ever.
    fn in_share_goes_only_for_keys_that_count(
        &self,
        taking: Taking<'_>,
        id: &AttemptId,
        gone: &Gone,
        excess: &[usize],
    ) -> Verdict {
        let Taking { ask, pool, .. } = taking;
        let ours = self.policy(pool, &ask.subject);
        let counts = |key: &usize| {
            self.is_metered(pool, *key) && ours.is_some_and(|ours| ours.reserved(*key).is_some())
        };
        let mut without = gone.clone();
        without.insert(id.clone());
        let again = self.is_in_share_without(pool, &self.runs[id].ask, &without);
        let kept = !self.is_in_share(pool, ask) || excess.iter().any(counts) || !again;
        rule("in_share_goes_only_for_keys_that_count", kept, || {
            format!("{id} for {}, which is short of {excess:?}", ask.step)
        })
    }

    /// "A waiter that must borrow (take-back included) may take a set only if, once it is gone, no run in it and no
    /// queued request of a victim's subject would be an in-share request."
    pub(super) fn stability(&self, taking: Taking<'_>) -> Verdict {
        let Taking {
            ask, pool, victims, ..
        } = taking;
        if self.is_in_share(pool, ask) {
            return Ok(());
        }
        let leaving = self.runs.iter().filter(|(_, run)| run.stopping);
        let gone: Gone = leaving.map(|(id, _)| id).chain(victims).cloned().collect();
        let theirs: Vec<&Ask> = victims.iter().map(|id| &self.runs[id].ask).collect();
        let queued = self.waiting_in(pool).filter(|other| {
            !self
                .promises
                .get(&other.step)
                .is_some_and(|promise| promise.firm)
                && other.step != ask.step
                && !other
                    .pin
                    .as_ref()
                    .is_some_and(|pin| victims.contains(&pin.attempt))
                && theirs.iter().any(|run| run.subject == other.subject)
        });
        let mut judged = theirs.iter().copied().chain(queued);
        let back = judged.find(|other| {
            // What the waiter will use of the same share, it does not take back from itself.
            let own = other.preemptible && other.subject == ask.subject;
            let mut once_it_runs = (*other).clone();
            if own {
                once_it_runs.each = plus(other.total(), ask.total());
                once_it_runs.nodes = 1;
                (0..7)
                    .filter(|key| other.total()[*key] == 0)
                    .for_each(|key| once_it_runs.each[key] = 0);
            }
            self.is_in_share_without(pool, &once_it_runs, &gone)
        });
        rule("stability", back.is_none(), || {
            format!("{back:?} would take it back from {}", ask.step)
        })
    }

    /// "Every blocked request may preempt, in order."
    fn nobody_ahead_could_start_or_preempt(&self, taking: Taking<'_>) -> Verdict {
        let Taking { ask, pool, .. } = taking;
        let ahead = self.ahead_of(pool, ask);
        let passed = ahead
            .into_iter()
            .find(|other| self.would_start_in(pool, other) || self.would_preempt_in(pool, other));
        rule(
            "nobody_ahead_could_start_or_preempt",
            passed.is_none(),
            || format!("{} takes {:?} past {passed:?}", ask.step, taking.victims),
        )
    }

    /// "Then preemption in the same order": whether victims would help a request in a pool, and free units nowhere, nor
    /// victims or what is coming free in a pool that is tried before.
    fn would_preempt_in(&self, pool: &PoolName, ask: &Ask) -> bool {
        let elsewhere = |other: &PoolName| {
            self.runs_of(other).any(|(_, run)| run.stopping)
                || self.some_victims_help(other, ask).is_some()
        };
        let mut before = self.tried_before(pool, ask).into_iter();
        let mut pools = self.pools_of(ask).into_iter();
        !pools.any(|other| self.could_start(&other, ask))
            && !before.any(|other| elsewhere(&other))
            && self.some_victims_help(pool, ask).is_some()
    }

    /// Some set of victims, of at most four, that a request may take to start.
    pub(super) fn some_victims_help(
        &self,
        pool: &PoolName,
        ask: &Ask,
    ) -> Option<(Vec<NodeName>, Gone)> {
        let promised = self.promises.get(&ask.step);
        // What is coming free by itself is waited for.
        let under_way = self.runs_of(pool).any(|(_, run)| run.stopping);
        if under_way || promised.is_some_and(|promise| promise.firm) {
            return None;
        }
        self.some_victims_help_with(pool, ask, Judge::forbidden)
    }

    pub(super) fn some_victims_help_with(
        &self,
        pool: &PoolName,
        ask: &Ask,
        keeps: Keeps,
    ) -> Option<(Vec<NodeName>, Gone)> {
        let runs = self.runs_of(pool);
        let mut ids: Vec<&AttemptId> = runs
            .filter(|(_, run)| run.ask.preemptible && !run.stopping && !self.is_resuming(run))
            .map(|(id, _)| id)
            .collect();
        ids.retain(|id| self.could_be_a_victim(pool, ask, id));
        let nobody = Gone::new();
        let kept = keeps(self, pool, ask, &nobody);
        let ours = self.policy(pool, &ask.subject);
        let shares = |key| ours.is_some_and(|ours| ours.reserved(key).is_some());
        let pool_counts = self.short_in_pool(pool, ask, &nobody, &kept).all(shares);
        let borrows = !self.is_in_share(pool, ask);
        for hosts in self.choices(pool, ask) {
            // Where the set to which the order of victims leads would be taken back, "nobody is touched", though another
            // might stay: so it is of keys that do not count in a share, for one who must borrow.
            let counted = hosts.iter().all(|node| {
                let mut short = self.short_on(node, ask, &nobody, &kept);
                short.all(|key| self.is_metered(pool, key))
            });
            if borrows && !(counted && pool_counts) {
                continue;
            }
            for victims in sets_of(&ids) {
                let taking = Taking {
                    ask,
                    pool,
                    hosts: &hosts,
                    victims: &victims,
                    awaits: &victims,
                    keeps,
                };
                let reached = || {
                    let back = borrows
                        && (self.order_leads_to_what_is_taken_back(taking, &ids)
                            || self.set_by_order_is_taken_back(taking, &ids));
                    !back && !self.own_leave_no_ground(taking, &ids)
                };
                if self.is_lawful(taking).is_ok() && reached() {
                    return Some((hosts, victims));
                }
            }
        }
        None
    }

    /// "Else it would be taken back at once; then nobody is touched": whether the order of victims leads a borrower to
    /// a run that would be, before the last of those that it could keep.
    fn order_leads_to_what_is_taken_back(&self, taking: Taking<'_>, ids: &[&AttemptId]) -> bool {
        let order = |id: &AttemptId| self.victim_order(taking, id);
        let last = taking.victims.iter().map(order).max();
        let mut before = ids.iter().filter(|id| !taking.victims.contains(**id));
        before.any(|id| {
            let one = &Gone::from([(*id).clone()]);
            let alone = Taking {
                victims: one,
                awaits: one,
                ..taking
            };
            let helps = !self
                .short_keys_of(alone, &self.runs[*id], &Gone::new())
                .is_empty();
            helps && Some(order(id)) < last && self.stability(alone).is_err()
        })
    }

    /// "Own ... come before all others, whatever the excess": whether what they cure leaves no ground for taking the rest
    /// of a set.
    fn own_leave_no_ground(&self, taking: Taking<'_>, ids: &[&AttemptId]) -> bool {
        let mut own = ids.to_vec();
        own.retain(|id| self.is_own(taking, &self.runs[*id]));
        own.sort_by_cached_key(|id| self.victim_order(taking, id));
        let mut first = Gone::new();
        for id in own {
            let short = self.short_keys_of(taking, &self.runs[id], &first);
            first.extend((!short.is_empty()).then(|| id.clone()));
        }
        first.extend(taking.victims.iter().cloned());
        let with_own = Taking {
            victims: &first,
            awaits: &first,
            ..taking
        };
        self.every_victim_has_a_ground(with_own).is_err()
    }

    /// Whether anything at all could make a run give way to a request; most could not, and their sets need not be
    /// judged.
    fn could_be_a_victim(&self, pool: &PoolName, ask: &Ask, id: &AttemptId) -> bool {
        let run = &self.runs[id];
        let higher = self.priority(pool, &ask.subject) > self.priority(pool, &run.ask.subject);
        match run.ask.subject == ask.subject {
            true => !ask.preemptible || run.backfill.contains(&ask.step),
            false => higher || self.is_in_share(pool, ask) || run.backfill.contains(&ask.step),
        }
    }
}

/// Every set of one to four of them.
fn sets_of(ids: &[&AttemptId]) -> Vec<Gone> {
    let mut sets: Vec<Gone> = Vec::from([Gone::new()]);
    for id in ids {
        let room = sets.iter().filter(|set| set.len() < 4).cloned();
        let mut with: Vec<Gone> = room.collect();
        with.iter_mut().for_each(|set| {
            set.insert((*id).clone());
        });
        sets.extend(with);
    }
    sets.retain(|set| !set.is_empty());
    sets
}
