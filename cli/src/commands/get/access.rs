//! Reads of roles, bindings and API tokens for lists.

use sluice_common::api::{ApiTokenView, BindingView, RoleView};

use super::Gettable;
use crate::args::GetArgs;
use crate::client::{ApiError, Client};

macro_rules! readable {
    ($view:ident, $all:ident, $one:ident) => {
        impl Gettable for $view {
            fn known(client: &Client) -> Vec<String> {
                let all = client.$all().unwrap_or_default();
                all.into_iter().map(|it| it.name).collect()
            }

            const OWN_EVENTS: bool = false;

            fn all(client: &Client, _args: &GetArgs) -> Result<Vec<Self>, ApiError> {
                client.$all()
            }

            fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
                client.$one(name)
            }

            fn fits(&self, _args: &GetArgs) -> bool {
                true
            }
        }
    };
}

readable!(RoleView, roles, role);
readable!(BindingView, bindings, binding);
readable!(ApiTokenView, api_tokens, api_token);
