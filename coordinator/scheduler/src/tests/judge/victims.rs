//! Whether a preemption is lawful.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId};

use super::amounts::{GPU, MCPU, in_pools, plus};
use super::facts::{JudgedReservations, RemovedRuns};
use super::{Judge, JudgedRequest, JudgedRun, RuleResult, rule};
use crate::Nomination;

/// A preemption to judge.
#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedPreemption<'a> {
    pub(super) ask: &'a JudgedRequest,
    pub(super) pool: &'a PoolName,
    pub(super) hosts: &'a [NodeName],
    pub(super) victims: &'a RemovedRuns,
    /// All awaited runs: victims, and runs that are being released anyhow.
    pub(super) awaits: &'a RemovedRuns,
    pub(super) keeps: ReservationsOf,
}

impl JudgedPreemption<'_> {
    /// The runs that are being released anyhow, and these victims.
    fn gone_with(&self, counted: &RemovedRuns) -> RemovedRuns {
        let anyhow = self.awaits.difference(self.victims);
        anyhow.chain(counted).cloned().collect()
    }
}

/// Reservations of others without some runs.
pub(super) type ReservationsOf =
    fn(&Judge, &PoolName, &JudgedRequest, &RemovedRuns) -> JudgedReservations;

impl Judge {
    pub(super) fn judge_preemption(
        &self,
        step: &StepId,
        nomination: &Nomination,
        victims: &BTreeSet<AttemptId>,
        frozen: &BTreeSet<AttemptId>,
    ) -> RuleResult {
        let ask = self.waiting.get(step);
        rule("only_what_waits_is_nominated", ask.is_some(), || {
            format!("{step} does not wait")
        })?;
        let Some(ask) = ask else { return Ok(()) };
        let preemption = JudgedPreemption {
            ask,
            pool: &nomination.pool,
            hosts: &nomination.hosts,
            victims,
            awaits: &nomination.awaits,
            keeps: Judge::promised,
        };
        self.awaited_runs_go(preemption)?;
        self.waiter_is_not_promised_twice(preemption)?;
        self.nobody_is_evicted_twice_for_the_same_waiter(preemption)?;
        self.no_preemption_when_it_would_fit_without(preemption)?;
        // Without the resources of the head, or else with them.
        let whole = |preemption| {
            self.is_lawful(preemption)?;
            self.what_may_be_frozen_is(preemption, frozen)
        };
        if whole(preemption).is_err() {
            let keeps = Judge::forbidden;
            whole(JudgedPreemption {
                keeps,
                ..preemption
            })?;
        }
        self.own_victims_pass_nothing_on(preemption)?;
        self.the_head_is_nominated(ask, &nomination.pool)?;
        self.nobody_ahead_could_start_or_preempt(preemption)
    }

    /// All rules about a set of victims and its hosts.
    pub(super) fn is_lawful(&self, preemption: JudgedPreemption<'_>) -> RuleResult {
        self.victims_are_preemptible_runs_of_the_pool(preemption)?;
        self.preemption_cures_the_shortage(preemption)?;
        self.own_gpus_are_not_promised(preemption)?;
        self.every_victim_is_needed(preemption)?;
        self.every_victim_has_a_ground(preemption)?;
        self.victims_fit_the_budget(preemption)?;
        self.no_start_is_taken_back_at_once(preemption)?;
        self.stability(preemption)
    }

    /// "A waiter may take no set if an earlier nominated request would then take back or preempt the waiter itself": asked
    /// of the head, on whose units the waiter would be backfill, on the waiter's host and where it is nominated. "Nobody else
    /// can take" what a waiter whose victims go is promised, the head no more than others: it does not start at once if that
    /// would use the limit or share of such a waiter of its own subject.
    fn no_start_is_taken_back_at_once(&self, preemption: JudgedPreemption<'_>) -> RuleResult {
        let JudgedPreemption {
            ask,
            pool,
            hosts,
            awaits,
            ..
        } = preemption;
        let Some(head) = self.head_before(pool, ask) else {
            return Ok(());
        };
        let promised = self.promised(pool, ask, awaits);
        if self.fits(pool, ask, hosts, awaits, &promised) {
            return Ok(());
        }
        let ahead = &self.waiting[head];
        let firm = self.firm_promises(pool, ahead, awaits);
        let may_start = self.leaves_promises_possible(pool, ahead, awaits);
        let mut choices = self.choices(pool, ahead).into_iter();
        let back = choices.find(|choice| {
            let is_nominated = *choice == self.nominations[head].hosts;
            let there = is_nominated || (ahead.nodes == 1 && hosts.contains(&choice[0]));
            there && may_start && self.fits(pool, ahead, choice, awaits, &firm)
        });
        rule("no_start_is_taken_back_at_once", back.is_none(), || {
            format!("{} would give {back:?} back to {head}", ask.step)
        })
    }

    /// "Own victims go only if that does not make one of them preempt a run which alone would have been enough": one that
    /// is in share again once the waiter runs would.
    fn own_victims_pass_nothing_on(&self, preemption: JudgedPreemption<'_>) -> RuleResult {
        let JudgedPreemption {
            ask, pool, victims, ..
        } = preemption;
        let own = victims.iter().map(|id| &self.runs[id].ask);
        let own = own.filter(|other| other.subject == ask.subject);
        let again = own.filter(|other| {
            let mut with_waiter = (*other).clone();
            with_waiter.each = plus(other.total(), ask.total());
            with_waiter.nodes = 1;
            let mut keys = self.metered(pool).filter(|key| other.total()[*key] > 0);
            let policy = self.policy(pool, &other.subject);
            let counts =
                keys.any(|key| policy.is_some_and(|policy| policy.reserved(key).is_some()));
            (0..7)
                .filter(|key| other.total()[*key] == 0)
                .for_each(|key| with_waiter.each[key] = 0);
            counts && self.is_in_share_without(pool, &with_waiter, victims)
        });
        if again.count() == 0 {
            return Ok(());
        }
        let foreign = self.runs_of(pool).filter(|(_, run)| {
            run.ask.subject != ask.subject
                && run.ask.preemptible
                && !run.stopping
                && !self.is_resuming(run)
        });
        let mut foreign = foreign.map(|(id, _)| RemovedRuns::from([id.clone()]));
        let enough = foreign.find(|one| {
            let mut choices = self.choices(pool, ask).into_iter();
            choices.any(|hosts| {
                let alone = JudgedPreemption {
                    hosts: &hosts,
                    victims: one,
                    awaits: one,
                    keeps: Judge::promised,
                    ..preemption
                };
                self.is_lawful(alone).is_ok()
            })
        });
        rule("own_victims_pass_nothing_on", enough.is_none(), || {
            format!("{} takes {victims:?}, and {enough:?} is enough", ask.step)
        })
    }

    /// "With the set of runs whose end it awaits."
    fn awaited_runs_go(&self, preemption: JudgedPreemption<'_>) -> RuleResult {
        let JudgedPreemption {
            victims,
            awaits,
            ask,
            ..
        } = preemption;
        let mut others = awaits.difference(victims);
        let stays = others.find(|id| self.runs.get(*id).is_none_or(|run| !run.stopping));
        let holds = stays.is_none() && victims.is_subset(awaits);
        rule("awaited_runs_go", holds, || {
            format!("{}: {stays:?} of {awaits:?}", ask.step)
        })
    }

    /// "It does not move elsewhere meanwhile, and victims are not revoked."
    fn waiter_is_not_promised_twice(&self, preemption: JudgedPreemption<'_>) -> RuleResult {
        let nomination = self.nominations.get(&preemption.ask.step);
        let holds = nomination.is_none_or(|nomination| !nomination.firm);
        rule("waiter_is_not_promised_twice", holds, || {
            format!("{nomination:?}")
        })
    }

    /// "With finished runs and the same queue, no run is evicted twice for the same waiter."
    fn nobody_is_evicted_twice_for_the_same_waiter(
        &self,
        preemption: JudgedPreemption<'_>,
    ) -> RuleResult {
        let waiter = &preemption.ask.step;
        let mut victims = preemption.victims.iter();
        let again = victims.find(|id| self.gave_way.contains(&(id.step.clone(), waiter.clone())));
        rule(
            "nobody_is_evicted_twice_for_the_same_waiter",
            again.is_none(),
            || format!("{again:?} for {waiter}"),
        )
    }

    /// "All are tried for free units, in order of policy priority, before any preemption in any."
    fn no_preemption_when_it_would_fit_without(
        &self,
        preemption: JudgedPreemption<'_>,
    ) -> RuleResult {
        let pools = self.pools_of(preemption.ask);
        let free = pools
            .iter()
            .find(|pool| self.could_start(pool, preemption.ask));
        rule(
            "no_preemption_when_it_would_fit_without",
            free.is_none(),
            || {
                format!(
                    "{} could start in {free:?}, takes {:?}",
                    preemption.ask.step, preemption.victims
                )
            },
        )
    }

    /// "A preemptible run of the same pool"; "no non-preemptible victim".
    fn victims_are_preemptible_runs_of_the_pool(
        &self,
        preemption: JudgedPreemption<'_>,
    ) -> RuleResult {
        let mut victims = preemption.victims.iter();
        let wrong = victims.find(|id| {
            let run = self.runs.get(*id);
            run.is_none_or(|run| {
                let stays = !run.ask.preemptible || run.stopping || self.is_resuming(run);
                stays || run.pool != *preemption.pool
            })
        });
        rule(
            "victims_are_preemptible_runs_of_the_pool",
            wrong.is_none(),
            || format!("{wrong:?} for {}", preemption.ask.step),
        )
    }

    /// "It happens only if it cures the shortage."
    pub(super) fn preemption_cures_the_shortage(
        &self,
        preemption: JudgedPreemption<'_>,
    ) -> RuleResult {
        let JudgedPreemption {
            ask,
            pool,
            hosts,
            awaits,
            keeps,
            ..
        } = preemption;
        let reservations = &keeps(self, pool, ask, awaits);
        let cures = self.fits(pool, ask, hosts, awaits, reservations)
            && self.leaves_promises_possible(pool, ask, awaits);
        rule("preemption_cures_the_shortage", cures, || {
            format!(
                "{} on {hosts:?} without {awaits:?}, others keep {reservations:?}",
                ask.step
            )
        })
    }

    /// "A victim without which the request still fits is spared."
    fn every_victim_is_needed(&self, preemption: JudgedPreemption<'_>) -> RuleResult {
        let JudgedPreemption {
            ask,
            pool,
            hosts,
            awaits,
            keeps,
            ..
        } = preemption;
        let mut victims = preemption.victims.iter();
        let idle = victims.find(|id| {
            let mut without = awaits.clone();
            without.remove(*id);
            let reservations = &keeps(self, pool, ask, &without);
            self.fits(pool, ask, hosts, &without, reservations)
                && self.leaves_promises_possible(pool, ask, &without)
        });
        rule("every_victim_is_needed", idle.is_none(), || {
            format!("{idle:?} is not, for {} on {hosts:?}", ask.step)
        })
    }

    /// The resources that the request is short of after the `counted` victims, and that a run uses there.
    fn short_keys_of(
        &self,
        preemption: JudgedPreemption<'_>,
        run: &JudgedRun,
        counted: &RemovedRuns,
    ) -> Vec<usize> {
        let JudgedPreemption {
            ask,
            pool,
            hosts,
            keeps,
            ..
        } = preemption;
        let anyhow = preemption.gone_with(counted);
        // The head is promised what it needs "beyond what those runs hold" that it awaits: its part of a run only once
        // that run is counted. What is free beside both is not short.
        let reservations = &keeps(self, pool, ask, &anyhow);
        let mut short: BTreeSet<usize> = self
            .short_in_pool(pool, ask, &anyhow, reservations)
            .collect();
        if run.ask.subject == ask.subject {
            // Limits nominated to others of the subject count as used.
            short.extend(self.over_limit_beside_promises(pool, ask, &anyhow));
        }
        short.retain(|key| run.total()[*key] > 0);
        for node in hosts.iter().filter(|node| run.holding.contains(*node)) {
            let there = self.short_on(node, ask, &anyhow, reservations);
            let uses = there.filter(|key| run.each()[*key] > 0);
            short.extend(uses.map(in_pools));
        }
        short.into_iter().collect()
    }

    /// "Own, then lowest policy priority; then the run whose loss costs least; then the latest attempt start; then the
    /// latest submission."
    pub(super) fn victim_order(
        &self,
        preemption: JudgedPreemption<'_>,
        id: &AttemptId,
    ) -> impl Ord + use<> {
        let run = &self.runs[id];
        let priority = self.priority(preemption.pool, &run.ask.subject);
        let own = self.is_own(preemption, run);
        let lost = self.work_lost(run) << self.times_evicted(run);
        (
            !own,
            priority,
            lost,
            Reverse(run.start_time),
            Reverse(run.ask.place),
        )
    }

    /// "GPU-seconds, or core-seconds where no GPU is held, since its start", in thousandths.
    pub(super) fn work_lost(&self, run: &JudgedRun) -> u64 {
        let units = match run.ask.each[GPU] {
            0 => run.ask.each[MCPU] - run.ask.each[MCPU] % 1000,
            gpus => gpus,
        };
        // A run younger than a second has lost nothing.
        units * run.ask.nodes * ((self.now - run.start_time) / 1000)
    }

    /// "*own*: the waiter is non-preemptible inside `reserved`, and the run is its own subject's."
    fn is_own(&self, preemption: JudgedPreemption<'_>, run: &JudgedRun) -> bool {
        let JudgedPreemption { ask, pool, .. } = preemption;
        !ask.preemptible && self.is_in_share(pool, ask) && run.ask.subject == ask.subject
    }

    /// "*own*", "*take-back*", "*priority*" or "*reclaim*"; "candidates are counted off against their subject's excess
    /// one by one, so a subject is never pushed below its reserved share except by the one run that straddles the
    /// line"; "a run is exempt from *priority* and *reclaim* for the pool's `min_runtime` after its start".
    fn every_victim_has_a_ground(&self, preemption: JudgedPreemption<'_>) -> RuleResult {
        let mut order: Vec<&AttemptId> = preemption.victims.iter().collect();
        order.sort_by_cached_key(|id| self.victim_order(preemption, id));
        // Runs that are being released anyhow have nothing to lose.
        let releasing = self.runs.iter().filter(|(_, run)| run.stopping);
        let mut gone: RemovedRuns = releasing.map(|(id, _)| id.clone()).collect();
        for id in order {
            self.victim_has_a_ground(preemption, id, &gone)?;
            gone.insert(id.clone());
        }
        Ok(())
    }

    pub(super) fn victim_has_a_ground(
        &self,
        preemption: JudgedPreemption<'_>,
        id: &AttemptId,
        gone: &RemovedRuns,
    ) -> RuleResult {
        let JudgedPreemption { ask, pool, .. } = preemption;
        let run = &self.runs[id];
        let counted: RemovedRuns = gone.intersection(preemption.victims).cloned().collect();
        let short = self.short_keys_of(preemption, run, &counted);
        rule("victims_use_a_short_key", !short.is_empty(), || {
            format!("{id} for {} on {:?}", ask.step, preemption.hosts)
        })?;
        if self.is_own(preemption, run) {
            return Ok(());
        }
        if run.backfill.contains(&ask.step) {
            return self.in_share_goes_only_for_keys_that_count(preemption, id, gone, &short);
        }
        let mine = run.ask.subject == ask.subject;
        rule("a_subject_never_preempts_itself", !mine, || {
            format!("{id} for {}", ask.step)
        })?;
        let protection = self.now < run.start_time + self.pools[pool].min_runtime;
        rule("min_runtime_is_kept", !protection, || {
            format!("{id} for {}", ask.step)
        })?;
        rule(
            "evicted_runs_are_spared",
            self.priority_may_take(pool, ask, run),
            || format!("{id} for {}", ask.step),
        )?;
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
        self.in_share_goes_only_for_keys_that_count(preemption, id, gone, &excess)
    }

    /// "Only those runs are candidates for a short key that are left over when its reserved share of that key is filled
    /// with its runs, non-preemptible first, then the largest, then the oldest."
    pub(super) fn fits_in_its_share(&self, pool: &PoolName, id: &AttemptId, key: usize) -> bool {
        let subject = &self.runs[id].ask.subject;
        let policy = self.policy(pool, subject);
        let mut room = policy.map_or(0, |policy| policy.reserved(key).unwrap_or(0));
        let runs = self.runs_of(pool);
        let mut runs: Vec<_> = runs
            .filter(|(_, run)| run.ask.subject == *subject && !run.stopping && run.total()[key] > 0)
            .collect();
        runs.sort_by_key(|(id, run)| {
            let held = Reverse(run.total()[key]);
            (
                run.ask.preemptible,
                held,
                run.start_time,
                run.ask.place,
                *id,
            )
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

    /// For keys that count in the waiter's share nothing more is asked. For host keys that are not metered there is
    /// *entitlement*, or *priority*. Not in so many words in the law, which thrashes without it: a run that would be in
    /// share again is not taken for such a key by a waiter in share, for the two would take it from each other for ever.
    fn in_share_goes_only_for_keys_that_count(
        &self,
        preemption: JudgedPreemption<'_>,
        id: &AttemptId,
        gone: &RemovedRuns,
        excess: &[usize],
    ) -> RuleResult {
        let JudgedPreemption { ask, pool, .. } = preemption;
        let run = &self.runs[id];
        let ours = self.policy(pool, &ask.subject);
        let counts = |key: usize| {
            self.is_metered(pool, key) && ours.is_some_and(|ours| ours.reserved(key).is_some())
        };
        let mut without = gone.clone();
        without.insert(id.clone());
        let again = || self.is_in_share_without(pool, &run.ask, &without);
        let taken_back = run.backfill.contains(&ask.step);
        let higher = self.priority(pool, &ask.subject) > self.priority(pool, &run.ask.subject);
        let stays = || self.is_in_share(pool, ask) && again();
        let has_ground = |key: usize| {
            if counts(key) || (taken_back && !stays()) {
                return true;
            }
            let short_on = self.hosts_short_of(preemption, id, key, gone);
            let by_priority = higher && !self.is_in_metered_share(pool, ask) && !stays();
            by_priority || self.is_entitled_to(preemption, id, key, &short_on)
        };
        let mut keys = excess.iter().copied();
        let holds = keys.any(has_ground);
        rule("in_share_goes_only_for_keys_that_count", holds, || {
            format!("{id} for {}, which is short of {excess:?}", ask.step)
        })
    }

    /// The hosts of a run on which the waiter is short of a key, once the victims that go first are gone.
    fn hosts_short_of<'a>(
        &self,
        preemption: JudgedPreemption<'a>,
        id: &AttemptId,
        key: usize,
        gone: &RemovedRuns,
    ) -> BTreeSet<&'a NodeName> {
        let JudgedPreemption {
            ask,
            pool,
            hosts,
            keeps,
            ..
        } = preemption;
        let counted = gone.intersection(preemption.victims).cloned().collect();
        let anyhow = preemption.gone_with(&counted);
        let reservations = &keeps(self, pool, ask, &anyhow);
        let run = &self.runs[id];
        let hosts = hosts.iter().filter(|node| run.holding.contains(*node));
        let hosts = hosts.filter(|node| {
            let mut short = self.short_on(node, ask, &anyhow, reservations);
            short.any(|other| in_pools(other) == key)
        });
        hosts.collect()
    }

    /// "A waiter that must borrow (take-back included) may take a set only if, once it is gone, no run in it and no
    /// queued request of a victim's subject would be an in-share request."
    pub(super) fn stability(&self, preemption: JudgedPreemption<'_>) -> RuleResult {
        let JudgedPreemption {
            ask, pool, victims, ..
        } = preemption;
        // Not in so many words in the law: nor may a waiter in share that borrows from GPUs take a run that would be in
        // share again, for *entitlement* would give its place back.
        let in_share = self.is_in_share(pool, ask);
        let mut hosts = preemption.hosts.iter();
        if in_share && !hosts.any(|node| self.borrows(pool, node, ask.each)) {
            return Ok(());
        }
        let releasing = self.runs.iter().filter(|(_, run)| run.stopping);
        let gone: RemovedRuns = releasing
            .map(|(id, _)| id)
            .chain(victims)
            .cloned()
            .collect();
        let theirs = victims.iter().map(|id| &self.runs[id].ask);
        let theirs = theirs.filter(|other| !in_share || other.subject != ask.subject);
        let theirs: Vec<&JudgedRequest> = theirs.collect();
        let queued = self.waiting_in(pool).filter(|other| {
            !self
                .nominations
                .get(&other.step)
                .is_some_and(|nomination| nomination.firm)
                && other.step != ask.step
                && !other
                    .frozen_run
                    .as_ref()
                    .is_some_and(|frozen_run| victims.contains(&frozen_run.attempt))
                && theirs.iter().any(|run| run.subject == other.subject)
        });
        // What asks for nothing that counts in a share reclaims nothing, and takes nothing by priority from a higher one.
        let reclaims = |other: &&JudgedRequest| {
            let policy = self.policy(pool, &other.subject);
            let asked = other.total();
            let mut keys = self.metered(pool).filter(|key| asked[*key] > 0);
            let counts = keys.any(|key| policy.is_none_or(|policy| policy.reserved(key).is_some()));
            counts || self.priority(pool, &other.subject) > self.priority(pool, &ask.subject)
        };
        let queued = queued.filter(|_| !in_share);
        let mut judged = theirs.iter().copied().chain(queued).filter(reclaims);
        let back = judged.find(|other| {
            // The waiter does not reclaim its own use of the same share.
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
    fn nobody_ahead_could_start_or_preempt(&self, preemption: JudgedPreemption<'_>) -> RuleResult {
        let JudgedPreemption { ask, pool, .. } = preemption;
        let ahead = self.ahead_of(pool, ask);
        let passed = ahead
            .into_iter()
            .find(|other| self.would_start_in(pool, other) || self.would_preempt_in(pool, other));
        rule(
            "nobody_ahead_could_start_or_preempt",
            passed.is_none(),
            || {
                format!(
                    "{} takes {:?} past {passed:?}",
                    ask.step, preemption.victims
                )
            },
        )
    }

    /// "Then preemption in the same order": whether victims would help a request in a pool, and free units nowhere, nor
    /// victims or what is coming free in a pool that is tried before.
    fn would_preempt_in(&self, pool: &PoolName, ask: &JudgedRequest) -> bool {
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

    /// A set of at most four victims that lets a request start.
    pub(super) fn some_victims_help(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
    ) -> Option<(Vec<NodeName>, RemovedRuns)> {
        let promised = self.nominations.get(&ask.step);
        // Resources that are being released are waited for.
        let under_way = self.runs_of(pool).any(|(_, run)| run.stopping);
        if under_way || promised.is_some_and(|nomination| nomination.firm) {
            return None;
        }
        self.some_victims_help_with(pool, ask, Judge::forbidden)
    }

    pub(super) fn some_victims_help_with(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        keeps: ReservationsOf,
    ) -> Option<(Vec<NodeName>, RemovedRuns)> {
        let runs = self.runs_of(pool);
        let mut ids: Vec<&AttemptId> = runs
            .filter(|(_, run)| run.ask.preemptible && !run.stopping && !self.is_resuming(run))
            .map(|(id, _)| id)
            .collect();
        ids.retain(|id| self.could_be_a_victim(pool, ask, id));
        let nobody = RemovedRuns::new();
        let reservations = keeps(self, pool, ask, &nobody);
        let ours = self.policy(pool, &ask.subject);
        let shares = |key| ours.is_some_and(|ours| ours.reserved(key).is_some());
        let pool_counts = self
            .short_in_pool(pool, ask, &nobody, &reservations)
            .all(shares);
        let borrows = !self.is_in_share(pool, ask);
        for hosts in self.choices(pool, ask) {
            // If the set that victim order leads to would be reclaimed, "nobody is touched", even if another set
            // might stay. This matters for a borrower and keys that do not count in a share.
            let counted = hosts.iter().all(|node| {
                let mut short = self.short_on(node, ask, &nobody, &reservations);
                short.all(|key| self.is_metered(pool, in_pools(key)))
            });
            if borrows && !(counted && pool_counts) {
                continue;
            }
            for victims in sets_of(&ids) {
                let preemption = JudgedPreemption {
                    ask,
                    pool,
                    hosts: &hosts,
                    victims: &victims,
                    awaits: &victims,
                    keeps,
                };
                let reached = || {
                    let back = borrows
                        && (self.order_leads_to_what_is_taken_back(preemption, &ids)
                            || self.set_by_order_is_taken_back(preemption, &ids));
                    !back
                        && !self.own_leave_no_ground(preemption, &ids)
                        && !self.order_may_exceed_the_budget(preemption, &ids)
                };
                if self.is_lawful(preemption).is_ok() && reached() {
                    return Some((hosts, victims));
                }
            }
        }
        None
    }

    /// "Else it would be taken back at once; then nobody is touched": whether the order of victims leads a borrower to
    /// a run that would be, before the last of those that it could keep.
    fn order_leads_to_what_is_taken_back(
        &self,
        preemption: JudgedPreemption<'_>,
        ids: &[&AttemptId],
    ) -> bool {
        let order = |id: &AttemptId| self.victim_order(preemption, id);
        let last = preemption.victims.iter().map(order).max();
        let mut before = ids.iter().filter(|id| !preemption.victims.contains(**id));
        before.any(|id| {
            let one = &RemovedRuns::from([(*id).clone()]);
            let alone = JudgedPreemption {
                victims: one,
                awaits: one,
                ..preemption
            };
            let helps = !self
                .short_keys_of(alone, &self.runs[*id], &RemovedRuns::new())
                .is_empty();
            helps && Some(order(id)) < last && self.stability(alone).is_err()
        })
    }

    /// "Own ... come before all others, whatever the excess": whether what they cure leaves no ground for taking one of the
    /// rest of a set. Nothing is being released.
    fn own_leave_no_ground(&self, preemption: JudgedPreemption<'_>, ids: &[&AttemptId]) -> bool {
        let mut own = ids.to_vec();
        own.retain(|id| self.is_own(preemption, &self.runs[*id]));
        own.sort_by_cached_key(|id| self.victim_order(preemption, id));
        let mut first = RemovedRuns::new();
        for id in own {
            let short = self.short_keys_of(preemption, &self.runs[id], &first);
            first.extend((!short.is_empty()).then(|| id.clone()));
        }
        first.extend(preemption.victims.iter().cloned());
        let mut order: Vec<&AttemptId> = first.iter().collect();
        order.sort_by_cached_key(|id| self.victim_order(preemption, id));
        let mut counted = RemovedRuns::new();
        order.into_iter().any(|id| {
            let all = preemption.of(&first);
            let has_none = self.victim_has_a_ground(all, id, &counted).is_err();
            counted.insert(id.clone());
            has_none
        })
    }

    /// Whether any rule could make a run a victim of a request; most cannot, and their sets need not be judged.
    fn could_be_a_victim(&self, pool: &PoolName, ask: &JudgedRequest, id: &AttemptId) -> bool {
        let run = &self.runs[id];
        let higher = self.priority(pool, &ask.subject) > self.priority(pool, &run.ask.subject);
        match run.ask.subject == ask.subject {
            true => !ask.preemptible || run.backfill.contains(&ask.step),
            false => higher || self.is_in_share(pool, ask) || run.backfill.contains(&ask.step),
        }
    }
}

/// All sets of one to four of them.
fn sets_of(ids: &[&AttemptId]) -> Vec<RemovedRuns> {
    let mut sets: Vec<RemovedRuns> = Vec::from([RemovedRuns::new()]);
    for id in ids {
        let room = sets.iter().filter(|set| set.len() < 4).cloned();
        let mut with: Vec<RemovedRuns> = room.collect();
        with.iter_mut().for_each(|set| {
            set.insert((*id).clone());
        });
        sets.extend(with);
    }
    sets.retain(|set| !set.is_empty());
    sets
}
