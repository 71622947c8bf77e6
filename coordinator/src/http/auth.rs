//! Who calls: whoever shows the coordinator's own token is its admin; whoever shows an API token, whom that was made for;
//! whoever shows a certificate of the cluster's authority, the user whom it names. A token goes before a certificate.
//! What they may do is judged by `access.rs`. `/healthz`, `/readyz`, `/metrics` and `/openapi.json` hold no secrets and
//! are open; `/metrics` only as long as the config does not close it.
//!
//! No web page that happens to be open on the machine reads or calls anything: on a listener in the clear a name that is
//! not ours, which was made to point here, is refused on every path. Where no token is needed a browser's call for another
//! site is refused as well, and so is one that a browser vouches for with its user's certificate.

pub(super) mod credentials;

use std::net::IpAddr;

use axum::RequestExt;
use axum::extract::{RawPathParams, Request, State};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coordinator_core::Book;
use sluice_common::access::{AccessQuery, AuditEntry, Resource, Scope, Verb};
use sluice_common::error_code::ErrorCode;

use super::Api;
use super::access::{self, AccessChanges, AccessWatch, Call, Caller, Who};
use super::edge::{Peer, UserCertificate};
use super::error::ApiError;
use crate::clock::wall;
use crate::engine::asked_by;
use credentials::digest_of;

/// Lets in who may, and lets the handlers know who it is.
pub(super) async fn check(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    if let Err(error) = check_site(&api, &request) {
        return error.into_response();
    }
    if request.uri().path() == "/metrics" && api.0.open.metrics_need_token {
        let (evidence, from) = (Evidence::of(&request), peer(&request));
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
    let call = Call::of(&request);
    let from = peer(&request);
    let evidence = Evidence::of(&request);
    let changes = AccessChanges::of(&api, evidence.user.as_ref());
    let caller = known(&api, evidence, from.clone()).await;
    if let (Ok(_), Some(peer)) = (&caller, request.extensions().get::<Peer>()) {
        peer.seat.is_of_a_known_caller();
    }
    let who = caller
        .as_ref()
        .map_or(NOBODY.to_owned(), |caller| caller.who().to_string());
    let Ok(params) = params else {
        // It is not UTF-8, so it is no name of anything.
        let path = request.uri().path().to_owned();
        return ApiError::UnknownRoute { path }.into_response();
    };
    let served = serve(&api, caller, request, (&call, &params, changes), next);
    let response = asked_by(&who, served).await;
    let code = response.extensions().get::<ErrorCode>().copied();
    note_refusal(&api, (who, from), &call, &params, code).await;
    response
}

/// Has the call made, if its caller may make it.
async fn serve(
    api: &Api,
    caller: Result<Caller, ApiError>,
    mut request: Request,
    (call, params, changes): (&Call, &RawPathParams, AccessChanges),
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

/// Refuses whoever may not see the cluster.
fn may_see_metrics(caller: &Caller) -> Result<(), ApiError> {
    let ask = AccessQuery {
        verb: Verb::Get,
        resource: Resource::Cluster,
        pool: Scope::Unscoped,
        subject: Scope::Unscoped,
    };
    caller.need(&ask, None)
}

/// The answer to whoever shows what is known to nobody: that he does so too often, where he does.
fn wrong(api: &Api, request: &Request, error: ApiError) -> ApiError {
    let peer = request.extensions().get::<Peer>();
    let counted = peer.map_or(Ok(()), |peer| api.0.limits.failure(peer.address.ip()));
    counted.err().unwrap_or(error)
}

/// As events call whoever shows nothing that is known.
const NOBODY: &str = "nobody";

fn peer(request: &Request) -> String {
    let peer = request.extensions().get::<Peer>();
    peer.map_or_else(String::new, |peer| peer.address.to_string())
}

/// Notes a call that was refused for want of a right, whatever it was.
async fn note_refusal(
    api: &Api,
    (who, from): (String, String),
    call: &Call,
    params: &RawPathParams,
    code: Option<ErrorCode>,
) {
    let refused = matches!(code, Some(ErrorCode::Forbidden | ErrorCode::Unauthorized));
    let (Some(row), Some(code), true) = (call.row(params), code, refused) else {
        return;
    };
    if !api.0.refusals.take() {
        tracing::debug!(who, from, "more refusals than are noted");
        return;
    }
    let entry = AuditEntry {
        who,
        from,
        verb: row.verb,
        resource: row.resource,
        name: Call::name(params).map(|name| access::shown(&name)),
        allowed: false,
        refusal: Some(code.as_str().to_owned()),
    };
    // An engine that has ended notes nothing any more.
    let _stopping = api.engine().audit(entry).await;
}

/// What a call shows of who makes it.
struct Evidence {
    token: Option<Vec<u8>>,
    /// Of the connection's certificate.
    user: Option<UserCertificate>,
    cross_site: bool,
}

impl Evidence {
    fn of(request: &Request) -> Self {
        Self {
            token: shown(request.headers()).map(<[u8]>::to_vec),
            user: user(request),
            cross_site: is_cross_site(request),
        }
    }
}

/// Who calls.
async fn known(api: &Api, evidence: Evidence, from: String) -> Result<Caller, ApiError> {
    let Evidence {
        token,
        user,
        cross_site,
    } = evidence;
    let book = api.engine().book();
    let who = match (token, user) {
        (Some(secret), _) => of_token(api, &book, &secret).await?,
        // A browser shows a certificate whatever page calls; a token it shows to those alone who have it.
        (None, Some(_)) if cross_site => return Err(ApiError::ForeignOrigin),
        (None, Some(shown)) if !shown.is_good() => {
            let why = "the certificate has expired, or its authority's users are known no longer";
            return Err(ApiError::Unauthorized { why });
        }
        (None, Some(shown)) => Who::Certificate(shown),
        (None, None) if api.0.credentials.are_none() => Who::Local,
        (None, None) => {
            let why = "nothing is shown";
            return Err(ApiError::Unauthorized { why });
        }
    };
    Ok(Caller::new(who, from, &book))
}

/// The user's certificate that the connection has shown.
fn user(request: &Request) -> Option<UserCertificate> {
    request.extensions().get::<Peer>()?.user.clone()
}

/// Of whom a token is.
async fn of_token(api: &Api, book: &Book, secret: &[u8]) -> Result<Who, ApiError> {
    let shown = &digest_of(secret);
    let credentials = &api.0.credentials;
    if credentials.is_admin(shown) {
        return Ok(Who::Admin(shown.clone()));
    }
    let mut tokens = book.access.tokens.iter();
    let Some((name, kept)) = tokens.find(|(_, kept)| kept.token.digest == *shown) else {
        // What an issuer signs has three parts; ours have none.
        let signed = std::str::from_utf8(secret).ok();
        let signed = signed.filter(|text| text.matches('.').count() == 2);
        if let (Some(issuer), Some(text)) = (&credentials.issuer, signed) {
            let found = issuer.identify(text).await;
            return found
                .map(Who::Claims)
                .map_err(|why| ApiError::Unauthorized { why });
        }
        // Where none is needed, what is shown beside the point does no harm.
        return match credentials.are_none() {
            true => Ok(Who::Local),
            false => Err(ApiError::Unauthorized {
                why: "the token is not one that this cluster knows, or it was revoked",
            }),
        };
    };
    if kept.token.expires_at.is_some_and(|end| end <= wall()) {
        let why = "the token has expired: have a new one made";
        return Err(ApiError::Unauthorized { why });
    }
    Ok(Who::Token {
        name: name.clone(),
        digest: kept.token.digest.clone(),
        user: kept.token.user.clone(),
        expires_at: kept.token.expires_at,
    })
}

/// Refuses a call behind which a web page of another site is: a page whose own name was made to point to this machine
/// shows it in `Host`, and browsers say in `Origin` whose page it is. With TLS a browser has seen that the name is one of
/// ours, and where a token is needed no page of another site has one.
fn check_site(api: &Api, request: &Request) -> Result<(), ApiError> {
    let is_open = api.0.credentials.are_none();
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

/// Whether a browser says that a page of another site calls.
fn is_cross_site(request: &Request) -> bool {
    let origin = request.headers().get(ORIGIN);
    origin.is_some_and(|origin| {
        let origin = origin.to_str().unwrap_or("?");
        let site = origin.split_once("://").map_or(origin, |(_, site)| site);
        host(request) != Some(site)
    })
}

/// The name that was called: HTTP/2 has it in the address.
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

fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let header = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = header.split_at_checked("Bearer ".len())?;
    let bearer = scheme.eq_ignore_ascii_case(b"Bearer ");
    bearer.then(|| token.trim_ascii())
}
