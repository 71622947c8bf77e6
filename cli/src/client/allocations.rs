//! Calls that make, renew and release allocations.

use std::time::Duration;

use sluice_common::allocation::RenewalRequest;
use sluice_common::api::{StepFilter, StepView};
use sluice_common::request::StepRequest;

use super::steps::steps_query;
use super::{ApiError, Client, Query, segment};

impl Client {
    /// Calls `POST /v1/allocations`.
    pub(crate) fn allocate(&self, request: &StepRequest) -> Result<StepView, ApiError> {
        self.post("/v1/allocations", request)
    }

    /// Calls `GET /v1/allocations` for every page.
    pub(crate) fn allocations(&self, filter: &StepFilter) -> Result<Vec<StepView>, ApiError> {
        self.all_pages("/v1/allocations", steps_query(filter))
    }

    /// Calls `GET /v1/allocations/{id}`.
    pub(crate) fn allocation(&self, id: &str) -> Result<StepView, ApiError> {
        self.get(&format!("/v1/allocations/{}", segment(id)), &Query::new())
    }

    /// Calls `POST /v1/allocations/{id}:renew`.
    pub(crate) fn renew(&self, id: &str, request: &RenewalRequest) -> Result<StepView, ApiError> {
        self.post(&format!("/v1/allocations/{}:renew", segment(id)), request)
    }

    /// Calls `POST /v1/allocations/{id}:release`.
    pub(crate) fn release(&self, id: &str, grace: Option<Duration>) -> Result<StepView, ApiError> {
        let grace = grace.map(|grace| ("grace_period", format!("{}ms", grace.as_millis())));
        let query: Query<'_> = grace.into_iter().collect();
        let path = format!("/v1/allocations/{}:release", segment(id));
        self.post_with(&path, &query, &serde_json::json!({}))
    }
}
