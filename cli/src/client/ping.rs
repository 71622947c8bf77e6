//! Readiness of the coordinator, and its clock.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use sluice_common::api::CLOCK_HEADER;

use super::{ANSWER_LIMIT, ApiError, Client, Query};

/// Answer of a readiness check.
#[derive(Clone, Debug)]
pub(crate) struct PingResult {
    pub(crate) status: u16,
    /// Text of the answer.
    pub(crate) words: String,
    /// The coordinator's clock when it answered, if it sent it.
    pub(crate) clock: Option<Timestamp>,
    /// Time until the answer.
    pub(crate) took: Duration,
}

impl Client {
    /// Calls `GET /readyz`, and returns any answer.
    pub(crate) fn ping(&self) -> Result<PingResult, ApiError> {
        let begun = Instant::now();
        let request = self.agent.get(self.url("/readyz", &Query::new()));
        let response = self.authorized(request).call();
        let response = response.map_err(|e| self.unreachable(&e))?;
        let took = begun.elapsed();
        let clock = response.headers().get(CLOCK_HEADER);
        let clock = clock.and_then(|clock| clock.to_str().ok()?.parse().ok());
        let status = response.status().as_u16();
        let words = String::from_utf8_lossy(&self.read_all(response)?).into_owned();
        Ok(PingResult {
            status,
            words: words.trim().to_owned(),
            clock,
            took,
        })
    }

    /// Calls `GET /readyz`: whether the coordinator takes calls.
    pub(crate) fn is_ready(&self) -> bool {
        self.call("/readyz", &Query::new(), Some(ANSWER_LIMIT), None)
            .is_ok()
    }
}
