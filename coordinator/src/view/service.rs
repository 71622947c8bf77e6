//! The views of services and endpoints.

use std::cmp::Ordering;

use coordinator_core::{
    Core, LoadSummary, Part, Replica, ReplicaPhase, RolloutPhase, Service, Step, current_revisions,
};
use sluice_common::api::{
    AutoscalingView, EndpointView, FailedVersionView, ReplicaFailureView, ReplicaView,
    RequestsView, RevisionView, RolloutState, RolloutView, ServiceView, duration, timestamp,
};
use sluice_common::id::{PoolName, ServiceName};
use sluice_common::metric::MetricSource;
use sluice_common::request::{ResourceSettings, RolloutRequest};
use sluice_common::service::{RequestLoad, ScaleMetric, ScaleSpec, ServiceState};
use sluice_common::step::StepSpec;

use super::endpoint::ports;

/// Returns the view of a service.
pub fn service(core: &Core, name: &ServiceName, known: &Service) -> Option<ServiceView> {
    let spec = known.replica()?;
    let scale = &known.scale;
    let state = known.state();
    let backoff = &known.backoff;
    let last = backoff.last.as_ref();
    let load = core.service_load(name);
    Some(ServiceView {
        name: name.to_string(),
        subject: spec.subject.to_string(),
        pool: pool_of(known).map(ToString::to_string),
        platform: spec.platform.clone(),
        state,
        message: message(known, state),
        version: known.version,
        revision: known.revision,
        replicas: known.count,
        ready: known.serving(),
        min_replicas: scale.min,
        max_replicas: Some(scale.max).filter(|_| !scale.unlimited),
        command: spec.command.clone(),
        env: spec.env.hidden(),
        image: spec.image.as_ref().map(ToString::to_string),
        resources: resources(spec, scale),
        rollout: rollout_terms(known),
        placement: known.placement,
        autoscaling: autoscaling(known, load.as_ref()),
        requests: load.and_then(|load| load.requests).map(requests),
        status: status(known),
        failures: backoff.failures,
        restart_at: Some(backoff.restart_at)
            .filter(|_| backoff.failures > 0 && known.serving() < known.count)
            .map(timestamp),
        last_failure: last.map(|last| ReplicaFailureView {
            id: last.step.to_string(),
            at: timestamp(last.at),
            message: last.end.message(),
        }),
        members: known
            .replicas
            .values()
            .filter_map(|it| member(core, it))
            .collect(),
        revisions: revisions(known),
        made_at: timestamp(known.made_at),
        outcome: None,
    })
}

fn requests(load: RequestLoad) -> RequestsView {
    RequestsView {
        concurrency: whole(load.concurrency_milli),
        rps: whole(load.rps_milli),
    }
}

/// The number of replicas by the load, with the reason as a sentence.
fn autoscaling(known: &Service, load: Option<&LoadSummary>) -> Option<AutoscalingView> {
    let scale = &known.scale;
    let metric = scale.metric.as_ref()?;
    let target = whole(scale.target_milli?);
    let total = load.and_then(|load| load.total_milli).map(whole);
    let needed = load.and_then(|load| load.needed);
    let unread = load.and_then(|load| load.unread.as_ref());
    let unread = unread.map(|(step, why)| format!("; of {step} it is unknown: {why}"));
    let count = known.count;
    let message = match (total, needed) {
        (None, _) | (_, None) => {
            let why = unknown(known, metric);
            format!("{why}, so the number stays at {count}")
        }
        (Some(total), Some(needed)) => {
            let load = format!("`{metric}` is {total}, with a target of {target} for each replica");
            match needed.cmp(&count) {
                Ordering::Equal => format!("{load}, which needs {count}"),
                Ordering::Greater => format!("{load}, which needs {needed}: the number grows"),
                Ordering::Less => format!(
                    "{load}, which needs {needed}: there are fewer than {count} once that held for {}",
                    scale.down_after
                ),
            }
        }
    };
    let source = metric_source(known);
    Some(AutoscalingView {
        metric: metric.to_string(),
        port: source.map(|it| it.port.to_string()),
        path: source.map(|it| it.path.clone()),
        target,
        total,
        needed,
        down_after: duration(scale.down_after),
        message: message + &unread.unwrap_or_default(),
    })
}

/// The place at which hosts read the metric of the replicas, if these serve it.
fn metric_source(known: &Service) -> Option<&MetricSource> {
    known.replica()?.probes.metric.as_ref()
}

/// Why a metric is unknown.
fn unknown(known: &Service, metric: &ScaleMetric) -> String {
    let by = match metric {
        ScaleMetric::Cpu | ScaleMetric::Memory | ScaleMetric::Gpu => "no host has measured",
        ScaleMetric::Concurrency | ScaleMetric::Rps => "no gateway has reported",
        ScaleMetric::Named(name) => {
            let source = metric_source(known);
            if source.is_none_or(|it| it.name != *name) {
                // An older version is back.
                return format!("this version of the replicas serves no `{metric}`");
            }
            "no host has read"
        }
    };
    format!("{by} `{metric}` for 15 seconds")
}

fn whole(milli: u64) -> f64 {
    milli as f64 / 1000.0
}

fn rollout_terms(known: &Service) -> RolloutRequest {
    let terms = &known.rollout_spec;
    RolloutRequest {
        max_surge: Some(terms.max_surge.into()),
        max_unavailable: Some(terms.max_unavailable.into()),
        drain_timeout: Some(duration(terms.drain_timeout)),
        progress_deadline: Some(duration(terms.progress_deadline)),
    }
}

fn revisions(known: &Service) -> Vec<RevisionView> {
    let kept = known.revisions.iter();
    let views = kept.map(|(revision, it)| RevisionView {
        revision: *revision,
        made_at: timestamp(it.made_at),
        command: it.spec.command.clone(),
    });
    views.collect()
}

/// The only pool that the replicas of a service may run in.
pub fn pool_of(service: &Service) -> Option<&PoolName> {
    service.replica()?.pool.as_ref()
}

/// The resources as they were written, with the settings that a step does not have.
fn resources(spec: &StepSpec, scale: &ScaleSpec) -> ResourceSettings {
    let range = !scale.fixed;
    let max = if scale.unlimited { 0 } else { scale.max.into() };
    let of_zenml = scale.metric.as_ref();
    let of_zenml = of_zenml.filter(|metric| ScaleMetric::OF_ZENML.contains(metric));
    ResourceSettings {
        min_replicas: range.then(|| scale.min.into()),
        max_replicas: range.then_some(max),
        autoscaling_metric: of_zenml.map(ToString::to_string),
        autoscaling_target: scale.target_milli.filter(|_| of_zenml.is_some()).map(whole),
        max_concurrency: scale.max_concurrency,
        ..ResourceSettings::clone(&spec.resources)
    }
}

fn status(known: &Service) -> RolloutView {
    let rollout = &known.rollout;
    let current = current_revisions(known);
    let is_wanted = |replica: &&Replica| current.contains(&replica.revision);
    let updated = known.live().filter(is_wanted);
    let updated = updated.filter(|replica| replica.phase.is_serving()).count();
    let outdated = known.replicas.values().filter(|it| !is_wanted(it)).count();
    let (state, why) = match &rollout.phase {
        RolloutPhase::Rolling => (RolloutState::Rolling, None),
        RolloutPhase::Stalled { why } => (RolloutState::Stalled, Some(why.clone())),
        RolloutPhase::Complete => (RolloutState::Complete, None),
    };
    RolloutView {
        state,
        updated: u32::try_from(updated).unwrap_or(u32::MAX),
        outdated: u32::try_from(outdated).unwrap_or(u32::MAX),
        began_at: timestamp(rollout.began_at),
        stable: rollout.stable,
        why,
        rolled_back: rollout.rolled_back.as_ref().map(|it| FailedVersionView {
            revision: it.revision,
            at: timestamp(it.at),
            why: it.why.clone(),
        }),
    }
}

/// The state as a sentence.
fn message(known: &Service, state: ServiceState) -> String {
    let (ready, count) = (known.serving(), known.count);
    let ready = format!("{ready} of {count} replicas are ready");
    let last = known.backoff.last.as_ref();
    let last = last.map(|last| format!("`{}`: {}", last.step, last.end.message()));
    match state {
        ServiceState::Ready => match &known.rollout.rolled_back {
            Some(back) => format!(
                "{ready}; version {} was rolled back: {}",
                back.revision, back.why
            ),
            None => ready,
        },
        ServiceState::Starting => match last.filter(|_| known.backoff.failures > 0) {
            Some(last) => format!("{ready}; the last failure was that of {last}"),
            None => ready,
        },
        ServiceState::Rolling => format!(
            "{ready}; the change to version {} is under way",
            known.revision
        ),
        ServiceState::CrashLoop => format!(
            "{ready}; replicas failed {} times in a row, and the next one starts at {}: {}",
            known.backoff.failures,
            timestamp(known.backoff.restart_at),
            last.unwrap_or_default()
        ),
        ServiceState::Stalled => match &known.rollout.phase {
            RolloutPhase::Stalled { why } => format!("{ready}; {why}"),
            RolloutPhase::Rolling | RolloutPhase::Complete => ready,
        },
        ServiceState::Sleeping => match known.scale.metric {
            Some(_) => {
                "no replica is needed: the first request to a gateway starts one, and so does \
                        `sluice scale service`"
            }
            None => "no replica is wanted: `sluice scale service` starts some",
        }
        .to_owned(),
        ServiceState::Deleting => {
            let left = known.replicas.len();
            format!("deleted; {left} of its replicas have not stopped yet")
        }
    }
}

fn member(core: &Core, replica: &Replica) -> Option<ReplicaView> {
    let step = core.state().step(&replica.step)?;
    Some(ReplicaView {
        id: replica.step.to_string(),
        revision: replica.revision,
        state: step.state,
        ready: replica.phase.is_serving(),
        stops_at: match replica.phase {
            ReplicaPhase::Draining { until } => Some(timestamp(until)),
            ReplicaPhase::Starting | ReplicaPhase::Serving { .. } => None,
        },
        node: first_part(step).map(|part| part.node.to_string()),
        preemptible: step.spec.preemptible,
        message: core.reason(step).to_reason().message,
    })
}

fn first_part(step: &Step) -> Option<&Part> {
    step.live()?.parts.first()
}

/// Returns the endpoints of a service: its replicas that are ready.
pub fn endpoints(core: &Core, name: &ServiceName, known: &Service) -> Vec<EndpointView> {
    let found = known.replicas.values().filter_map(|replica| {
        let ReplicaPhase::Serving { since } = replica.phase else {
            return None;
        };
        let step = core.state().step(&replica.step)?;
        let part = first_part(step)?;
        let node = core.state().node(&part.node)?;
        let address = Some(&node.address).filter(|address| !address.is_empty())?;
        Some(EndpointView {
            service: name.to_string(),
            subject: step.spec.subject.to_string(),
            replica: replica.step.to_string(),
            revision: replica.revision,
            node: node.name.to_string(),
            address: address.clone(),
            ports: ports(part),
            since: timestamp(since),
        })
    });
    found.collect()
}
