//! Reads of join tokens for lists. There is no call for one token, so it is found among all.

use sluice_common::api::{ErrorView, JoinTokenView};
use sluice_common::error_code::ErrorCode;

use super::kinds::Gettable;
use crate::args::GetArgs;
use crate::client::{ApiError, Client};
use crate::render::safe;

impl Gettable for JoinTokenView {
    fn known(client: &Client) -> Vec<String> {
        let all = client.join_tokens().unwrap_or_default();
        all.into_iter().map(|token| token.id).collect()
    }

    const OWN_EVENTS: bool = false;

    fn all(client: &Client, _args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        client.join_tokens()
    }

    fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
        let found = client
            .join_tokens()?
            .into_iter()
            .find(|token| token.id == name);
        found.ok_or_else(|| ApiError::Refused {
            status: 404,
            error: ErrorView {
                code: ErrorCode::UnknownJoinToken.as_str().into(),
                message: format!("there is no join token `{}`", safe(name)),
                detail: Default::default(),
            },
        })
    }

    fn fits(&self, _args: &GetArgs) -> bool {
        true
    }
}
