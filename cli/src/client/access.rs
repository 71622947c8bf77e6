//! Calls about tokens and rights.

use sluice_common::api::{
    ApiTokenCreated, ApiTokenRequest, ApiTokenView, BindingView, CanIView, RoleView, WhoAmIView,
};

use super::{ApiError, Client, Query, segment};

impl Client {
    /// Calls `POST /v1/api-tokens`, once: a token whose secret was lost on the way is useless.
    pub(crate) fn create_api_token(
        &self,
        request: &ApiTokenRequest,
    ) -> Result<ApiTokenCreated, ApiError> {
        self.post("/v1/api-tokens", request)
    }

    pub(crate) fn api_tokens(&self) -> Result<Vec<ApiTokenView>, ApiError> {
        self.all_pages("/v1/api-tokens", Query::new())
    }

    pub(crate) fn api_token(&self, name: &str) -> Result<ApiTokenView, ApiError> {
        self.get(&format!("/v1/api-tokens/{}", segment(name)), &Query::new())
    }

    pub(crate) fn revoke_api_token(&self, name: &str) -> Result<(), ApiError> {
        let path = format!("/v1/api-tokens/{}", segment(name));
        self.delete(&path, &Query::new()).map(|_| ())
    }

    pub(crate) fn roles(&self) -> Result<Vec<RoleView>, ApiError> {
        self.all_pages("/v1/roles", Query::new())
    }

    pub(crate) fn role(&self, name: &str) -> Result<RoleView, ApiError> {
        self.get(&format!("/v1/roles/{}", segment(name)), &Query::new())
    }

    pub(crate) fn bindings(&self) -> Result<Vec<BindingView>, ApiError> {
        self.all_pages("/v1/bindings", Query::new())
    }

    pub(crate) fn binding(&self, name: &str) -> Result<BindingView, ApiError> {
        self.get(&format!("/v1/bindings/{}", segment(name)), &Query::new())
    }

    pub(crate) fn whoami(&self) -> Result<WhoAmIView, ApiError> {
        self.get("/v1/whoami", &Query::new())
    }

    pub(crate) fn can_i(
        &self,
        verb: &str,
        resource: &str,
        pool: Option<&str>,
        subject: Option<&str>,
    ) -> Result<CanIView, ApiError> {
        let pool = pool.map(|pool| ("pool", pool.to_owned()));
        let subject = subject.map(|subject| ("subject", subject.to_owned()));
        let asked = [("verb", verb.to_owned()), ("resource", resource.to_owned())];
        let query: Query<'_> = asked.into_iter().chain(pool).chain(subject).collect();
        self.get("/v1/can-i", &query)
    }
}
