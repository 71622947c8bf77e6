//! Calls about a recovery.

use sluice_common::api::RecoveryView;

use super::{ANSWER_LIMIT, ApiError, Client, Query};

impl Client {
    pub(crate) fn recovery(&self) -> Result<RecoveryView, ApiError> {
        self.get("/v1/recovery", &Query::new())
    }

    pub(crate) fn end_recovery(&self) -> Result<RecoveryView, ApiError> {
        let url = self.url("/v1/recovery", &Query::new());
        let request = self.authorized(self.agent.delete(url));
        let request = request
            .config()
            .timeout_recv_body(Some(ANSWER_LIMIT))
            .build();
        self.parse(self.checked(request.call())?)
    }
}
