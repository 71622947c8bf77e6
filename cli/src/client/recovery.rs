//! Calls about a recovery.

use sluice_common::api::RecoveryView;

use super::{ApiError, Client, Query};

impl Client {
    pub(crate) fn recovery(&self) -> Result<RecoveryView, ApiError> {
        self.get("/v1/recovery", &Query::new())
    }

    pub(crate) fn end_recovery(&self) -> Result<RecoveryView, ApiError> {
        self.parse(self.delete("/v1/recovery", &Query::new())?)
    }
}
