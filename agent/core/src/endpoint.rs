//! Ports, probes and readiness of one attempt. Pure: [`crate::on`] reports them and orders the probes.
//!
//! ```text
//!   paused ---- the process runs ----> waits for its next probe <------> is probed
//!     ^                                        |
//!     +---- it is stopped, frozen or over -----+   (an answer that comes later is ignored)
//! ```

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::AttemptId;
use sluice_common::metric::MetricName;
use sluice_common::port::PortName;
use sluice_common::probe::{
    FAILURE_AGAIN, HttpTarget, Probe, ProbeAction, ProbeFailure, ProbeKind, Probes,
    ready_again_after,
};
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;

use crate::input::ProbeOutcome;
use crate::stop::later;

/// Time after which a report is repeated, because the coordinator may have been unable to use it.
pub(crate) const REPEAT: Span = Span::from_secs(30);

/// Time by which a report that has to wait comes later than the coordinator takes it, because messages
/// take different times.
const MARGIN: Span = Span::from_secs(1);

/// The part of an endpoint that outlives the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredEndpoint {
    /// Ports by name, in the order of the step.
    pub ports: Vec<(PortName, u16)>,
    pub probes: Probes,
    /// Whether the coordinator wants to know what the attempt uses.
    pub is_measured: bool,
    /// Whether the readiness probe has succeeded, and not failed since.
    pub is_ready: bool,
    /// Number of times that it was reported as ready.
    pub times_ready: u32,
    /// Time of the last such report.
    pub ready_at: BootMillis,
}

/// Action of a probe, with the number of the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeCheck {
    /// Request this path at a port of this host.
    Http { port: u16, path: String },
    /// Connect to a port of this host.
    Tcp { port: u16 },
    /// Run a program inside the step.
    Command { command: Vec<String> },
}

/// A metric that an attempt serves at a port of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricTarget {
    pub attempt: AttemptId,
    pub name: MetricName,
    pub port: u16,
    pub path: String,
}

/// Ports and probes of an attempt, and what is known of its readiness.
#[derive(Clone, Debug, Default)]
pub(crate) struct Endpoint {
    pub(crate) stored: StoredEndpoint,
    /// Whether the process runs, neither stopped nor frozen.
    pub(crate) is_running: bool,
    /// The failure of the last failed probe.
    failure: Option<ProbeFailure>,
    readiness: ProbeRun,
    liveness: ProbeRun,
    /// The last report of this agent, and its time.
    pub(crate) told: Option<(EndpointState, BootMillis)>,
}

/// Progress of one probe.
#[derive(Clone, Copy, Debug, Default)]
struct ProbeRun {
    /// Number of the last probe.
    number: u32,
    /// Whether its answer is awaited.
    is_awaited: bool,
    /// Time at which the next one is due.
    due: BootMillis,
    /// Successes or failures in a row.
    successes: u32,
    failures: u32,
}

/// The part of a report that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointState {
    pub(crate) is_ready: bool,
    pub(crate) failure: Option<ProbeFailure>,
}

/// Effect of a probe's answer on its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeEffect {
    Nothing,
    /// The attempt became ready, or is no longer ready.
    Readiness,
    /// The attempt does not work any more.
    Dead,
}

impl Endpoint {
    pub(crate) fn new(stored: StoredEndpoint) -> Self {
        Self {
            stored,
            ..Self::default()
        }
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        self.stored.ports.iter().map(|(_, port)| *port)
    }

    /// The probe of a kind, while the process runs.
    pub(crate) fn active(&self, kind: ProbeKind) -> Option<&Probe> {
        self.stored.probes.of(kind).filter(|_| self.is_running)
    }

    fn run(&mut self, kind: ProbeKind) -> &mut ProbeRun {
        match kind {
            ProbeKind::Readiness => &mut self.readiness,
            ProbeKind::Liveness => &mut self.liveness,
        }
    }

    /// Begins to probe a process. Returns when the first probe of each kind is due.
    pub(crate) fn begin(
        &mut self,
        now: BootMillis,
        started: BootMillis,
    ) -> Vec<(ProbeKind, BootMillis)> {
        self.is_running = true;
        self.failure = None;
        let kinds = ProbeKind::ALL.into_iter();
        let due = kinds.filter_map(|kind| {
            let delay = self.stored.probes.of(kind)?.initial_delay;
            let due = later(started, delay).max(now);
            let number = self.run(kind).number;
            *self.run(kind) = ProbeRun {
                number,
                due,
                ..ProbeRun::default()
            };
            Some((kind, due))
        });
        due.collect()
    }

    /// Stops probing: the process is stopped, frozen or over.
    pub(crate) fn pause(&mut self) {
        self.is_running = false;
        self.stored.is_ready = false;
        for kind in ProbeKind::ALL {
            self.run(kind).is_awaited = false;
        }
    }

    /// Begins a probe that is due, and returns its number. The error is the time at which it is due; `None` if none is.
    pub(crate) fn take_due(
        &mut self,
        now: BootMillis,
        kind: ProbeKind,
    ) -> Result<u32, Option<BootMillis>> {
        let Some(period) = self.active(kind).map(|probe| probe.period) else {
            return Err(None);
        };
        let run = self.run(kind);
        if run.is_awaited {
            return Err(None);
        }
        if now < run.due {
            return Err(Some(run.due));
        }
        run.is_awaited = true;
        run.number = run.number.wrapping_add(1);
        run.due = later(now, period);
        Ok(run.number)
    }

    /// The number of the port of this name.
    pub(crate) fn port(&self, name: &PortName) -> Option<u16> {
        let mut ports = self.stored.ports.iter();
        ports
            .find(|(known, _)| known == name)
            .map(|(_, port)| *port)
    }

    /// Whether it has ports, probes or a metric, so that there is something to report about it.
    pub(crate) fn is_reported(&self) -> bool {
        !self.stored.ports.is_empty() || !self.stored.probes.is_empty()
    }

    /// The metric of an attempt that is ready.
    pub(crate) fn metric(&self, attempt: &AttemptId) -> Option<MetricTarget> {
        let metric = self.stored.probes.metric.as_ref();
        let metric = metric.filter(|_| self.state().is_ready)?;
        Some(MetricTarget {
            attempt: attempt.clone(),
            name: metric.name.clone(),
            port: self.port(&metric.port)?,
            path: metric.path.clone(),
        })
    }

    /// The check for a probe, with the number of its port.
    pub(crate) fn check_of(&self, action: &ProbeAction) -> Option<ProbeCheck> {
        Some(match action {
            ProbeAction::Http(HttpTarget { path, port }) => ProbeCheck::Http {
                port: self.port(port)?,
                path: path.clone(),
            },
            ProbeAction::Tcp(port) => ProbeCheck::Tcp {
                port: self.port(port)?,
            },
            ProbeAction::Command(command) => ProbeCheck::Command {
                command: command.clone(),
            },
        })
    }

    /// Handles the answer to a probe. Returns its effect, and when the next is due; `None` if the answer is not awaited.
    pub(crate) fn on_probed(
        &mut self,
        kind: ProbeKind,
        number: u32,
        outcome: ProbeOutcome,
    ) -> Option<(ProbeEffect, BootMillis)> {
        let probe = self.active(kind)?;
        let (least_successes, least_failures) = (probe.successes, probe.failures);
        let run = self.run(kind);
        if !run.is_awaited || run.number != number {
            return None;
        }
        run.is_awaited = false;
        let due = run.due;
        let failure = match outcome {
            ProbeOutcome::Unknown => return Some((ProbeEffect::Nothing, due)),
            ProbeOutcome::Succeeded => {
                run.successes = run.successes.saturating_add(1);
                run.failures = 0;
                None
            }
            ProbeOutcome::Failed(saw) => {
                run.failures = run.failures.saturating_add(1);
                run.successes = 0;
                Some(ProbeFailure::new(kind, &saw))
            }
        };
        let succeeded = run.successes >= least_successes;
        let failed = run.failures >= least_failures;
        let was_ready = self.stored.is_ready;
        let effect = match kind {
            ProbeKind::Liveness if failed => {
                self.failure = failure;
                self.stored.is_ready = false;
                ProbeEffect::Dead
            }
            ProbeKind::Liveness => ProbeEffect::Nothing,
            ProbeKind::Readiness => {
                self.stored.is_ready = (was_ready && !failed) || succeeded;
                if self.stored.is_ready {
                    self.failure = None;
                } else if failure.is_some() {
                    self.failure = failure;
                }
                ProbeEffect::Readiness
            }
        };
        Some((effect, due))
    }

    pub(crate) fn state(&self) -> EndpointState {
        let is_ready =
            self.is_running && (self.stored.is_ready || self.stored.probes.readiness.is_none());
        EndpointState {
            is_ready,
            failure: self.failure.clone().filter(|_| !is_ready),
        }
    }

    /// When the state may be reported; `None` if it was.
    pub(crate) fn report_due(&self, now: BootMillis) -> Option<BootMillis> {
        let state = self.state();
        let Some((told, at)) = &self.told else {
            return Some(now);
        };
        if state == *told {
            return None;
        }
        let due = match (told.is_ready, state.is_ready) {
            (true, _) => now,
            (false, true) => {
                let times = self.stored.times_ready;
                let pause = match times {
                    0 => Span::ZERO,
                    times => ready_again_after(times) + MARGIN,
                };
                later(self.stored.ready_at, pause)
            }
            (false, false) if told.failure.is_none() || self.is_dead() => now,
            (false, false) => later(*at, FAILURE_AGAIN + MARGIN),
        };
        Some(due.max(now))
    }

    fn is_dead(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|failure| failure.probe == ProbeKind::Liveness)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::vec;

    fn probe(failures: u32, successes: u32) -> Probe {
        Probe {
            action: ProbeAction::Tcp("http".parse().unwrap()),
            period: Span::from_secs(2),
            timeout: Span::from_secs(1),
            failures,
            successes,
            initial_delay: Span::from_secs(5),
        }
    }

    fn endpoint() -> Endpoint {
        Endpoint::new(StoredEndpoint {
            ports: vec![("http".parse().unwrap(), 20_000)],
            probes: Probes {
                readiness: Some(probe(2, 2)),
                liveness: Some(probe(3, 1)),
                metric: None,
            },
            ..StoredEndpoint::default()
        })
    }

    fn answered(endpoint: &mut Endpoint, kind: ProbeKind, succeeds: bool) -> ProbeEffect {
        let at = endpoint.run(kind).due;
        let number = endpoint.take_due(at, kind).unwrap();
        let outcome = match succeeds {
            true => ProbeOutcome::Succeeded,
            false => ProbeOutcome::Failed("503".to_owned()),
        };
        endpoint.on_probed(kind, number, outcome).unwrap().0
    }

    #[test]
    fn a_step_is_ready_after_its_successes_and_no_longer_after_its_failures() {
        let mut endpoint = endpoint();
        let due = endpoint.begin(BootMillis(9_000), BootMillis(8_000));
        let expected = ProbeKind::ALL.map(|kind| (kind, BootMillis(13_000)));
        assert_eq!(due, expected);
        let kind = ProbeKind::Readiness;
        let early = endpoint.take_due(BootMillis(12_999), kind);
        assert_eq!(early, Err(Some(BootMillis(13_000))));
        for (succeeds, is_ready) in [
            (true, false),
            (false, false),
            (true, false),
            (true, true),
            (false, true),
            (true, true),
            (false, true),
            (false, false),
        ] {
            answered(&mut endpoint, kind, succeeds);
            assert_eq!(endpoint.state().is_ready, is_ready);
        }
        assert_eq!(endpoint.state().failure.unwrap().saw, "503");
    }

    #[test]
    fn three_failures_in_a_row_are_deadly_and_others_are_not() {
        let mut endpoint = endpoint();
        endpoint.begin(BootMillis(0), BootMillis(0));
        let kind = ProbeKind::Liveness;
        for succeeds in [false, false, true, false, false] {
            let effect = answered(&mut endpoint, kind, succeeds);
            assert_eq!(effect, ProbeEffect::Nothing);
        }
        assert_eq!(answered(&mut endpoint, kind, false), ProbeEffect::Dead);
    }

    #[test]
    fn an_answer_that_is_not_awaited_changes_nothing() {
        let mut endpoint = endpoint();
        endpoint.begin(BootMillis(0), BootMillis(0));
        let kind = ProbeKind::Readiness;
        let number = endpoint.take_due(BootMillis(5_000), kind).unwrap();
        assert_eq!(endpoint.take_due(BootMillis(9_000), kind), Err(None));
        assert_eq!(
            endpoint.on_probed(kind, number + 1, ProbeOutcome::Succeeded),
            None
        );
        endpoint.pause();
        assert_eq!(
            endpoint.on_probed(kind, number, ProbeOutcome::Succeeded),
            None
        );
        endpoint.begin(BootMillis(20_000), BootMillis(0));
        assert_eq!(
            endpoint.on_probed(kind, number, ProbeOutcome::Succeeded),
            None
        );
        let number = endpoint.take_due(BootMillis(20_000), kind).unwrap();
        endpoint
            .on_probed(kind, number, ProbeOutcome::Unknown)
            .unwrap();
        assert_eq!(endpoint.state().failure, None);
    }

    #[test]
    fn what_flaps_is_reported_ever_more_rarely() {
        let mut endpoint = endpoint();
        endpoint.begin(BootMillis(0), BootMillis(0));
        let now = BootMillis(10_000);
        endpoint.told = Some((endpoint.state(), now));
        assert_eq!(endpoint.report_due(now), None);
        endpoint.stored.is_ready = true;
        assert_eq!(endpoint.report_due(now), Some(now), "the first time");
        endpoint.stored.times_ready = 2;
        endpoint.stored.ready_at = now;
        assert_eq!(endpoint.report_due(now), Some(BootMillis(31_000)));
        endpoint.told = Some((endpoint.state(), now));
        endpoint.stored.is_ready = false;
        assert_eq!(endpoint.report_due(now), Some(now), "no longer ready");
    }
}
