//! Whether the coordinator lives, whether it works, and what it has done, for whoever watches it. Open to all and
//! without secrets.

use std::fmt::Write;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use coordinator_core::Core;
use sluice_common::state::NodeState;
use tokio::time::timeout;

use super::Api;
use super::error::ApiError;
use super::steps::count_by_state;

/// How long the engine may take to answer while it counts as ready: a commit on a busy disk takes a quarter of it.
const READY_LIMIT: Duration = Duration::from_secs(1);

/// `GET /healthz`: the process answers.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: the engine answers.
pub(super) async fn ready(State(api): State<Api>) -> (StatusCode, &'static str) {
    let stopping = *api.0.stop.borrow();
    let answer = timeout(READY_LIMIT, api.engine().read(|_| ())).await;
    match answer {
        Ok(Ok(())) if !stopping => (StatusCode::OK, "ok\n"),
        Ok(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the coordinator is stopping\n",
        ),
        Err(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the engine does not answer\n",
        ),
    }
}

/// `GET /metrics`, in Prometheus' text format.
pub(super) async fn metrics(State(api): State<Api>) -> Result<Response, ApiError> {
    let steps = count_by_state(&api).await?;
    let nodes = api.engine().read(count_nodes).await?;
    let meter = api.engine().meter();
    let mut text = String::new();
    let by_state = steps.iter().map(|(state, count)| (state.as_str(), *count));
    family(
        &mut text,
        "sluice_steps",
        "gauge",
        "Remembered steps by state.",
        by_state,
    );
    let by_state = nodes.iter().map(|(state, count)| (state.as_str(), *count));
    family(
        &mut text,
        "sluice_nodes",
        "gauge",
        "Remembered nodes by state.",
        by_state,
    );
    let seq = *api.engine().committed().borrow();
    value(
        &mut text,
        "sluice_last_record",
        "gauge",
        "Number of the last durable record.",
        seq,
    );
    value(
        &mut text,
        "sluice_commits_total",
        "counter",
        "Commits of the store.",
        meter.commits(),
    );
    let name = "sluice_commit_seconds_total";
    value(
        &mut text,
        name,
        "counter",
        "Time spent in commits.",
        meter.committing().as_secs_f64(),
    );
    value(
        &mut text,
        "sluice_records_total",
        "counter",
        "Records committed.",
        meter.records(),
    );
    value(
        &mut text,
        "sluice_inputs_total",
        "counter",
        "Inputs decided.",
        meter.inputs(),
    );
    let name = "sluice_decision_seconds_total";
    value(
        &mut text,
        name,
        "counter",
        "Time spent in decisions.",
        meter.deciding().as_secs_f64(),
    );
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, text).into_response())
}

fn count_nodes(core: &Core) -> Vec<(NodeState, u64)> {
    let states = [
        NodeState::Ready,
        NodeState::Reconciling,
        NodeState::Unreachable,
        NodeState::Lost,
    ];
    let count = |state| {
        core.state()
            .nodes()
            .values()
            .filter(|node| node.state == state)
            .count()
    };
    states.map(|state| (state, count(state) as u64)).into()
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _infallible = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn value(text: &mut String, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
    head(text, name, kind, help);
    let _infallible = writeln!(text, "{name} {value}");
}

fn family<'a>(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    by_state: impl Iterator<Item = (&'a str, u64)>,
) {
    head(text, name, kind, help);
    for (state, count) in by_state {
        let _infallible = writeln!(text, "{name}{{state=\"{state}\"}} {count}");
    }
}
