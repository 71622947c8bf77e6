//! The load of services, as it was reported. Not recorded: after a start of the coordinator it is unknown until the next
//! reports, and an unknown load changes no number of replicas.

use alloc::collections::BTreeMap;

use sluice_common::id::ReporterName;
use sluice_common::service::{RequestLoad, ScaleMetric};
use sluice_common::time::{Span, Time};

use super::autoscale::NeedHistory;

/// Time for which a report counts.
const REPORT_LIMIT: Span = Span::from_secs(15);

/// Most reporters of one service. Beyond it the report that is the oldest is forgotten.
const MAX_REPORTERS: usize = 16;

/// The load of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSummary {
    /// The requests that all reporters counted; `None` if nobody reported lately.
    pub requests: Option<RequestLoad>,
    /// Value of the service's metric for all replicas together, in thousandths; `None` if it is unknown.
    pub total_milli: Option<u64>,
    /// Replicas that the load needed when it was looked at last.
    pub needed: Option<u32>,
}

/// Reports about a service, and what its load needed lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceLoads {
    reports: BTreeMap<ReporterName, (Time, RequestLoad)>,
    pub(crate) history: Option<NeedHistory>,
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

    /// The value of a metric for all replicas together, in thousandths; `None` if it is unknown.
    pub(crate) fn total_milli(&self, metric: ScaleMetric, now: Time) -> Option<u64> {
        let requests = self.requests(now);
        match metric {
            ScaleMetric::Concurrency => requests.map(|load| load.concurrency_milli),
            ScaleMetric::Rps => requests.map(|load| load.rps_milli),
            ScaleMetric::Cpu | ScaleMetric::Memory => None,
        }
    }

    /// The load at a time.
    pub(crate) fn summary(&self, metric: Option<ScaleMetric>, now: Time) -> LoadSummary {
        LoadSummary {
            requests: self.requests(now),
            total_milli: metric.and_then(|metric| self.total_milli(metric, now)),
            needed: self.history.as_ref().map(NeedHistory::needed),
        }
    }

    /// The time at which the first report ceases to count.
    pub(crate) fn expires_at(&self, now: Time) -> Option<Time> {
        self.fresh(now).map(|(at, _)| *at + REPORT_LIMIT).min()
    }

    fn fresh(&self, now: Time) -> impl Iterator<Item = &(Time, RequestLoad)> {
        let reports = self.reports.values();
        reports.filter(move |(at, _)| now.since(*at) < REPORT_LIMIT)
    }
}
