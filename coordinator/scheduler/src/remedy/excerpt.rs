//! The part of a scheduler that decides about one request, cut out so that something can be supposed of it: its pools with
//! what runs there, who is promised something there, and who goes before or after it. The scheduler's own rules then say
//! what they would do next.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId};
use sluice_common::time::Time;

use crate::decide::Move;
use crate::model::nomination::Nomination;
use crate::model::queue_order;
use crate::model::request::{Request, Run};
use crate::model::scheduler::Scheduler;
use crate::placement::request_in_pool::RequestInPool;

/// Where more wait than these, all of them are too much to look at for an answer.
const MAX_WAITING: usize = 64;
/// More moves than those who are brought along can give rise to.
const MAX_MOVES: usize = 256;
/// No attempt has this number, for a step ends before it could get there.
const SUPPOSED: u32 = u32::MAX;

/// Who is brought along of those that are promised nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// All who wait.
    All,
    /// The first of each class that goes after the request: nobody who goes before it.
    After,
}

/// How a request would start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At once.
    AtOnce,
    /// When so many runs, which are told to stop, are gone.
    AfterStops(usize),
}

impl Scheduler {
    /// What decides about a request in a pool. `None` where it does not wait there, or where all are wanted and too many
    /// wait.
    pub(crate) fn excerpt(&self, step: &StepId, name: &PoolName, others: Others) -> Option<Self> {
        let request = self.request(step)?;
        let names: Vec<&PoolName> = self.candidates(request).iter().map(|(n, _)| *n).collect();
        let mut excerpt = self.without_queues(&names);
        let chosen = self.chosen(request, name, &names, others)?;
        for found in chosen.iter().filter_map(|id| self.request(id)) {
            excerpt.enqueue(match others {
                Others::All => found.clone(),
                Others::After => self.standing_alone(found, name),
            });
        }
        for id in chosen {
            if let Some(nomination) = self.nomination(id) {
                excerpt.nominate(id, nomination.clone());
            }
        }
        Some(excerpt)
    }

    /// Pools with their hosts and what runs there.
    fn without_queues(&self, names: &[&PoolName]) -> Self {
        let mut excerpt = Self::default();
        for name in names {
            let Some(pool) = self.pools.get(*name) else {
                continue;
            };
            let granted = pool.accounts().values().flat_map(|account| &account.runs);
            let on_hosts = pool.hosts().values().flat_map(|host| &host.runs);
            for id in granted.chain(on_hosts) {
                if let Some(run) = self.run(id) {
                    excerpt.runs.insert(id.clone(), run.clone());
                }
            }
            let homes = pool.hosts().keys();
            excerpt
                .homes
                .extend(homes.map(|node| (node.clone(), (*name).clone())));
            excerpt.pools.insert((*name).clone(), pool.without_queue());
        }
        excerpt
    }

    /// The request, who is promised something in its pools, and the others that are wanted.
    fn chosen<'a>(
        &'a self,
        request: &'a Request,
        name: &PoolName,
        names: &[&PoolName],
        others: Others,
    ) -> Option<BTreeSet<&'a StepId>> {
        let pool = self.pools.get(name)?;
        let mut chosen = BTreeSet::from([&request.step]);
        for pool in names.iter().filter_map(|name| self.pools.get(*name)) {
            chosen.extend(pool.firm.iter().chain(&pool.soft));
        }
        match others {
            Others::All if pool.waiting() > MAX_WAITING => return None,
            Others::All => chosen.extend(self.in_order(name)),
            Others::After => {
                let own = RequestInPool::of(self, pool, request)?.rank();
                let heads = queue_order::in_order(self, name, pool).into_iter();
                let after = heads.filter(|(rank, _)| *rank > own);
                chosen.extend(after.map(|(_, request)| &request.step));
            }
        }
        Some(chosen)
    }

    /// A request that keeps, without the others of its subject, the place at which it stands among them.
    fn standing_alone(&self, request: &Request, name: &PoolName) -> Request {
        let mut alone = request.clone();
        let account = self
            .pools
            .get(name)
            .and_then(|p| p.account(&request.subject));
        let waits = account.filter(|account| account.queue.steps().any(|s| *s == request.step));
        alone.place = waits.map_or(request.place, |account| account.queue.standing(request));
        alone.priority = 0;
        alone
    }

    /// Whether and how a request would start in a pool by the next moves there: they are played until it does, the runs that
    /// are stopped for it going at once. Where another is to stop runs first, it would depend on when these are gone, and
    /// nothing is said.
    pub(crate) fn would_start(
        &mut self,
        step: &StepId,
        name: &PoolName,
        now: Time,
    ) -> Option<Start> {
        let mut start = Start::AtOnce;
        for _ in 0..MAX_MOVES {
            match self.next_move(name, now)? {
                Move::Grant { step: granted, .. } if granted == *step => return Some(start),
                Move::Grant {
                    step,
                    pool,
                    hosts,
                    backfill,
                    platform: _,
                } => self.suppose_grant(&step, pool, hosts, backfill, now),
                Move::Nominate {
                    step: promised,
                    nomination,
                    victims,
                    frozen,
                } => {
                    let awaited = nomination.awaits.clone();
                    let is_firm = nomination.is_firm();
                    self.nominate(&promised, nomination);
                    if promised == *step && is_firm {
                        start = Start::AfterStops(awaited.len());
                        self.suppose_gone(&awaited, &frozen);
                    } else if !victims.is_empty() {
                        return None;
                    }
                }
                Move::Withdraw { step: other } if other == *step && start != Start::AtOnce => {
                    return None;
                }
                Move::Withdraw { step } => self.withdraw(&step),
            }
        }
        None
    }

    /// Runs give back what they hold, and wait again: those that are frozen for what they gave back.
    fn suppose_gone(&mut self, gone: &BTreeSet<AttemptId>, frozen: &BTreeSet<AttemptId>) {
        for id in gone {
            let Some(run) = self.run(id).cloned() else {
                continue;
            };
            if frozen.contains(id) || (run.is_freezing() && !run.stopping) {
                self.freeze(id, 0);
                self.await_resumption(id);
                continue;
            }
            // What was frozen waits to be resumed no longer.
            self.dequeue(&id.step);
            for node in &run.holding {
                self.release(id, node);
            }
            if !run.is_leaving() {
                self.enqueue(run.request);
            }
        }
    }

    fn suppose_grant(
        &mut self,
        step: &StepId,
        pool: PoolName,
        hosts: Vec<NodeName>,
        backfill: BTreeSet<StepId>,
        now: Time,
    ) {
        let Some(request) = self.request(step).cloned() else {
            return;
        };
        self.dequeue(step);
        if let Some(resumes) = &request.resumes {
            return self.thaw(&resumes.attempt, &backfill);
        }
        let wanted = request.each.gpus();
        let awaited = hosts
            .iter()
            .filter_map(|node| Some((node.clone(), self.awaited_gpus_given(node, wanted)?)));
        let gpus = awaited.collect();
        let run = Run {
            request,
            pool,
            holding: hosts.into_iter().collect(),
            granted: now,
            started: None,
            saved: None,
            stopping: false,
            backfill,
            gpus,
            frozen: None,
        };
        let id = AttemptId {
            step: step.clone(),
            number: SUPPOSED,
        };
        self.hold(&id, run);
    }
}

/// Whether a promise is one for which nothing more need change.
pub(crate) fn is_settled(nomination: Option<&Nomination>) -> bool {
    nomination.is_some_and(Nomination::is_firm)
}
