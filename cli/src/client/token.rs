//! Calls about join tokens, and the revocation of nodes.

use sluice_common::api::{JoinTokenRequest, JoinTokenView, NewJoinTokenView, NodeView};
use ureq::http::StatusCode;

use super::{ANSWER_LIMIT, ApiError, Client, Query, segment};

impl Client {
    pub(crate) fn make_join_token(
        &self,
        request: &JoinTokenRequest,
    ) -> Result<NewJoinTokenView, ApiError> {
        self.post("/v1/join-tokens", request)
    }

    pub(crate) fn join_tokens(&self) -> Result<Vec<JoinTokenView>, ApiError> {
        self.all_pages("/v1/join-tokens", Query::new())
    }

    pub(crate) fn revoke_join_token(&self, token: &str) -> Result<(), ApiError> {
        let path = format!("/v1/join-tokens/{}", segment(token));
        self.delete(&path, &Query::new()).map(drop)
    }

    /// Calls `POST /v1/nodes/{node}:revoke`; returns the node, if there is one to show.
    pub(crate) fn revoke_node(&self, node: &str) -> Result<Option<NodeView>, ApiError> {
        let path = format!("/v1/nodes/{}:revoke", segment(node));
        let request = self.agent.post(self.url(&path, &Query::new()));
        let request = self.authorized(request).content_type("application/json");
        let request = request
            .config()
            .timeout_recv_body(Some(ANSWER_LIMIT))
            .build();
        let response = self.checked(request.send("{}"))?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        self.parse(response).map(Some)
    }
}
