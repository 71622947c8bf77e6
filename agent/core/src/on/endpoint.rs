//! Ports of attempts, their probes, and reports of their readiness. [`crate::endpoint`] is one attempt.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use sluice_common::id::AttemptId;
use sluice_common::port::PortName;
use sluice_common::probe::{EndpointReport, ProbeKind, Probes};
use sluice_common::supervision::{BootMillis, Exit};
use sluice_common::wire::{Assignment, FromNode, StopReason};

use crate::attempt::{Attempt, Effects, stopping};
use crate::core::Core;
use crate::endpoint::{Endpoint, MetricTarget, ProbeEffect, REPEAT, StoredEndpoint};
use crate::input::{LinkId, Now, ProbeOutcome, TimerKey};
use crate::link::LinkStage;
use crate::output::Output;
use crate::stop::later;

impl Core {
    /// Adds the endpoints of the attempts of this boot, from [`Output::KeepEndpoint`].
    #[must_use]
    pub fn with_endpoints(mut self, kept: BTreeMap<AttemptId, StoredEndpoint>) -> Self {
        let endpoints = kept.into_iter();
        let endpoints = endpoints.map(|(id, stored)| (id, Endpoint::new(stored)));
        self.endpoints = endpoints.collect();
        self
    }

    /// Ports that attempts have, including those of attempts that ended and are not forgotten.
    pub fn ports_in_use(&self) -> BTreeSet<u16> {
        self.endpoints.values().flat_map(Endpoint::ports).collect()
    }

    /// The port that an attempt has by this name; `None` if its process does not run now, or if it has no such port.
    pub fn port_of(&self, attempt: &AttemptId, name: &PortName) -> Option<u16> {
        let endpoint = self.endpoints.get(attempt);
        endpoint.filter(|it| it.is_running)?.port(name)
    }

    /// The metrics of the attempts that are ready.
    pub fn metrics(&self) -> Vec<MetricTarget> {
        let endpoints = self.endpoints.iter();
        let metrics = endpoints.filter_map(|(id, endpoint)| endpoint.metric(id));
        metrics.collect()
    }

    /// Whether the coordinator wants to know what an attempt uses.
    pub fn is_measured(&self, attempt: &AttemptId) -> bool {
        let endpoint = self.endpoints.get(attempt);
        endpoint.is_some_and(|it| it.stored.is_measured)
    }

    /// The ports of an assigned attempt; the error says why it cannot have any.
    pub(crate) fn ports_for(&mut self, assignment: &Assignment) -> Result<Vec<u16>, Exit> {
        let free = core::mem::take(&mut self.free_ports);
        let count = assignment.ports.len();
        let taken = self.ports_in_use();
        let mut seen = BTreeSet::new();
        let range = &self.settings.ports;
        let is_free = |port: &u16| range.contains(*port) && !taken.contains(port);
        let free = free.into_iter().filter(is_free);
        let ports: Vec<u16> = free.filter(|port| seen.insert(*port)).take(count).collect();
        if ports.len() == count {
            return Ok(ports);
        }
        Err(Exit::StartFailed(format!(
            "the host has no port left for it: it asks for {count}, and of {range} (`ports` in the agent's config) {} belong to other steps and programs listen at the rest: submit it again later, or let an admin widen the range",
            taken.len()
        )))
    }

    /// Stores the ports and probes of an attempt that is assigned now, and whether it is measured, if it has any or is.
    pub(crate) fn begin_endpoint(
        &mut self,
        id: &AttemptId,
        ports: Vec<(PortName, u16)>,
        probes: Probes,
        is_measured: bool,
    ) {
        let endpoint = Endpoint::new(StoredEndpoint {
            ports,
            probes,
            is_measured,
            ..StoredEndpoint::default()
        });
        if !endpoint.is_reported() && !is_measured {
            return;
        }
        self.endpoints.insert(id.clone(), endpoint);
        self.keep_endpoint(id);
        self.report_endpoint(id, false);
    }

    fn keep_endpoint(&mut self, id: &AttemptId) {
        if let Some(endpoint) = self.endpoints.get(id) {
            self.outputs.push(Output::KeepEndpoint {
                attempt: id.clone(),
                endpoint: Box::new(endpoint.stored.clone()),
            });
        }
    }

    /// Drops the endpoints of attempts that the host does not have, which an agent that died may have left.
    pub(crate) fn drop_unknown_endpoints(&mut self) {
        let attempts = &self.attempts;
        self.endpoints.retain(|id, _| attempts.contains_key(id));
    }

    /// Begins or ends the probes of an attempt that has changed.
    pub(crate) fn follow_endpoint(&mut self, id: &AttemptId) {
        let started = match self.attempts.get(id) {
            Some(Attempt::Running { process, .. }) => Some(process.started()),
            Some(
                Attempt::Starting { .. }
                | Attempt::Frozen(_)
                | Attempt::Stopping { .. }
                | Attempt::Ended { .. }
                | Attempt::Releasing { .. }
                | Attempt::Released { .. },
            )
            | None => None,
        };
        let now = self.clock;
        let Some(endpoint) = self.endpoints.get_mut(id) else {
            return;
        };
        if endpoint.is_running == started.is_some() {
            return;
        }
        let was_ready = endpoint.stored.is_ready;
        let due = match started {
            Some(started) => endpoint.begin(now, started),
            None => {
                endpoint.pause();
                Vec::new()
            }
        };
        let is_changed = endpoint.stored.is_ready != was_ready;
        for (kind, at) in due {
            self.wake(TimerKey::Probe(id.clone(), kind), at);
        }
        if is_changed {
            self.keep_endpoint(id);
        }
        self.report_endpoint(id, false);
    }

    pub(crate) fn on_probe_timer(&mut self, id: &AttemptId, kind: ProbeKind) {
        let now = self.clock;
        let Some(endpoint) = self.endpoints.get_mut(id) else {
            return;
        };
        let number = match endpoint.take_due(now, kind) {
            Ok(number) => number,
            Err(Some(at)) => return self.wake(TimerKey::Probe(id.clone(), kind), at),
            Err(None) => return,
        };
        let Some(probe) = endpoint.active(kind) else {
            return;
        };
        if let Some(check) = endpoint.check_of(&probe.action) {
            let timeout = probe.timeout;
            self.outputs.push(Output::Probe {
                attempt: id.clone(),
                kind,
                number,
                check,
                timeout,
            });
        }
    }

    pub(crate) fn on_probed(
        &mut self,
        now: Now,
        id: &AttemptId,
        kind: ProbeKind,
        number: u32,
        outcome: ProbeOutcome,
    ) {
        let Some(endpoint) = self.endpoints.get_mut(id) else {
            return;
        };
        let was_ready = endpoint.stored.is_ready;
        let Some((effect, due)) = endpoint.on_probed(kind, number, outcome) else {
            return;
        };
        let is_changed = endpoint.stored.is_ready != was_ready;
        if is_changed {
            self.keep_endpoint(id);
        }
        self.wake(TimerKey::Probe(id.clone(), kind), due);
        match effect {
            ProbeEffect::Nothing => {}
            ProbeEffect::Readiness => self.report_endpoint(id, false),
            // The coordinator hears what the probe saw before it hears of the stop.
            ProbeEffect::Dead => {
                self.report_endpoint(id, false);
                self.change(id, |attempt| attempt.on_liveness_failed(now));
            }
        }
    }

    /// Reports every endpoint on a link that was just welcomed.
    pub(crate) fn report_endpoints(&mut self) {
        let ids: Vec<AttemptId> = self.endpoints.keys().cloned().collect();
        for id in &ids {
            self.report_endpoint(id, true);
        }
    }

    pub(crate) fn on_endpoint_timer(&mut self, id: &AttemptId) {
        self.report_endpoint(id, true);
    }

    /// Reports an endpoint that has changed, or sets a timer if it has to wait. `repeats` sends the last report again
    /// otherwise, because it may have been lost with its link.
    fn report_endpoint(&mut self, id: &AttemptId, repeats: bool) {
        let Some(link) = self.welcomed_link() else {
            return;
        };
        let is_over = match self.attempts.get(id) {
            Some(Attempt::Ended { .. } | Attempt::Releasing { .. } | Attempt::Released { .. })
            | None => true,
            Some(
                Attempt::Starting { .. }
                | Attempt::Running { .. }
                | Attempt::Frozen(_)
                | Attempt::Stopping { .. },
            ) => false,
        };
        let now = self.clock;
        let endpoint = self.endpoints.get_mut(id);
        let endpoint = endpoint.filter(|it| !is_over && it.is_reported());
        let Some(endpoint) = endpoint else {
            return;
        };
        let due = endpoint.report_due(now);
        let waits_until = due.filter(|at| *at > now);
        match (waits_until, due) {
            (Some(at), _) if !repeats => return self.wake(TimerKey::Endpoint(id.clone()), at),
            (None, None) if !repeats => return,
            _ => {}
        }
        let last = endpoint.told.as_ref().filter(|_| waits_until.is_some());
        let (state, is_ready_again) = match last {
            Some((told, _)) => (told.clone(), false),
            None => {
                let is_ready_again = mark_told(endpoint, now);
                (endpoint.state(), is_ready_again)
            }
        };
        let report = EndpointReport {
            attempt: id.to_owned(),
            ports: endpoint.ports().collect(),
            ready: state.is_ready,
            failure: state.failure,
        };
        self.outputs.push(Output::Send {
            link,
            message: FromNode::Endpoint(Box::new(report)),
        });
        if is_ready_again {
            self.keep_endpoint(id);
        }
        let again = later(now, REPEAT);
        let at = waits_until.map_or(again, |at| at.min(again));
        self.wake(TimerKey::Endpoint(id.clone()), at);
    }

    fn welcomed_link(&self) -> Option<LinkId> {
        let link = self.link.as_ref()?;
        match link.stage {
            LinkStage::Waiting | LinkStage::Greeted { .. } => None,
            LinkStage::Welcomed { .. } => Some(link.id),
        }
    }
}

impl Attempt {
    /// Stops a running attempt because its liveness probe has failed.
    fn on_liveness_failed(&mut self, now: Now) -> Effects {
        match self {
            Self::Running { process, grace, .. } => {
                let (process, grace) = (Some(*process), *grace);
                self.turn(stopping(now, process, StopReason::LivenessFailed, grace))
            }
            Self::Starting { .. }
            | Self::Frozen(_)
            | Self::Stopping { .. }
            | Self::Ended { .. }
            | Self::Releasing { .. }
            | Self::Released { .. } => Effects::new(),
        }
    }
}

/// Notes that the state is reported now. Returns whether that says that it has become ready.
fn mark_told(endpoint: &mut Endpoint, now: BootMillis) -> bool {
    let state = endpoint.state();
    // An earlier agent has told that it is ready.
    let before = endpoint.stored.times_ready > 0;
    let told = endpoint.told.as_ref();
    let was_ready = told.map_or(before, |(told, _)| told.is_ready);
    let is_news = state.is_ready && !was_ready;
    if is_news {
        endpoint.stored.times_ready = endpoint.stored.times_ready.saturating_add(1);
        endpoint.stored.ready_at = now;
    }
    endpoint.told = Some((state, now));
    is_news
}
