//! Renders services, their replicas and their endpoints as text.

use jiff::Timestamp;
use sluice_common::api::{
    EndpointView, FailedVersionView, ReplicaView, RequestsView, RolloutState, ServiceView,
};
use sluice_common::service::ServiceState;

use super::age::age;
use super::listed::Listed;
use super::sections::Sections;
use super::table::{Cell, Column};
use super::{or_dash, safe, shell_words};
use crate::out::Tone;

impl Listed for ServiceView {
    const KIND: &'static str = "service";
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME", 9).text(),
        Column::new("STATE", 9),
        Column::new("READY", 8),
        Column::new("VERSION", 6),
        Column::new("SUBJECT", 4).text(),
        Column::new("POOL", 5).text(),
        Column::new("AGE", 7).room(5),
        Column::new("MESSAGE", 3).text(),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        vec![
            safe(&self.name).into(),
            Cell::toned(tone(self.state), self.state),
            format!("{}/{}", self.ready, self.replicas).into(),
            self.revision.to_string().into(),
            safe(&self.subject).into(),
            or_dash(self.pool.as_deref()).into(),
            age(self.made_at, now).into(),
            safe(&self.message).into(),
        ]
    }
}

impl Listed for EndpointView {
    const KIND: &'static str = "endpoint";
    const COLUMNS: &'static [Column] = &[
        Column::new("SERVICE", 9).text(),
        Column::new("REPLICA", 9).text(),
        Column::new("VERSION", 6),
        Column::new("NODE", 7).text(),
        Column::new("ADDRESS", 8).text(),
        Column::new("PORTS", 8).text(),
        Column::new("AGE", 5).room(5),
    ];

    fn name(&self) -> String {
        self.replica.clone()
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let ports = self.ports.iter();
        let ports: Vec<String> = ports
            .map(|(name, port)| format!("{}:{port}", safe(name)))
            .collect();
        vec![
            safe(&self.service).into(),
            safe(&self.replica).into(),
            self.revision.to_string().into(),
            safe(&self.node).into(),
            or_dash(Some(&self.address)).into(),
            or_dash(Some(&ports.join(","))).into(),
            age(self.since, now).into(),
        ]
    }
}

fn tone(state: ServiceState) -> Tone {
    match state {
        ServiceState::Ready => Tone::Good,
        ServiceState::CrashLoop | ServiceState::Stalled => Tone::Bad,
        ServiceState::Starting | ServiceState::Rolling | ServiceState::Deleting => Tone::Pending,
        ServiceState::Sleeping => Tone::Faint,
    }
}

/// Formats the version from which a service went back.
fn rolled_back(back: &FailedVersionView) -> String {
    let (revision, at, why) = (back.revision, back.at, safe(&back.why));
    format!("version {revision} at {at}: {why}")
}

/// Renders all details of a service.
pub(crate) fn describe(service: &ServiceView) -> String {
    let mut text = Sections::default();
    text.field("Name", safe(&service.name))
        .field("Subject", safe(&service.subject))
        .field("Pool", or_dash(service.pool.as_deref()))
        .field("State", service.state.as_str())
        .field("Message", safe(&service.message))
        .field("Replicas", replicas(service))
        .field("Version", service.revision.to_string())
        .field("Command", shell_words(&service.command))
        .optional("Image", service.image.as_deref().map(safe));
    let last = service.last_failure.as_ref();
    text.optional(
        "Last failure",
        last.map(|last| format!("{} at {}: {}", safe(&last.id), last.at, safe(&last.message))),
    );
    text.optional("Next start", service.restart_at.map(|at| at.to_string()));
    if let Some(requests) = &service.requests {
        let RequestsView { concurrency, rps } = requests;
        text.field(
            "Requests",
            format!("{concurrency} at once, {rps} per second"),
        );
    }
    let scaling = service.autoscaling.as_ref();
    text.optional("Autoscaling", scaling.map(|it| safe(&it.message)));
    text.section("Change of version", |text| {
        let status = &service.status;
        text.field("State", rollout(service))
            .field("Ready of the new", status.updated.to_string())
            .field("Left of the old", status.outdated.to_string());
        text.optional("Rolled back", status.rolled_back.as_ref().map(rolled_back));
    });
    text.section("Members", |text| {
        for replica in &service.members {
            text.field(&safe(&replica.id), member(replica));
        }
    });
    text.section("Versions", |text| {
        for it in &service.revisions {
            let command = shell_words(&it.command);
            text.field(
                &it.revision.to_string(),
                format!("{} {command}", it.made_at),
            );
        }
    });
    text.finish()
}

fn replicas(service: &ServiceView) -> String {
    let ServiceView {
        ready,
        replicas,
        min_replicas,
        max_replicas,
        ..
    } = service;
    let range = match max_replicas {
        Some(max) if max == min_replicas => String::new(),
        Some(max) => format!(", {min_replicas} to {max}"),
        None => format!(", {min_replicas} or more"),
    };
    format!("{ready} of {replicas} ready{range}")
}

fn rollout(service: &ServiceView) -> String {
    match (service.status.state, &service.status.why) {
        (RolloutState::Rolling, _) => "rolling".to_owned(),
        (RolloutState::Complete, _) => "complete".to_owned(),
        (RolloutState::Stalled, why) => {
            format!("stalled: {}", safe(why.as_deref().unwrap_or_default()))
        }
    }
}

fn member(replica: &ReplicaView) -> String {
    let ready = match (replica.ready, replica.stops_at) {
        (_, Some(at)) => format!("stops at {at}"),
        (true, None) => "ready".to_owned(),
        (false, None) => "not ready".to_owned(),
    };
    let ReplicaView {
        revision,
        state,
        node,
        preemptible,
        message,
        ..
    } = replica;
    let preemptible = if *preemptible { ", preemptible" } else { "" };
    let node = or_dash(node.as_deref());
    format!(
        "{ready}, version {revision}, {state} on {node}{preemptible}: {}",
        safe(message)
    )
}

#[cfg(test)]
mod tests {
    use super::super::listed::table;
    use super::super::step::tests::now;
    use super::*;
    use crate::out::Out;

    fn service() -> ServiceView {
        serde_json::from_value(serde_json::json!({
            "name": "web", "subject": "team", "pool": "gpus", "platform": null, "state": "crash_loop",
            "message": "1 of 2 replicas are ready; replicas failed 3 times in a row\u{1b}", "version": 9, "revision": 2,
            "replicas": 2, "ready": 1, "min_replicas": 1, "max_replicas": 4, "command": ["serve", "a b"], "env": {},
            "resources": {}, "rollout": {}, "placement": "spread", "failures": 3, "restart_at": "2026-11-20T10:05:00Z",
            "status": {"state": "rolling", "updated": 1, "outdated": 0, "began_at": "2026-11-20T10:00:00Z", "stable": 1},
            "last_failure": {"id": "web-4", "at": "2026-11-20T10:04:00Z", "message": "exited with code 3"},
            "members": [{"id": "web-5", "revision": 2, "state": "running", "ready": true, "node": "n", "preemptible": true,
                "message": "running on n"}],
            "revisions": [{"revision": 2, "made_at": "2026-11-20T10:00:00Z", "command": ["serve", "a b"]}],
            "made_at": "2026-11-20T10:00:00Z"
        }))
        .unwrap()
    }

    #[test]
    fn services_are_listed_and_told_replica_by_replica() {
        let listed = table(&[service()], now(), Out::plain());
        assert!(listed.starts_with("NAME  STATE"), "{listed}");
        assert!(listed.contains("web   crash_loop  1/2"), "{listed}");
        assert!(listed.contains("in a row\\u{1b}"), "{listed}");
        let told = describe(&service());
        for part in [
            "1 of 2 ready, 1 to 4",
            "serve 'a b'",
            "web-4 at 2026-11-20T10:04:00Z: exited with code 3",
            "ready, version 2, running on n, preemptible: running on n",
        ] {
            assert!(told.contains(part), "{told}");
        }
    }
}
