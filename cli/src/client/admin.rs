//! Calls of admins: changes of nodes, and reads of validations.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_common::api::{
    CordonRequest, DrainRequest, LabelsRequest, MoveRequest, NodeView, UncordonRequest,
    ValidationView,
};
use sluice_common::label::LabelChange;
use ureq::http::{self, StatusCode};

use super::{ANSWER_LIMIT, ApiError, Client, Query, segment};

impl Client {
    pub(crate) fn cordon(&self, node: &str, request: &CordonRequest) -> Result<NodeView, ApiError> {
        self.post(&verb(node, "cordon"), request)
    }

    pub(crate) fn uncordon(
        &self,
        node: &str,
        request: &UncordonRequest,
    ) -> Result<NodeView, ApiError> {
        self.post(&verb(node, "uncordon"), request)
    }

    pub(crate) fn drain(&self, node: &str, request: &DrainRequest) -> Result<NodeView, ApiError> {
        self.post(&verb(node, "drain"), request)
    }

    pub(crate) fn move_node(
        &self,
        node: &str,
        request: &MoveRequest,
    ) -> Result<NodeView, ApiError> {
        self.post(&verb(node, "move"), request)
    }

    pub(crate) fn label(&self, node: &str, changes: &[LabelChange]) -> Result<NodeView, ApiError> {
        let label = |change: &LabelChange| {
            let value = change.value().map(ToString::to_string);
            (change.key().to_string(), value)
        };
        let labels: BTreeMap<_, _> = changes.iter().map(label).collect();
        let path = format!("/v1/nodes/{}/labels", segment(node));
        self.patch(&path, &LabelsRequest(labels))
    }

    /// Calls `GET /v1/validations` for every page.
    pub(crate) fn validations(&self) -> Result<Vec<ValidationView>, ApiError> {
        self.all_pages("/v1/validations", Query::new())
    }

    pub(crate) fn validation(&self, name: &str) -> Result<ValidationView, ApiError> {
        self.get(&format!("/v1/validations/{}", segment(name)), &Query::new())
    }

    /// Calls `DELETE /v1/nodes/{node}`; returns the node if it will be forgotten later.
    pub(crate) fn delete_node(
        &self,
        node: &str,
        force: bool,
    ) -> Result<Option<NodeView>, ApiError> {
        let path = format!("/v1/nodes/{}", segment(node));
        let query = vec![("force", force.to_string())];
        let response = self.delete(&path, &query)?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        self.parse(response).map(Some)
    }

    fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ApiError> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.garbled(&e))?;
        let request = self.agent.patch(self.url(path, &Query::new()));
        let request = self
            .authorized(request)
            .header(http::header::CONTENT_TYPE, "application/json");
        let request = request
            .config()
            .timeout_recv_body(Some(ANSWER_LIMIT))
            .build();
        self.parse(self.checked(request.send(&bytes[..]))?)
    }
}

fn verb(node: &str, verb: &str) -> String {
    format!("/v1/nodes/{}:{verb}", segment(node))
}
