//! Calls of services and their endpoints.

use sluice_common::api::{
    EndpointView, LoadReport, Page, RollbackRequest, ScaleRequest, ServicePreviewView, ServiceView,
};
use sluice_common::request::StepRequest;

use super::{ApiError, Client, Query, segment};

impl Client {
    /// Calls `GET /v1/services` for every page.
    pub(crate) fn services(&self) -> Result<Vec<ServiceView>, ApiError> {
        self.all_pages("/v1/services", Query::new())
    }

    /// Calls `GET /v1/services/{service}`.
    pub(crate) fn service(&self, name: &str) -> Result<ServiceView, ApiError> {
        self.get(&path(name), &Query::new())
    }

    /// Calls `PUT /v1/services/{service}`.
    pub(crate) fn put_service(
        &self,
        name: &str,
        request: &StepRequest,
    ) -> Result<ServiceView, ApiError> {
        self.put(&path(name), request)
    }

    /// Calls `PUT /v1/services/{service}` as a dry run.
    pub(crate) fn preview_service(
        &self,
        name: &str,
        request: &StepRequest,
    ) -> Result<ServicePreviewView, ApiError> {
        self.put(&format!("{}?dry_run=true", path(name)), request)
    }

    /// Calls `POST /v1/services/{service}:scale`.
    pub(crate) fn scale_service(&self, name: &str, replicas: u64) -> Result<ServiceView, ApiError> {
        self.post(&format!("{}:scale", path(name)), &ScaleRequest { replicas })
    }

    /// Calls `POST /v1/services/{service}:undo`.
    pub(crate) fn undo_service(
        &self,
        name: &str,
        revision: Option<u32>,
    ) -> Result<ServiceView, ApiError> {
        self.post(
            &format!("{}:undo", path(name)),
            &RollbackRequest { revision },
        )
    }

    /// Calls `DELETE /v1/services/{service}`.
    pub(crate) fn delete_service(&self, name: &str) -> Result<(), ApiError> {
        self.delete(&path(name), &Query::new()).map(drop)
    }

    /// Calls `POST /v1/services/{service}:report`: the load that a gateway sees.
    pub(crate) fn report_load(&self, service: &str, report: &LoadReport) -> Result<(), ApiError> {
        let bytes = serde_json::to_vec(report).map_err(|e| self.garbled(&e))?;
        let url = self.url(&format!("{}:report", path(service)), &Query::new());
        let request = self.authorized(self.agent.post(url));
        let request = request.content_type("application/json");
        self.checked(request.send(&bytes[..])).map(drop)
    }

    /// Calls `GET /v1/endpoints`: the ready replicas of a service, or of all.
    pub(crate) fn endpoints(&self, service: Option<&str>) -> Result<Vec<EndpointView>, ApiError> {
        let query = service.map(|name| ("service", name.to_owned()));
        let page: Page<EndpointView> = self.get("/v1/endpoints", &query.into_iter().collect())?;
        Ok(page.items)
    }
}

fn path(name: &str) -> String {
    format!("/v1/services/{}", segment(name))
}
