//! The target of forwarded connections: a step, or a service and so one of its ready replicas.

use std::thread;
use std::time::Duration;

use sluice_common::api::StepView;
use sluice_common::port::tell_ports;
use sluice_common::service::ServiceState;
use sluice_common::state::StepState;

use super::super::outage_note;
use crate::client::{ApiError, Client, RetryLimit};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::safe;

/// Time that one call waits.
const LONG_POLL: Duration = Duration::from_secs(30);

/// Time after which the reason of a step that waits is looked at again.
const WHY_POLL: Duration = Duration::from_secs(5);

/// Time between two reads of a service.
const POLL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpenTarget {
    /// A step, by its id.
    Step(String),
    /// A service, by its name.
    Service(String),
}

impl OpenTarget {
    /// Finds the step or the service of a text.
    pub(super) fn find(client: &Client, text: &str, out: Out) -> Result<Self, Failure> {
        let find = || {
            let step = |id: &str| client.step(id).map(|step| Self::Step(step.id));
            client.for_step_or_service(text, step, |service| Ok(Self::Service(service.name)))
        };
        let found = client.keep_trying(RetryLimit::READ, outage_note(out), find);
        found.map_err(|error| match error.code() {
            Some("unknown_step") if !text.contains('/') => Failure::Failed(format!(
                "there is no step and no service `{}`: `sluice get steps` and `sluice get services` list them",
                safe(text)
            )),
            _ => error.into(),
        })
    }

    /// Waits until the step runs, or the service has a ready replica, and returns that step. Says why it waits. A step that
    /// does not have the port is not waited for.
    pub(super) fn wait_until_runs(
        &self,
        client: &Client,
        port: Option<&str>,
        out: Out,
    ) -> Result<StepView, Failure> {
        let mut told = String::new();
        let mut tell = |text: String| {
            if text != told {
                out.notice(&format!("{text}; waiting for it, Ctrl-C ends"));
                told = text;
            }
        };
        match self {
            Self::Step(id) => {
                let mut limit = Duration::ZERO;
                loop {
                    let step = client.keep_trying(RetryLimit::Endless, outage_note(out), || {
                        client.wait(id, Some(StepState::Running), limit)
                    })?;
                    if step.state == StepState::Running {
                        return Ok(step);
                    }
                    if step.state.is_terminal() {
                        return Err(Failure::Failed(ended(&step)));
                    }
                    if let Some(why) = missing_port(&step, port) {
                        return Err(Failure::Failed(why));
                    }
                    let why = safe(&step.reason.message);
                    tell(format!("{} is {}: {why}", safe(id), step.state));
                    limit = WHY_POLL;
                }
            }
            Self::Service(name) => loop {
                let replica = client.keep_trying(RetryLimit::Endless, outage_note(out), || {
                    ready_replica(client, name, None, false)
                });
                match replica? {
                    Ok(id) => return Ok(client.step(&id)?),
                    Err(none) if none.is_deleted => return Err(Failure::Failed(none.why)),
                    Err(none) => tell(none.why),
                }
                thread::sleep(POLL);
            },
        }
    }

    /// Waits for the end of the step, or of the service, and says what ended.
    pub(super) fn wait_for_end(&self, client: &Client, out: Out) -> Failure {
        loop {
            let end = match self {
                Self::Step(id) => client
                    .keep_trying(RetryLimit::Endless, outage_note(out), || {
                        client.wait(id, None, LONG_POLL)
                    })
                    .map(|step| step.state.is_terminal().then(|| ended(&step))),
                Self::Service(name) => client
                    .keep_trying(RetryLimit::Endless, outage_note(out), || {
                        client.service(name)
                    })
                    .map(|_| None),
            };
            match end {
                Ok(None) => {}
                Ok(Some(ended)) => return Failure::Failed(ended),
                Err(error) if error.status() == Some(404) => {
                    return Failure::Failed(format!(
                        "{self} is deleted: nothing is forwarded any more"
                    ));
                }
                Err(error) => return error.into(),
            }
            if let Self::Service(_) = self {
                thread::sleep(POLL);
            }
        }
    }
}

impl std::fmt::Display for OpenTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Step(id) => write!(f, "step/{}", safe(id)),
            Self::Service(name) => write!(f, "service/{}", safe(name)),
        }
    }
}

/// Says that a step does not have the port, or any if `port` is `None`.
fn missing_port(step: &StepView, port: Option<&str>) -> Option<String> {
    let all: Vec<String> = step.ports.iter().map(|port| safe(port)).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let told = tell_ports(&safe(&step.id), &all);
    if all.is_empty() {
        return Some(told);
    }
    let port = port.filter(|port| !step.ports.iter().any(|known| known == port))?;
    Some(format!("`{}`: {told}", safe(port)))
}

fn ended(step: &StepView) -> String {
    let id = safe(&step.id);
    format!(
        "{id} has ended ({}), so nothing is forwarded to it any more: `sluice logs {id}` shows what it wrote",
        step.state
    )
}

/// A service without a ready replica.
pub(super) struct NoReplica {
    pub(super) why: String,
    /// Whether it never has one again.
    is_deleted: bool,
}

/// Returns the id of a ready replica: `present` unless it `is_gone`, and then another one if there is one.
pub(super) fn ready_replica(
    client: &Client,
    service: &str,
    present: Option<&str>,
    is_gone: bool,
) -> Result<Result<String, NoReplica>, ApiError> {
    let ready = client.endpoints(Some(service))?;
    let mut replicas = ready.iter().map(|endpoint| &endpoint.replica);
    let preferred = replicas.find(|it| (present == Some(it.as_str())) != is_gone);
    let chosen = preferred.or(ready.first().map(|endpoint| &endpoint.replica));
    if let Some(replica) = chosen {
        return Ok(Ok(replica.clone()));
    }
    let view = client.service(service)?;
    let (name, message) = (safe(&view.name), safe(&view.message));
    Ok(Err(NoReplica {
        why: format!("no replica of {name} is ready: {message}"),
        is_deleted: view.state == ServiceState::Deleting,
    }))
}
