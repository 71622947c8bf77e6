//! Decides what a service does next. Pure: a function of the service, its replicas and the time.
//!
//! The number of replicas, those that are draining included, never grows beyond `count`, or `count + max_surge` while
//! there are replicas of another version. Replicas that are ready are drained only while more than
//! `count - max_unavailable` are.

use alloc::vec::Vec;

use sluice_common::time::{Span, Time};

use super::backoff::STEADY;
use crate::model::service::{ReplicaPhase, RolloutPhase, Service};

/// Time for which a replica of another version must have been ready before it takes the place of an old one: a program
/// without a readiness probe is ready when it runs, and one that ends at once must not count.
pub(crate) const PROVEN_AFTER: Span = Span::from_secs(2);

/// A replica with what its step is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaStatus {
    pub(crate) number: u32,
    /// Whether it is of the wanted version.
    pub(crate) is_current: bool,
    pub(crate) phase: ReplicaPhase,
    /// Whether it may get requests.
    pub(crate) is_ready: bool,
    /// Whether its step has ended.
    pub(crate) is_over: bool,
    /// Whether its step is being stopped.
    pub(crate) is_stopping: bool,
    /// Whether it cannot be preempted.
    pub(crate) is_guaranteed: bool,
}

/// An action for a service; the numbers are those of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceAction {
    /// Notes that the step of a replica has ended.
    End(u32),
    /// Puts a replica among the endpoints.
    Serve(u32),
    /// Takes a replica that is not ready from the endpoints.
    Unserve(u32),
    /// Takes a replica from the endpoints, to stop it later.
    Drain(u32),
    /// Stops a replica that was drained.
    Stop(u32),
    /// Adds a replica of the wanted version.
    Add,
    /// Notes that all replicas are of the wanted version and ready.
    Complete,
    /// Goes back to another version, or notes that the wanted one does not become ready.
    GiveUp,
    /// Forgets earlier failures.
    Recover,
    /// Forgets a deleted service without replicas.
    Delete,
}

/// The next action of a service, or the time for which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanStep {
    Act(ServiceAction),
    /// Waits for something to change, or for this time.
    Wait(Option<Time>),
}

/// Decides what a service does next.
pub(crate) fn plan(service: &Service, replicas: &[ReplicaStatus], now: Time) -> PlanStep {
    let plan = ServicePlan {
        service,
        replicas,
        now,
    };
    let action = plan.follow().or_else(|| match service.deleting_since {
        Some(_) => plan.delete(),
        None => plan
            .roll()
            .or_else(|| plan.scale())
            .or_else(|| plan.judge()),
    });
    action.map_or_else(|| PlanStep::Wait(plan.next_time()), PlanStep::Act)
}

struct ServicePlan<'a> {
    service: &'a Service,
    replicas: &'a [ReplicaStatus],
    now: Time,
}

impl ServicePlan<'_> {
    fn live(&self) -> impl Iterator<Item = &ReplicaStatus> {
        let is_live = |replica: &&ReplicaStatus| !replica.phase.is_draining();
        self.replicas.iter().filter(is_live)
    }

    fn current(&self) -> impl Iterator<Item = &ReplicaStatus> {
        self.live().filter(|replica| replica.is_current)
    }

    fn old(&self) -> impl Iterator<Item = &ReplicaStatus> {
        self.live().filter(|replica| !replica.is_current)
    }

    fn serving(&self) -> usize {
        self.live()
            .filter(|replica| replica.phase.is_serving())
            .count()
    }

    /// Replicas that are ready, and have been for a while if they are of the wanted version.
    fn proven(&self) -> usize {
        let is_proven = |replica: &&ReplicaStatus| match replica.phase {
            ReplicaPhase::Serving { since } => {
                !replica.is_current || since + PROVEN_AFTER <= self.now
            }
            ReplicaPhase::Starting | ReplicaPhase::Draining { .. } => false,
        };
        self.live().filter(is_proven).count()
    }

    /// The next time at which a replica has been ready for long enough, while that matters.
    fn proven_at(&self) -> Option<Time> {
        let times = self.current().filter_map(|replica| match replica.phase {
            ReplicaPhase::Serving { since } => Some(since + PROVEN_AFTER),
            ReplicaPhase::Starting | ReplicaPhase::Draining { .. } => None,
        });
        let is_rolling = self.service.rollout.phase != RolloutPhase::Complete;
        let times = times.filter(|at| is_rolling && *at > self.now);
        times.min()
    }

    fn count(&self) -> usize {
        self.service.count as usize
    }

    /// Follows what the steps of the replicas do.
    fn follow(&self) -> Option<ServiceAction> {
        self.replicas.iter().find_map(|replica| {
            let number = replica.number;
            if replica.is_over {
                return Some(ServiceAction::End(number));
            }
            match replica.phase {
                ReplicaPhase::Draining { until } => {
                    let is_due = until <= self.now && !replica.is_stopping;
                    is_due.then_some(ServiceAction::Stop(number))
                }
                ReplicaPhase::Starting => replica.is_ready.then_some(ServiceAction::Serve(number)),
                ReplicaPhase::Serving { .. } => {
                    (!replica.is_ready).then_some(ServiceAction::Unserve(number))
                }
            }
        })
    }

    fn delete(&self) -> Option<ServiceAction> {
        match self.live().next() {
            Some(replica) => Some(ServiceAction::Drain(replica.number)),
            None => self.replicas.is_empty().then_some(ServiceAction::Delete),
        }
    }

    /// Drains replicas of another version: those that are not ready at once, the others as new ones become ready.
    fn roll(&self) -> Option<ServiceAction> {
        let unready = self.old().find(|replica| !replica.phase.is_serving());
        let needed = self
            .count()
            .saturating_sub(self.service.rollout_spec.max_unavailable as usize);
        let spare = self.old().next().filter(|_| self.proven() > needed);
        let drained = unready.or(spare)?;
        Some(ServiceAction::Drain(drained.number))
    }

    /// Drains replicas beyond the count, and adds missing ones.
    fn scale(&self) -> Option<ServiceAction> {
        let current = self.current().count();
        if current > self.count() {
            return self.surplus().map(ServiceAction::Drain);
        }
        let may_add = current < self.count()
            && self.replicas.len() < self.most()
            && self.service.backoff.restart_at <= self.now;
        may_add.then_some(ServiceAction::Add)
    }

    /// Most replicas that there may be after one is added.
    fn most(&self) -> usize {
        let surge = self.service.rollout_spec.max_surge as usize;
        match self.replicas.iter().all(|replica| replica.is_current) {
            true => self.count(),
            false => self.count() + surge,
        }
    }

    /// The replica that is missed least: not ready, then preemptible, then the newest.
    fn surplus(&self) -> Option<u32> {
        let least = self.current().min_by_key(|replica| {
            let newest = core::cmp::Reverse(replica.number);
            (replica.phase.is_serving(), replica.is_guaranteed, newest)
        });
        least.map(|replica| replica.number)
    }

    /// Judges how a change of version goes, and forgets failures after a while.
    fn judge(&self) -> Option<ServiceAction> {
        let all_serve = self.proven() == self.count() && self.replicas.len() == self.count();
        let all_current = self.replicas.iter().all(|replica| replica.is_current);
        let is_complete = self.service.rollout.phase == RolloutPhase::Complete;
        if all_serve && all_current && !is_complete {
            return Some(ServiceAction::Complete);
        }
        if self.deadline().is_some_and(|at| at <= self.now) {
            return Some(ServiceAction::GiveUp);
        }
        let recovers = self.recovers_at().is_some_and(|at| at <= self.now);
        recovers.then_some(ServiceAction::Recover)
    }

    /// The time by which a replica must become ready. None while replicas are drained, which has a limit of its own.
    fn deadline(&self) -> Option<Time> {
        let rollout = &self.service.rollout;
        let drains = self
            .replicas
            .iter()
            .any(|replica| replica.phase.is_draining());
        let waits = rollout.phase == RolloutPhase::Rolling && !drains;
        waits.then(|| rollout.progress_at + self.service.rollout_spec.progress_deadline)
    }

    /// The time at which all replicas have been ready for long enough.
    fn recovers_at(&self) -> Option<Time> {
        if self.service.backoff.failures == 0 || self.serving() < self.count() {
            return None;
        }
        let since = self.live().map(|replica| match replica.phase {
            ReplicaPhase::Serving { since } => Some(since + STEADY),
            ReplicaPhase::Starting | ReplicaPhase::Draining { .. } => None,
        });
        let since: Option<Vec<Time>> = since.collect();
        let steady = self.service.backoff.raised_at + STEADY;
        since.and_then(|since| since.into_iter().chain([steady]).max())
    }

    /// The earliest time at which something is due.
    fn next_time(&self) -> Option<Time> {
        let drains = self
            .replicas
            .iter()
            .filter_map(|replica| match replica.phase {
                ReplicaPhase::Draining { until } if !replica.is_stopping => Some(until),
                ReplicaPhase::Starting
                | ReplicaPhase::Serving { .. }
                | ReplicaPhase::Draining { .. } => None,
            });
        if self.service.deleting_since.is_some() {
            return drains.min();
        }
        let restart = Some(self.service.backoff.restart_at);
        let restart = restart.filter(|_| self.current().count() < self.count());
        let times = [
            restart,
            self.deadline(),
            self.recovers_at(),
            self.proven_at(),
        ];
        let times = drains.chain(times.into_iter().flatten());
        times.filter(|at| *at > self.now).min()
    }
}
