//! The load of services, as it was reported. Not recorded: after a start of the coordinator it is unknown until the next
//! reports, and an unknown load changes no number of replicas.

use alloc::collections::BTreeMap;
use alloc::string::String;

use sluice_common::id::{ReporterName, StepId};
use sluice_common::service::{RequestLoad, ScaleMetric};
use sluice_common::time::{Span, Time};

use super::autoscale::LoadHistory;
use crate::model::service::{ReplicaPhase, Service};

/// Time for which a report counts.
const REPORT_LIMIT: Span = Span::from_secs(15);

/// Most reporters of one service. Beyond it the report that is the oldest is forgotten.
const MAX_REPORTERS: usize = 16;

/// The load of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSummary {
    /// The requests that all reporters counted; `None` if nobody reported lately.
    pub requests: Option<RequestLoad>,
    /// Value of the service's metric for all replicas together, in thousandths; `None` if it is unknown.
    pub total_milli: Option<u64>,
    /// Replicas that the load needed when it was looked at last.
    pub needed: Option<u32>,
    /// A replica whose own metric its host could not read lately, with the reason.
    pub unread: Option<(StepId, String)>,
}

/// Usage of a replica between two reports of its host, or the value of its metric at the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReplicaUsage {
    /// Time of the report before.
    from: Option<Time>,
    at: Time,
    /// Value of the service's metric, in thousandths.
    milli: u64,
}

impl ReplicaUsage {
    fn is_fresh(&self, now: Time) -> bool {
        now.since(self.at) < REPORT_LIMIT
    }

    /// Whether all of it was measured while the replica was ready: what a program uses to get ready is not load.
    fn is_of(&self, phase: ReplicaPhase, metric: &ScaleMetric) -> bool {
        let ReplicaPhase::Serving { since } = phase else {
            return false;
        };
        let from = match metric {
            ScaleMetric::Cpu | ScaleMetric::Gpu => self.from,
            // These are values of a moment.
            ScaleMetric::Memory
            | ScaleMetric::Concurrency
            | ScaleMetric::Rps
            | ScaleMetric::Named(_) => Some(self.at),
        };
        from.is_some_and(|from| from >= since)
    }
}

/// Reports about a service, and what its load needed lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceLoads {
    reports: BTreeMap<ReporterName, (Time, RequestLoad)>,
    used: BTreeMap<StepId, ReplicaUsage>,
    /// Why the metric of a replica is unknown.
    unread: BTreeMap<StepId, (Time, String)>,
    pub(crate) history: Option<LoadHistory>,
}

impl ServiceLoads {
    /// Takes a report instead of the reporter's last one.
    pub(crate) fn report(&mut self, reporter: ReporterName, load: RequestLoad, now: Time) {
        self.reports.insert(reporter, (now, load));
        if self.reports.len() > MAX_REPORTERS {
            let oldest = self.reports.iter().min_by_key(|(_, (at, _))| *at);
            let oldest = oldest.map(|(reporter, _)| reporter.clone());
            oldest.map(|reporter| self.reports.remove(&reporter));
        }
    }

    /// The requests that all reporters counted; `None` if nobody reported lately.
    pub(crate) fn requests(&self, now: Time) -> Option<RequestLoad> {
        let fresh = self.fresh(now).map(|(_, load)| load);
        fresh.copied().reduce(|sum, load| RequestLoad {
            concurrency_milli: sum.concurrency_milli.saturating_add(load.concurrency_milli),
            rps_milli: sum.rps_milli.saturating_add(load.rps_milli),
        })
    }

    /// Takes what a replica uses.
    pub(crate) fn use_by(&mut self, replica: StepId, milli: u64, now: Time) {
        self.used.retain(|_, usage| usage.is_fresh(now));
        self.unread.remove(&replica);
        let from = self.used.get(&replica).map(|usage| usage.at);
        let at = now;
        self.used.insert(replica, ReplicaUsage { from, at, milli });
    }

    /// Takes why the metric of a replica is unknown. Its last value counts no more.
    pub(crate) fn unread_by(&mut self, replica: StepId, why: String, now: Time) {
        self.unread
            .retain(|_, (at, _)| now.since(*at) < REPORT_LIMIT);
        self.used.remove(&replica);
        self.unread.insert(replica, (now, why));
    }

    /// Forgets values of another metric.
    pub(crate) fn forget_used(&mut self) {
        self.used.clear();
        self.unread.clear();
    }

    /// The value of the service's metric for all replicas together, in thousandths; `None` if it is unknown.
    pub(crate) fn total_milli(&self, service: &Service, now: Time) -> Option<u64> {
        let requests = self.requests(now);
        match service.scale.metric.as_ref()? {
            ScaleMetric::Concurrency => requests.map(|load| load.concurrency_milli),
            ScaleMetric::Rps => requests.map(|load| load.rps_milli),
            ScaleMetric::Cpu | ScaleMetric::Memory | ScaleMetric::Gpu | ScaleMetric::Named(_) => {
                self.used_milli(service, now)
            }
        }
    }

    /// Sum of what the replicas that are ready use. One that nobody measured lately counts as much as the target.
    fn used_milli(&self, service: &Service, now: Time) -> Option<u64> {
        let target = service.scale.target_milli?;
        let metric = service.scale.metric.as_ref()?;
        let serving = service.live().filter(|it| it.phase.is_serving());
        let fresh = serving.map(|replica| {
            let used = self.used.get(&replica.step);
            used.filter(|usage| usage.is_fresh(now) && usage.is_of(replica.phase, metric))
        });
        let (mut total, mut is_known) = (0_u64, false);
        for used in fresh {
            is_known |= used.is_some();
            total = total.saturating_add(used.map_or(target, |usage| usage.milli));
        }
        is_known.then_some(total)
    }

    /// The load at a time.
    pub(crate) fn summary(&self, service: &Service, now: Time) -> LoadSummary {
        LoadSummary {
            requests: self.requests(now),
            total_milli: self.total_milli(service, now),
            needed: self.history.as_ref().map(LoadHistory::needed),
            unread: self.unread(service, now),
        }
    }

    fn unread(&self, service: &Service, now: Time) -> Option<(StepId, String)> {
        let mut serving = service.live().filter(|it| it.phase.is_serving());
        serving.find_map(|replica| {
            let (at, why) = self.unread.get(&replica.step)?;
            (now.since(*at) < REPORT_LIMIT).then(|| (replica.step.clone(), why.clone()))
        })
    }

    /// The time at which the first report ceases to count.
    pub(crate) fn expires_at(&self, now: Time) -> Option<Time> {
        let reports = self.fresh(now).map(|(at, _)| *at);
        let measured = self.used.values().map(|usage| usage.at);
        let ends = reports.chain(measured).map(|at| at + REPORT_LIMIT);
        ends.filter(|at| *at > now).min()
    }

    fn fresh(&self, now: Time) -> impl Iterator<Item = &(Time, RequestLoad)> {
        let reports = self.reports.values();
        reports.filter(move |(at, _)| now.since(*at) < REPORT_LIMIT)
    }
}
