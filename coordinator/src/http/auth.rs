//! Who may call: whoever shows the token, where one is configured. `/healthz`, `/readyz`, `/metrics` and `/openapi.json`
//! hold no secrets and are open.
//!
//! Without a token the API listens on loopback alone, where every program of the machine may call, but no web page that
//! happens to be open on it: a browser's call for another site, or for a name that was made to point here, is refused.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ring::digest::{SHA256, digest};

use super::Api;
use super::error::ApiError;
use crate::config::ApiToken;

/// The hash of the token. Comparing hashes of what is shown and what is wanted takes a time that tells nothing about
/// either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub(super) fn of(token: &ApiToken) -> Self {
        Self::of_bytes(token.as_bytes())
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let digest = digest(&SHA256, bytes);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

pub(super) async fn check(State(api): State<Api>, request: Request, next: Next) -> Response {
    let open = !request.uri().path().starts_with("/v1/");
    let allowed = match &api.0.token {
        None if is_foreign(request.headers()) => Err(ApiError::ForeignOrigin),
        Some(wanted) if !open && shown(&request).as_ref() != Some(wanted) => {
            Err(ApiError::Unauthorized)
        }
        None | Some(_) => Ok(()),
    };
    match allowed {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Whether a web page of another site is behind the call: browsers say so in `Origin`, and a page whose own name was
/// made to point to this machine shows it in `Host`.
fn is_foreign(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let origin = headers
        .get(ORIGIN)
        .map(|origin| origin.to_str().unwrap_or("?"));
    let site = origin.map(|origin| origin.split_once("://").map_or(origin, |(_, site)| site));
    let own = host.is_none_or(is_own_name);
    !own || site.is_some_and(|site| Some(site) != host)
}

fn is_own_name(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

fn shown(request: &Request) -> Option<TokenDigest> {
    let header = request.headers().get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = header.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| TokenDigest::of_bytes(token.trim_ascii()))
}
