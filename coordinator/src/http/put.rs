//! `PUT` of one thing by its own path: reads the request and answers it. The module of the thing parses the body; the
//! core makes the change.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use coordinator_core::{Core, Desired, TermsChange};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_common::limit::MAX_BODY_BYTES;

use super::error::ApiError;
use super::etag::{expected, tagged};
use super::params::Params;
use super::terms::{ChangeMode, ChangeParams, make};
use super::{Api, body};

/// The parts of a `PUT` besides its path.
pub(super) struct PutRequest {
    how: ChangeMode,
    version: Option<u64>,
    json: Vec<u8>,
}

impl FromRequest<Api> for PutRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let Params(params) = Params::<ChangeParams>::from_request_parts(&mut parts, api).await?;
        let how = params.read()?;
        let version = expected(&parts.headers)?;
        let json = body::read(Request::from_parts(parts, body), MAX_BODY_BYTES).await?;
        Ok(Self { how, version, json })
    }
}

impl PutRequest {
    /// Parses the body.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        body::parse(&self.json, "")
    }

    /// Makes the change, and answers with the thing as `seen` finds it afterwards, with its version; for a dry run,
    /// with the changes.
    pub(super) async fn make<V: Serialize + Send + 'static>(
        self,
        api: &Api,
        wanted: Desired,
        seen: impl FnOnce(&Core) -> Option<(u64, V)> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let Self { how, version, .. } = self;
        let (applied, view) = make(
            api,
            vec![TermsChange {
                desired: wanted,
                version,
            }],
            how,
            seen,
        )
        .await?;
        Ok(match view.filter(|_| !how.dry_run) {
            Some((version, view)) => tagged(version, Json(view)),
            None => Json(applied).into_response(),
        })
    }
}
