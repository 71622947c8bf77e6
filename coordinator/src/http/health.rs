//! Health checks for monitoring, open to all callers: whether the process lives, and whether the engine works.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use coordinator_core::Core;
use sluice_common::api::{CLOCK_HEADER, timestamp};
use tokio::time::timeout;

use super::Api;
use crate::clock::wall;

/// Time that the engine may take to answer and still count as ready; a commit on a busy disk takes a quarter of it.
const READY_LIMIT: Duration = Duration::from_secs(1);

/// Handles `GET /healthz`: the process answers.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Handles `GET /readyz`: the engine answers. During a recovery it takes calls, and says that nothing starts. The
/// answer contains the host's clock, read for this answer: the `Date` header is cached by the HTTP library for a
/// second, and shows the old time for as long as a clock was set back.
pub(super) async fn ready(
    State(api): State<Api>,
) -> (StatusCode, [(&'static str, String); 1], &'static str) {
    let (status, words) = readiness(&api).await;
    (
        status,
        [(CLOCK_HEADER, timestamp(wall()).to_string())],
        words,
    )
}

async fn readiness(api: &Api) -> (StatusCode, &'static str) {
    let stopping = *api.0.stop.borrow();
    let recovers = |core: &Core| core.state().recovery().is_some();
    let answer = timeout(READY_LIMIT, api.engine().read(recovers)).await;
    match answer {
        Ok(Ok(true)) if !stopping => (StatusCode::OK, "ok, recovering: nothing new starts yet\n"),
        Ok(Ok(false)) if !stopping => (StatusCode::OK, "ok\n"),
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
