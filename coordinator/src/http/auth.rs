//! Authenticates callers: the coordinator's own token is the admin, an API token is the user that it was made for, and
//! a certificate is the user whom it names. A token takes precedence over a certificate. `access.rs` authorises them.
//! `/healthz`, `/readyz`, `/metrics` and `/openapi.json` contain no secrets and are open; `/metrics` unless the config
//! closes it.
//!
//! No web page open in a browser of the machine can call anything: on a plain HTTP listener, a host name that is not
//! ours (DNS rebinding) is rejected on every path. A browser's cross-site call is rejected if no token is needed, or if
//! only the browser's certificate authenticates it.

pub(super) mod credentials;

use std::net::IpAddr;

use axum::RequestExt;
use axum::extract::{RawPathParams, Request, State};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coordinator_core::AccessSnapshot;
use data_encoding::BASE64URL_NOPAD;
use sluice_common::access::{AccessQuery, AuditEntry, Resource, Scope, Verb};
use sluice_common::error_code::ErrorCode;
use sluice_common::websocket::TOKEN_SUBPROTOCOL;

use super::Api;
use super::access::{self, AccessChanges, AccessWatch, Caller, Identity, RoutedCall};
use super::connections::{Peer, UserCertificate};
use super::error::ApiError;
use crate::clock::wall;
use crate::engine::asked_by;
use credentials::digest_of;

/// Authenticates and authorises a call, and passes the caller on to the handlers.
pub(super) async fn check(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    if let Err(error) = check_site(&api, &request) {
        return error.into_response();
    }
    if request.uri().path() == "/metrics" && api.0.open.metrics_need_token {
        let (evidence, from) = (PresentedCredentials::of(&request), peer(&request));
        let caller = known(&api, evidence, from).await;
        let caller = caller.map_err(|error| wrong(&api, &request, error));
        return match caller.and_then(|caller| may_see_metrics(&caller)) {
            Ok(()) => next.run(request).await,
            Err(error) => error.into_response(),
        };
    }
    if !request.uri().path().starts_with("/v1/") {
        return next.run(request).await;
    }
    let params = request.extract_parts::<RawPathParams>().await;
    let call = RoutedCall::of(&request);
    let from = peer(&request);
    let evidence = PresentedCredentials::of(&request);
    let changes = AccessChanges::of(&api, evidence.user.as_ref());
    let caller = known(&api, evidence, from.clone()).await;
    if let (Ok(_), Some(peer)) = (&caller, request.extensions().get::<Peer>()) {
        peer.permit.mark_known();
    }
    let who = caller
        .as_ref()
        .map_or(NOBODY.to_owned(), |caller| caller.who().to_string());
    let Ok(params) = params else {
        // A path that is not UTF-8 names nothing.
        let path = request.uri().path().to_owned();
        return ApiError::UnknownRoute { path }.into_response();
    };
    let served = serve(&api, caller, request, (&call, &params, changes), next);
    let response = asked_by(&who, served).await;
    let code = response.extensions().get::<ErrorCode>().copied();
    note_refusal(&api, (who, from), &call, &params, code).await;
    response
}

/// Handles a call if its caller has the right.
async fn serve(
    api: &Api,
    caller: Result<Caller, ApiError>,
    mut request: Request,
    (call, params, changes): (&RoutedCall, &RawPathParams, AccessChanges),
    next: Next,
) -> Response {
    let admitted = match caller {
        Err(error) => Err(wrong(api, &request, error)),
        Ok(caller) => {
            let admitted = match api.0.limits.call(&caller.who().to_string()) {
                Ok(()) => access::admit(api, &caller, call, params).await,
                Err(error) => Err(error),
            };
            admitted.map(|()| caller)
        }
    };
    match admitted {
        Ok(caller) => {
            let row = call.row(params);
            let watch = row.map(|row| AccessWatch::new(api, &caller, row, params, changes));
            request.extensions_mut().insert(caller);
            match watch {
                Some(watch) => watch.run(request, next).await,
                None => next.run(request).await,
            }
        }
        Err(error) => error.into_response(),
    }
}

/// Fails unless the caller may see the cluster.
fn may_see_metrics(caller: &Caller) -> Result<(), ApiError> {
    let ask = AccessQuery {
        verb: Verb::Get,
        resource: Resource::Cluster,
        pool: Scope::Unscoped,
        subject: Scope::Unscoped,
    };
    caller.require(&ask, None)
}

/// Answers a call with an unknown credential, and counts it against the limit of its address.
fn wrong(api: &Api, request: &Request, error: ApiError) -> ApiError {
    let peer = request.extensions().get::<Peer>();
    let counted = peer.map_or(Ok(()), |peer| api.0.limits.failure(peer.address.ip()));
    counted.err().unwrap_or(error)
}

/// Name in events of a caller without a known credential.
const NOBODY: &str = "nobody";

fn peer(request: &Request) -> String {
    let peer = request.extensions().get::<Peer>();
    peer.map_or_else(String::new, |peer| peer.address.to_string())
}

/// Records a call that was refused for lack of a right.
async fn note_refusal(
    api: &Api,
    (who, from): (String, String),
    call: &RoutedCall,
    params: &RawPathParams,
    code: Option<ErrorCode>,
) {
    let refused = matches!(code, Some(ErrorCode::Forbidden | ErrorCode::Unauthorized));
    let (Some(row), Some(code), true) = (call.row(params), code, refused) else {
        return;
    };
    if !api.0.refusals.take() {
        tracing::debug!(who, from, "more refusals than are recorded");
        return;
    }
    let entry = AuditEntry {
        who,
        from,
        verb: row.verb,
        resource: row.resource,
        name: RoutedCall::name(params).map(|name| access::shown(&name)),
        allowed: false,
        refusal: Some(code.as_str().to_owned()),
    };
    // An engine that has ended records nothing.
    let _stopping = api.engine().audit(entry).await;
}

/// The credentials of a call.
struct PresentedCredentials {
    token: Option<Vec<u8>>,
    /// From the connection's certificate.
    user: Option<UserCertificate>,
    cross_site: bool,
}

impl PresentedCredentials {
    fn of(request: &Request) -> Self {
        Self {
            token: shown(request.headers()),
            user: user(request),
            cross_site: is_cross_site(request),
        }
    }
}

async fn known(
    api: &Api,
    evidence: PresentedCredentials,
    from: String,
) -> Result<Caller, ApiError> {
    let PresentedCredentials {
        token,
        user,
        cross_site,
    } = evidence;
    let snapshot = api.engine().access_snapshot();
    let who = match (token, user) {
        (Some(secret), _) => of_token(api, &snapshot, &secret).await?,
        // A browser sends a certificate whichever page calls; only a page that has the token sends it.
        (None, Some(_)) if cross_site => return Err(ApiError::ForeignOrigin),
        (None, Some(shown)) if !shown.is_good() => {
            let why =
                "the certificate has expired, or its authority is no longer trusted for users";
            return Err(ApiError::Unauthorized { why });
        }
        (None, Some(shown)) => Identity::Certificate(shown),
        (None, None) if api.0.credentials.need_none() => Identity::Local,
        (None, None) => {
            let why = "no credentials were sent";
            return Err(ApiError::Unauthorized { why });
        }
    };
    Ok(Caller::new(who, from, &snapshot))
}

/// Returns the user certificate of the connection.
fn user(request: &Request) -> Option<UserCertificate> {
    request.extensions().get::<Peer>()?.user.clone()
}

/// Finds the identity of a token.
async fn of_token(
    api: &Api,
    snapshot: &AccessSnapshot,
    secret: &[u8],
) -> Result<Identity, ApiError> {
    let shown = &digest_of(secret);
    let credentials = &api.0.credentials;
    if credentials.is_admin(shown) {
        return Ok(Identity::Admin(shown.clone()));
    }
    let mut tokens = snapshot.access.tokens.iter();
    let Some((name, stored)) = tokens.find(|(_, stored)| stored.token.digest == *shown) else {
        // Tokens of an OIDC issuer have three parts; our own have none.
        let signed = std::str::from_utf8(secret).ok();
        let signed = signed.filter(|text| text.matches('.').count() == 2);
        if let (Some(issuer), Some(text)) = (&credentials.issuer, signed) {
            let found = issuer.identify(text).await;
            return found
                .map(Identity::Claims)
                .map_err(|why| ApiError::Unauthorized { why });
        }
        // If no credential is needed, an unknown one is ignored.
        return match credentials.need_none() {
            true => Ok(Identity::Local),
            false => Err(ApiError::Unauthorized {
                why: "the token is not one that this cluster knows, or it was revoked",
            }),
        };
    };
    if stored.token.expires_at.is_some_and(|end| end <= wall()) {
        let why = "the token has expired: have a new one made";
        return Err(ApiError::Unauthorized { why });
    }
    Ok(Identity::Token {
        name: name.clone(),
        digest: stored.token.digest.clone(),
        user: stored.token.user.clone(),
        expires_at: stored.token.expires_at,
    })
}

/// Rejects calls from web pages of other sites: DNS rebinding shows in `Host`, and browsers name the page's site in
/// `Origin`. With TLS the browser has verified the name, and pages of other sites have no token.
fn check_site(api: &Api, request: &Request) -> Result<(), ApiError> {
    let is_open = api.0.credentials.need_none();
    let peer = request.extensions().get::<Peer>();
    let is_secret = peer.is_some_and(|peer| peer.is_secret);
    match host(request) {
        Some(name) if !is_secret && !is_own_name(name, &api.0.open.names) => {
            let name = access::shown(name);
            Err(ApiError::ForeignName { name })
        }
        _ if is_open && is_cross_site(request) => Err(ApiError::ForeignOrigin),
        _ => Ok(()),
    }
}

/// Whether a browser reports a call from a page of another site.
fn is_cross_site(request: &Request) -> bool {
    let origin = request.headers().get(ORIGIN);
    origin.is_some_and(|origin| {
        let origin = origin.to_str().unwrap_or("?");
        let site = origin.split_once("://").map_or(origin, |(_, site)| site);
        host(request) != Some(site)
    })
}

/// Returns the host name of a call, which HTTP/2 has in the URI.
fn host(request: &Request) -> Option<&str> {
    let header = request.headers().get(HOST);
    let header = header.and_then(|host| host.to_str().ok());
    header.or_else(|| request.uri().authority().map(Authority::as_str))
}

fn is_own_name(host: &str, names: &[String]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let is_ours = |own: &String| name.eq_ignore_ascii_case(own);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok()
        || names.iter().any(is_ours)
}

/// Returns the token of a call: of `Authorization`, or of a WebSocket's subprotocols, because a browser cannot set
/// headers for one.
fn shown(headers: &HeaderMap) -> Option<Vec<u8>> {
    let Some(header) = headers.get(AUTHORIZATION) else {
        return subprotocols(headers).find_map(|offered| {
            let token = offered.strip_prefix(TOKEN_SUBPROTOCOL)?;
            // One that is not encoded is no credential, and refused as that.
            Some(BASE64URL_NOPAD.decode(token.as_bytes()).unwrap_or_default())
        });
    };
    let (scheme, token) = header.as_bytes().split_at_checked("Bearer ".len())?;
    let bearer = scheme.eq_ignore_ascii_case(b"Bearer ");
    bearer.then(|| token.trim_ascii().to_vec())
}

/// Returns the subprotocols that a WebSocket's call offers.
pub(super) fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let headers = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let texts = headers.filter_map(|header| header.to_str().ok());
    texts.flat_map(|text| text.split(',').map(str::trim))
}
