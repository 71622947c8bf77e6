//! Whether a grant or a nomination of the head is lawful.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId};

use super::amounts::ON_HOSTS;
use super::facts::{JudgedReservations, RemovedRuns};
use super::{Judge, JudgedRequest, RuleResult, rule};
use crate::Nomination;

type BackfillMarks = BTreeSet<StepId>;

impl Judge {
    pub(super) fn judge_grant(
        &self,
        step: &StepId,
        pool: &PoolName,
        hosts: &[NodeName],
        marks: &BackfillMarks,
    ) -> RuleResult {
        let ask = self.waiting.get(step);
        rule("only_what_waits_is_granted", ask.is_some(), || {
            format!("{step} does not wait")
        })?;
        let Some(ask) = ask else { return Ok(()) };
        self.grant_goes_through_one_policy(ask, pool)?;
        self.gang_is_on_distinct_hosts(ask, pool, hosts)?;
        self.occupancy_never_exceeds_capacity(ask, pool, hosts)?;
        self.limits_hold(ask, pool)?;
        self.non_preemptible_stays_inside_reserved(ask, pool)?;
        self.non_preemptible_borrows_nothing_from_gpus(ask, pool, hosts)?;
        self.nobody_takes_firmly_promised_units(ask, pool, hosts)?;
        self.the_nominated_do_not_move(ask, pool, hosts)?;
        self.backfill_is_preemptible_and_marked(ask, pool, hosts, marks)?;
        self.marks_have_a_reason(ask, pool, hosts, marks)?;
        if self
            .nominations
            .get(step)
            .is_some_and(|nomination| nomination.firm)
        {
            // The step had its turn when its victims were stopped.
            return Ok(());
        }
        self.the_head_is_nominated(ask, pool)?;
        self.liked_platform_is_tried_first(ask, pool, hosts)?;
        self.one_rack_is_tried_first(ask, pool, hosts)?;
        self.what_borrows_takes_from_the_fewest_gpus(ask, pool, hosts)?;
        self.nobody_ahead_could_start(ask, pool)?;
        self.preferred_pool_is_tried_first(ask, pool)
    }

    /// "All keys of a step come from one pool, through one policy."
    fn grant_goes_through_one_policy(&self, ask: &JudgedRequest, pool: &PoolName) -> RuleResult {
        let waits = self.pools_of(ask).contains(pool);
        rule("grant_goes_through_one_policy", waits, || {
            format!("{} in {pool}", ask.step)
        })
    }

    /// "A gang: on N, all or nothing", on distinct hosts of the pool, that take work.
    fn gang_is_on_distinct_hosts(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
        hosts: &[NodeName],
    ) -> RuleResult {
        let distinct: BTreeSet<&NodeName> = hosts.iter().collect();
        let whole = distinct.len() == hosts.len() && hosts.len() as u64 == ask.nodes;
        let mut known = hosts.iter().filter_map(|node| self.hosts.get(node));
        let ours = known.all(|host| host.pool == *pool && host.schedulable);
        let known = hosts.iter().all(|node| self.hosts.contains_key(node));
        let near = ask.one_rack != Some(true) || self.is_of_one_rack(hosts);
        let holds = whole && ours && known && near && self.is_of_asked_platform(ask, hosts);
        rule("gang_is_on_distinct_hosts", holds, || {
            format!(
                "{} asks for {} of {pool}, gets {hosts:?}",
                ask.step, ask.nodes
            )
        })
    }

    /// "An ordered list as a preference with fallback."
    fn liked_platform_is_tried_first(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
        hosts: &[NodeName],
    ) -> RuleResult {
        let got = |one: &&PlatformName| {
            let mut hosts = hosts.iter();
            hosts.all(|node| self.platforms_for(ask, node).contains(*one))
        };
        let mut liked = ask.platforms.iter().take_while(|one| !got(one));
        let better = liked.find(|one| {
            let platforms = Vec::from([(*one).clone()]);
            let there = JudgedRequest {
                platforms,
                ..ask.clone()
            };
            self.could_start(pool, &there)
        });
        rule("liked_platform_is_tried_first", better.is_none(), || {
            format!("{} goes to {hosts:?}, not to {better:?}", ask.step)
        })
    }

    /// "A gang that prefers one domain takes hosts of several only if none has room." Requests behind the head "are granted
    /// around it": what is kept for it is room only for a gang that has to take of it wherever it goes. It gives nothing
    /// back to be near.
    fn one_rack_is_tried_first(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
        hosts: &[NodeName],
    ) -> RuleResult {
        let prefers = ask.one_rack == Some(false) && !self.is_of_one_rack(hosts);
        // An earlier platform is liked better than a rack.
        let shared = |one: &&PlatformName| {
            let mut hosts = hosts.iter();
            hosts.all(|node| self.platforms_for(ask, node).contains(*one))
        };
        let asked = ask.platforms.iter().find(shared);
        let first = self.platforms_for(ask, &hosts[0]);
        let any = || first.iter().find(shared);
        let there = JudgedRequest {
            one_rack: Some(true),
            platforms: asked.or_else(any).cloned().into_iter().collect(),
            ..ask.clone()
        };
        let head = self.head_before(pool, ask);
        let is_beside = head.is_some_and(|head| !self.touches(head, ask, pool, hosts));
        let nearer = prefers
            && match is_beside {
                true => self.could_start_beside_the_head(pool, &there),
                false => self.could_start(pool, &there),
            };
        rule("one_rack_is_tried_first", !nearer, || {
            format!("{} goes to {hosts:?}, of two racks", ask.step)
        })
    }

    /// Whether a request could start on free resources of which nothing is kept for others.
    fn could_start_beside_the_head(&self, pool: &PoolName, ask: &JudgedRequest) -> bool {
        let nothing = RemovedRuns::new();
        let promised = self.promised(pool, ask, &nothing);
        let mut choices = self.choices(pool, ask).into_iter();
        choices.any(|hosts| self.fits(pool, ask, &hosts, &nothing, &promised))
    }

    /// "Units granted never exceed capacity, on any host, for any key."
    fn occupancy_never_exceeds_capacity(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
        hosts: &[NodeName],
    ) -> RuleResult {
        let name = "occupancy_never_exceeds_capacity";
        let nothing = JudgedReservations::default();
        for node in hosts {
            let free = self.free_on(node, &RemovedRuns::new());
            let mut keys = ON_HOSTS.into_iter();
            let short = keys.find(|key| ask.each[*key] > free[*key]);
            rule(name, short.is_none(), || {
                format!("{} asks for {:?} of {node}: {free:?}", ask.step, ask.each)
            })?;
        }
        let fits = self.fits_in_pool(pool, ask, &RemovedRuns::new(), &nothing);
        rule(name, fits, || {
            format!(
                "{} asks for {:?} of {pool}: {:?} is used",
                ask.step,
                ask.total(),
                self.used(pool, &RemovedRuns::new())
            )
        })
    }

    /// "Limits hold for every grant."
    fn limits_hold(&self, ask: &JudgedRequest, pool: &PoolName) -> RuleResult {
        let over = self.keys_over_limit(pool, ask, &RemovedRuns::new());
        rule("limits_hold", over.is_empty(), || {
            let used = self.used_by(pool, &ask.subject, &RemovedRuns::new());
            format!(
                "{}: {:?} on {used:?} is over in {over:?}",
                ask.step,
                ask.total()
            )
        })
    }

    /// "Non-preemptible use never exceeds reserved."
    fn non_preemptible_stays_inside_reserved(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
    ) -> RuleResult {
        let holds = ask.preemptible || self.is_in_share(pool, ask);
        rule("non_preemptible_stays_inside_reserved", holds, || {
            let used = self.firm_use(pool, &ask.subject);
            format!("{}: {:?} on {used:?}", ask.step, ask.total())
        })
    }

    /// "It holds no units, nobody else can take them": nor what is left of its subject's limit and share.
    fn nobody_takes_firmly_promised_units(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
        hosts: &[NodeName],
    ) -> RuleResult {
        let reservations = self.firm_promises(pool, ask, &RemovedRuns::new());
        let name = "nobody_takes_firmly_promised_units";
        let protection = self.fits(pool, ask, hosts, &RemovedRuns::new(), &reservations);
        rule(name, protection, || {
            format!("{} on {hosts:?} takes of {reservations:?}", ask.step)
        })?;
        let possible = self.leaves_promises_possible(pool, ask, &RemovedRuns::new());
        rule(name, possible, || {
            format!("{} takes the limit or share of a waiter", ask.step)
        })
    }

    /// "It does not move elsewhere meanwhile": a waiter whose victims go starts where they went.
    fn the_nominated_do_not_move(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
        hosts: &[NodeName],
    ) -> RuleResult {
        let nomination = self
            .nominations
            .get(&ask.step)
            .filter(|nomination| nomination.firm);
        let there = nomination.is_none_or(|nomination| {
            let (a, b): (BTreeSet<_>, BTreeSet<_>) =
                (hosts.iter().collect(), nomination.hosts.iter().collect());
            nomination.pool == *pool && a == b
        });
        rule("the_nominated_do_not_move", there, || {
            format!("{} goes to {hosts:?}, not {nomination:?}", ask.step)
        })
    }

    /// Whether a request would take resources of the nominated head before it.
    fn touches(
        &self,
        head: &StepId,
        ask: &JudgedRequest,
        pool: &PoolName,
        hosts: &[NodeName],
    ) -> bool {
        let mut reservations = self.firm_promises(pool, ask, &RemovedRuns::new());
        self.keep(&mut reservations, head, &RemovedRuns::new());
        !self.fits(pool, ask, hosts, &RemovedRuns::new(), &reservations)
    }

    /// "On nominated units only preemptible ones, marked as backfill to it; elsewhere any." "A request whose own limit ends
    /// before the head's earliest start is granted on nominated units without being marked." "Grants to the same subject
    /// past it are backfill to it": past one that waits only for its own subject's limit.
    fn backfill_is_preemptible_and_marked(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
        hosts: &[NodeName],
        marks: &BackfillMarks,
    ) -> RuleResult {
        let name = "backfill_is_preemptible_and_marked";
        let promised = self.nominations.get(&ask.step);
        if !ask.preemptible && promised.is_some_and(|nomination| nomination.firm) {
            // The step went before the head when its victims were stopped; their end may have changed the order.
            return Ok(());
        }
        let head = self.head_before(pool, ask);
        if let Some(head) = head.filter(|head| self.touches(head, ask, pool, hosts)) {
            let in_turn = promised.is_some_and(|nomination| nomination.firm);
            let in_time = in_turn || !self.is_about_to_start(head);
            let is_short = self.ends_before(head, ask);
            let marked = ask.preemptible && marks.contains(head);
            let lawful = (marked || is_short) && in_time;
            rule(name, lawful, || {
                format!("{} on {hosts:?} takes of what {head} is promised", ask.step)
            })?;
        }
        let passed = self.limited_ahead(ask, pool);
        let marked = !ask.preemptible
            || passed.is_empty()
            || passed.iter().any(|other| marks.contains(&other.step));
        rule(name, marked, || format!("{} passes {passed:?}", ask.step))
    }

    /// Requests of its own subject ahead of it that wait only for the limit.
    fn limited_ahead(&self, ask: &JudgedRequest, pool: &PoolName) -> Vec<&JudgedRequest> {
        let mut ahead = self.ahead_of(pool, ask);
        ahead.retain(|other| {
            other.subject == ask.subject
                && !self
                    .keys_over_limit(pool, other, &RemovedRuns::new())
                    .is_empty()
                && self
                    .nominations
                    .get(&other.step)
                    .is_none_or(|nomination| !nomination.firm)
        });
        ahead
    }

    /// A run is marked as backfill to exactly those that it went past.
    fn marks_have_a_reason(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
        hosts: &[NodeName],
        marks: &BackfillMarks,
    ) -> RuleResult {
        let head = self.head_before(pool, ask);
        let is_backfill = |head: &&StepId| {
            let is_in_time = self.ends_before(head, ask) && !self.is_about_to_start(head);
            self.touches(head, ask, pool, hosts) && !is_in_time
        };
        let backfilled = head.filter(is_backfill);
        let passed = self.limited_ahead(ask, pool);
        let mut marks = marks.iter();
        let unfounded = marks.find(|mark| {
            Some(*mark) != backfilled && !passed.iter().any(|other| other.step == **mark)
        });
        rule("marks_have_a_reason", unfounded.is_none(), || {
            format!(
                "{} is marked as backfill to {unfounded:?}, head {head:?}",
                ask.step
            )
        })
    }

    /// A request that goes before it and could start on free resources is granted first.
    fn nobody_ahead_could_start(&self, ask: &JudgedRequest, pool: &PoolName) -> RuleResult {
        let ahead = self.ahead_of(pool, ask);
        let mut others = ahead.into_iter();
        let passed = others.find(|other| self.would_start_in(pool, other));
        rule("nobody_ahead_could_start", passed.is_none(), || {
            format!("{} is granted past {passed:?}", ask.step)
        })
    }

    /// Whether a request could start in a pool, and in none that is tried before.
    pub(super) fn would_start_in(&self, pool: &PoolName, ask: &JudgedRequest) -> bool {
        let mut before = self.tried_before(pool, ask).into_iter();
        self.could_start(pool, ask) && !before.any(|other| self.could_start(&other, ask))
    }

    /// "All are tried for free units, in order of policy priority": those before a pool.
    pub(super) fn tried_before(&self, pool: &PoolName, ask: &JudgedRequest) -> Vec<PoolName> {
        let rank = |name: &PoolName| {
            let policy = self.policy(name, &ask.subject);
            (Reverse(policy.map(|policy| policy.priority)), name.clone())
        };
        let mut pools = self.pools_of(ask);
        pools.retain(|other| rank(other) < rank(pool));
        pools
    }

    /// "All are tried for free units, in order of policy priority."
    fn preferred_pool_is_tried_first(&self, ask: &JudgedRequest, pool: &PoolName) -> RuleResult {
        let rank = |name: &PoolName| self.priority(name, &ask.subject);
        let mut better = self.pools_of(ask).into_iter();
        let better = better.find(|other| {
            let ahead = self.ahead_of(other, ask);
            let mut ahead = ahead.into_iter();
            rank(other) > rank(pool)
                && self.could_start(other, ask)
                && !ahead.any(|one| self.could_start(other, one))
        });
        rule("preferred_pool_is_tried_first", better.is_none(), || {
            format!(
                "{} is granted in {pool} and could start in {better:?}",
                ask.step
            )
        })
    }

    pub(super) fn judge_nomination(
        &self,
        step: &StepId,
        nomination: &Nomination,
        victims: &BTreeSet<AttemptId>,
    ) -> RuleResult {
        let ask = self.waiting.get(step);
        rule("only_what_waits_is_nominated", ask.is_some(), || {
            format!("{step} does not wait")
        })?;
        let Some(ask) = ask else { return Ok(()) };
        let name = "only_firm_promises_take_victims";
        rule(name, victims.is_empty(), || {
            format!("{step} takes {victims:?}")
        })?;
        self.grant_goes_through_one_policy(ask, &nomination.pool)?;
        self.gang_is_on_distinct_hosts(ask, &nomination.pool, &nomination.hosts)?;
        self.only_the_head_is_nominated(ask, &nomination.pool)?;
        self.nominated_hosts_could_hold_it(ask, nomination)?;
        self.head_awaits_the_fewest_gpus(ask, nomination)?;
        self.what_can_start_is_not_nominated(ask, &nomination.pool)
    }

    /// "If another set (host) needs strictly fewer units to come free than the present one, the nomination moves there";
    /// "the set whose last end is earliest wins among those with limits":
    /// asked of one host at a time on which GPUs alone, of the class that it asks for, are short, and if nobody else is
    /// promised anything.
    fn head_awaits_the_fewest_gpus(
        &self,
        ask: &JudgedRequest,
        nomination: &Nomination,
    ) -> RuleResult {
        let Nomination { pool, .. } = nomination;
        let gpus = ask.class.key();
        let nothing = (RemovedRuns::new(), JudgedReservations::default());
        let mut nominations = self.nominations.values();
        let reserved = nominations.any(|other| other.firm && other.pool == *pool);
        let mut awaited = nomination.awaits.iter().filter_map(|id| self.runs.get(id));
        let is_released = awaited.all(|run| run.stopping);
        if reserved || is_released || ask.nodes > 1 || ask.frozen_run.is_some() {
            return Ok(());
        }
        if self
            .short_in_pool(pool, ask, &nothing.0, &nothing.1)
            .next()
            .is_some()
        {
            return Ok(());
        }
        let held = |node: &NodeName, only: Option<&RemovedRuns>| -> Vec<u64> {
            let runs = self.runs_of(pool).filter(|(id, run)| {
                run.holding.contains(node) && only.is_none_or(|only| only.contains(*id))
            });
            runs.map(|(_, run)| run.each()[gpus]).collect()
        };
        let awaited: u64 = held(&nomination.hosts[0], Some(&nomination.awaits))
            .iter()
            .sum();
        let short_of_more = |node: &NodeName| {
            let free = self.free_on(node, &nothing.0);
            let mut others = ON_HOSTS.into_iter().filter(|key| *key != gpus);
            others.any(|key| ask.each[key] > free[key])
        };
        if short_of_more(&nomination.hosts[0]) {
            return Ok(());
        }
        if let Some(end) = self.latest_end_of(&nomination.awaits) {
            let mut hosts = self.choices(pool, ask).into_iter().flatten();
            let sooner = hosts.find(|node| {
                let free = self.free_by(node, pool, (gpus, end - 1));
                !short_of_more(node) && ask.each[gpus] <= free
            });
            return rule("head_starts_earliest", sooner.is_none(), || {
                format!(
                    "{} awaits {end} by {nomination:?}, {sooner:?} is sooner",
                    ask.step
                )
            });
        }
        for hosts in self.choices(pool, ask) {
            let node = &hosts[0];
            if short_of_more(node) {
                continue;
            }
            let free = self.free_on(node, &nothing.0);
            let missing = ask.each[gpus].saturating_sub(free[gpus]);
            let sums = held(node, None)
                .iter()
                .fold(BTreeSet::from([0]), |sums, gpus| {
                    let with: Vec<u64> = sums.iter().map(|sum| sum + gpus).collect();
                    sums.into_iter().chain(with).collect()
                });
            let least = sums.range(missing..).next().copied();
            let fewer = least.filter(|least| *least < awaited);
            rule("head_awaits_the_fewest_gpus", fewer.is_none(), || {
                format!(
                    "{} awaits {awaited} by {nomination:?}, {fewer:?} on {node}",
                    ask.step
                )
            })?;
        }
        Ok(())
    }

    /// GPUs of a host, of the class with this key, that are free at a time if all runs end when their time limits do.
    fn free_by(&self, node: &NodeName, pool: &PoolName, (gpus, at): (usize, u64)) -> u64 {
        let runs = self
            .runs_of(pool)
            .filter(|(_, run)| run.holding.contains(node));
        let ended = runs.filter(|(_, run)| self.latest_end(run).is_some_and(|end| end <= at));
        let freed: u64 = ended.map(|(_, run)| run.each()[gpus]).sum();
        freed + self.free_on(node, &RemovedRuns::new())[gpus]
    }

    /// "A head that cannot be granted is nominated": nobody goes before it who is not nominated or waits for his own.
    fn only_the_head_is_nominated(&self, ask: &JudgedRequest, pool: &PoolName) -> RuleResult {
        let ahead = self.ahead_of(pool, ask);
        let mut others = ahead.into_iter();
        let passed = others.find(|other| self.is_head_of(pool, other));
        rule("only_the_head_is_nominated", passed.is_none(), || {
            format!("{} is nominated past {passed:?}", ask.step)
        })
    }

    /// Whether a request can be the head of a pool.
    pub(super) fn is_head_of(&self, pool: &PoolName, ask: &JudgedRequest) -> bool {
        let elsewhere = self.nominations.get(&ask.step);
        !self.waits_for_its_own(pool, ask)
            && elsewhere.is_none_or(|nomination| nomination.pool == *pool && !nomination.firm)
            && !self.choices(pool, ask).is_empty()
    }

    /// "A head that cannot be granted is nominated": before anybody behind it starts or takes; until then a promise
    /// would bind nobody.
    pub(super) fn the_head_is_nominated(&self, ask: &JudgedRequest, pool: &PoolName) -> RuleResult {
        let ahead = self.ahead_of(pool, ask);
        let mut heads = ahead
            .into_iter()
            .filter(|other| self.is_head_of(pool, other));
        // A request that starts in another of its pools is no head that "cannot be granted".
        let starts = |head: &JudgedRequest| {
            let mut pools = self
                .pools_of(head)
                .into_iter()
                .filter(|other| other != pool);
            pools.any(|other| self.could_start(&other, head))
        };
        let promised =
            |head: &JudgedRequest| self.nominations.contains_key(&head.step) || starts(head);
        let bare = heads
            .next()
            .filter(|head| !promised(head) && self.could_ever_start(pool, head));
        rule("the_head_is_nominated", bare.is_none(), || {
            format!("{} goes past {bare:?}", ask.step)
        })
    }

    /// Whether it could start if all runs ended.
    fn could_ever_start(&self, pool: &PoolName, ask: &JudgedRequest) -> bool {
        let all: RemovedRuns = self.runs.keys().cloned().collect();
        let reservations = self.firm_promises(pool, ask, &all);
        let mut choices = self.choices(pool, ask).into_iter();
        choices.any(|hosts| self.fits(pool, ask, &hosts, &all, &reservations))
    }

    /// "To a host (or N), with the set of runs whose end it awaits": it starts when they have ended.
    pub(super) fn nominated_hosts_could_hold_it(
        &self,
        ask: &JudgedRequest,
        nomination: &Nomination,
    ) -> RuleResult {
        let hosts = &nomination.hosts;
        let gone = &nomination.awaits;
        let reservations = self.firm_promises(&nomination.pool, ask, gone);
        let could = self.fits(&nomination.pool, ask, hosts, gone, &reservations);
        rule("nominated_hosts_could_hold_it", could, || {
            format!(
                "{} with {nomination:?}, others keep {reservations:?}",
                ask.step
            )
        })
    }

    /// "A head that cannot be granted is nominated."
    fn what_can_start_is_not_nominated(&self, ask: &JudgedRequest, pool: &PoolName) -> RuleResult {
        let could = self.could_start(pool, ask);
        rule("what_can_start_is_not_nominated", !could, || {
            format!("{} in {pool}", ask.step)
        })
    }

    /// "Until it starts, is overtaken in order, or the host can no longer hold it"; "victims are not revoked".
    pub(super) fn judge_withdrawal(&self, step: &StepId) -> RuleResult {
        let nomination = self.nominations.get(step);
        rule("only_promises_are_withdrawn", nomination.is_some(), || {
            format!("{step} has none")
        })?;
        let holds = nomination.is_none_or(|nomination| !nomination.firm || nomination.disturbed);
        rule("no_preemption_in_vain", holds, || {
            format!("{step} loses {nomination:?} though nothing came from outside")
        })
    }
}
