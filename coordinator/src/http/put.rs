//! One thing that is made or set by its own path: what a `PUT` says, and how it is answered. What is written in the body
//! is read by those who own the thing; the core makes the change.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use coordinator_core::{Change, Core, Wanted};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_common::limit::MAX_BODY_BYTES;

use super::error::ApiError;
use super::params::Params;
use super::tag::{expected, tagged};
use super::terms::{How, HowParams, make};
use super::{Api, body};

/// What a `PUT` says beside its path.
pub(super) struct Put {
    how: How,
    version: Option<u64>,
    json: Vec<u8>,
}

impl FromRequest<Api> for Put {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let Params(params) = Params::<HowParams>::from_request_parts(&mut parts, api).await?;
        let how = params.read()?;
        let version = expected(&parts.headers)?;
        let json = body::read(Request::from_parts(parts, body), MAX_BODY_BYTES).await?;
        Ok(Self { how, version, json })
    }
}

impl Put {
    /// The body, as what the thing is to be.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        body::parse(&self.json, "")
    }

    /// Makes the change. The answer is the thing as `seen` finds it then, with its version; where it was only asked, what
    /// would change.
    pub(super) async fn make<V: Serialize + Send + 'static>(
        self,
        api: &Api,
        wanted: Wanted,
        seen: impl FnOnce(&Core) -> Option<(u64, V)> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let Self { how, version, .. } = self;
        let (applied, view) = make(api, vec![Change { wanted, version }], how, seen).await?;
        Ok(match view.filter(|_| !how.dry_run) {
            Some((version, view)) => tagged(version, Json(view)),
            None => Json(applied).into_response(),
        })
    }
}
