//! Calls about templates.

use sluice_common::api::TemplateView;

use super::{ApiError, Client, Query, segment};

impl Client {
    pub(crate) fn templates(&self) -> Result<Vec<TemplateView>, ApiError> {
        self.all_pages("/v1/templates", Query::new())
    }

    pub(crate) fn template(&self, name: &str) -> Result<TemplateView, ApiError> {
        self.get(&format!("/v1/templates/{}", segment(name)), &Query::new())
    }
}
