//! Ends long calls when the caller loses access: event streams, followed output, programs beside steps, and long waits.
//! A call is authorised again by its original rule whenever roles, bindings, tokens, pools or the config's credentials
//! change, and when its credential expires.
//!
//! `auth.rs` wraps every call in one watch, so that no handler can omit it: reads are raced against it, bodies of
//! unknown length are cut by it, and upgraded connections are handed out only as a [`WatchedUpgrade`].

use std::future::{Future, pending};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coordinator_core::AccessSnapshot;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::upgrade::{OnUpgrade, Upgraded};
use sluice_common::access::TokenDigest;
use sluice_common::time::Time;
use sluice_transport::HttpsServer;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::super::Api;
use super::super::connections::UserCertificate;
use super::super::error::ApiError;
use super::scope::judge;
use super::table::CallRule;
use super::{Caller, Identity};
use crate::clock::wall;

/// Time that a connection without access may take to send its final message.
const LAST_WORD_LIMIT: Duration = Duration::from_millis(500);

/// Longest sleep until a credential expires, because the machine's clock may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Changes that can end access. Subscribed before a call is authorised, so that no change is missed.
#[derive(Clone, Debug)]
pub(in super::super) struct AccessChanges {
    access: watch::Receiver<Arc<AccessSnapshot>>,
    admin: watch::Receiver<Option<TokenDigest>>,
    /// Verifier of users' certificates; `None` if the caller has shown none.
    users: Option<watch::Receiver<Arc<HttpsServer>>>,
}

impl AccessChanges {
    pub(in super::super) fn of(api: &Api, shown: Option<&UserCertificate>) -> Self {
        Self {
            access: api.engine().access_changes(),
            admin: api.0.credentials.changes(),
            users: shown.map(UserCertificate::changes),
        }
    }

    /// Whether nothing has changed since the last call, or since this was made.
    fn is_unchanged(&mut self) -> bool {
        let access = self.access.has_changed().unwrap_or(false);
        let admin = self.admin.has_changed().unwrap_or(false);
        let users = self.users.as_ref().map(watch::Receiver::has_changed);
        self.access.mark_unchanged();
        self.admin.mark_unchanged();
        if let Some(users) = &mut self.users {
            users.mark_unchanged();
        }
        !access && !admin && !matches!(users, Some(Ok(true)))
    }

    async fn next(&mut self, who: &Identity) {
        let expired = async {
            match who.expires_at() {
                Some(end) => sleep(until(end).min(LONGEST_SLEEP)).await,
                None => pending().await,
            }
        };
        let users = async {
            match &mut self.users {
                Some(users) => users.changed().await,
                None => pending().await,
            }
        };
        tokio::select! {
            Ok(()) = self.access.changed() => {}
            Ok(()) = self.admin.changed() => {}
            Ok(()) = users => {}
            () = expired => {}
        }
    }
}

fn until(end: Time) -> Duration {
    Duration::from_millis(end.since(wall()).millis())
}

/// An admitted call, with the changes that can end its access.
#[derive(Clone, Debug)]
pub(in super::super) struct AccessWatch {
    api: Api,
    caller: Caller,
    row: &'static CallRule,
    names: Arc<[String]>,
    changes: AccessChanges,
}

impl AccessWatch {
    pub(in super::super) fn new(
        api: &Api,
        caller: &Caller,
        row: &'static CallRule,
        params: &RawPathParams,
        changes: AccessChanges,
    ) -> Self {
        Self {
            api: api.clone(),
            caller: caller.clone(),
            row,
            names: params.iter().map(|(_, value)| value.to_owned()).collect(),
            changes,
        }
    }

    /// Runs the handler, and ends the call when its access is lost.
    pub(in super::super) async fn run(self, mut request: Request, next: Next) -> Response {
        let extensions = request.extensions_mut();
        if let Some(upgrade) = extensions.remove::<OnUpgrade>() {
            let watch = self.clone();
            extensions.insert(WatchedUpgrade { upgrade, watch });
        }
        extensions.insert(self.clone());
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let answer = next.run(request);
        // A change is not interrupted: it was authorised when it was asked for, or by its body.
        let answer = match reads {
            false => answer.await,
            true => tokio::select! {
                answer = answer => answer,
                error = self.clone().lost() => return error.into_response(),
            },
        };
        self.cut(answer)
    }

    /// Resolves with the reason when the caller may no longer make this call.
    async fn lost(mut self) -> ApiError {
        loop {
            self.changes.next(self.caller.who()).await;
            self.changes.is_unchanged();
            match self.judge().await {
                Ok(()) => {}
                // Streams end otherwise when the coordinator stops.
                Err(ApiError::Stopping) => return pending().await,
                Err(error) => return error,
            }
        }
    }

    async fn judge(&self) -> Result<(), ApiError> {
        let caller = self.caller.with_present_rights(&self.api)?;
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        judge(&self.api, &caller, self.row, &names).await
    }

    /// Fails if the caller's rights changed while the body arrived.
    pub(in super::super) fn check_body(mut self) -> Result<(), ApiError> {
        let expired = self
            .caller
            .who()
            .expires_at()
            .is_some_and(|end| end <= wall());
        if self.changes.is_unchanged() && !expired {
            return Ok(());
        }
        match self
            .caller
            .with_present_rights(&self.api)?
            .has_rights_of(&self.caller)
        {
            true => Ok(()),
            false => Err(ApiError::Unauthorized {
                why: "your rights changed while the body was sent: call again",
            }),
        }
    }

    fn cut(self, answer: Response) -> Response {
        if answer.body().size_hint().exact().is_some() {
            return answer;
        }
        let kind = answer.headers().get(CONTENT_TYPE);
        let of_events = kind.is_some_and(is_of_events);
        answer.map(|body| {
            Body::new(WatchedBody {
                body,
                lost: Box::pin(self.lost()),
                of_events,
                is_over: false,
            })
        })
    }
}

fn is_of_events(kind: &HeaderValue) -> bool {
    kind.as_bytes().starts_with(b"text/event-stream")
}

/// Returns the final event of a stream, as JSON.
fn last_word(error: &ApiError) -> String {
    serde_json::to_string(&error.body()).expect("an error body is plain JSON")
}

/// A body that ends with its access: an event stream with a final event, any other broken off so that it does not look
/// complete.
struct WatchedBody {
    body: Body,
    lost: Pin<Box<dyn Future<Output = ApiError> + Send>>,
    of_events: bool,
    is_over: bool,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let Poll::Ready(error) = self.lost.as_mut().poll(context) else {
            return Pin::new(&mut self.body).poll_frame(context);
        };
        self.is_over = true;
        self.body = Body::empty();
        Poll::Ready(Some(match self.of_events {
            true => {
                let event = format!("event: error\ndata: {}\n\n", last_word(&error));
                Ok(Frame::data(event.into()))
            }
            false => {
                let kind = io::ErrorKind::ConnectionAborted;
                Err(axum::Error::new(io::Error::new(kind, error.to_string())))
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// Resolves with the reason when a connection has lost its access.
pub(in super::super) type CloseReason = oneshot::Receiver<ApiError>;

/// A connection that can be upgraded to another protocol, for as long as the call's access lasts.
#[derive(Clone, Debug)]
pub(in super::super) struct WatchedUpgrade {
    upgrade: OnUpgrade,
    watch: AccessWatch,
}

impl WatchedUpgrade {
    /// Runs the upgraded connection until it ends. When access is lost, it gets the reason and a moment to send it.
    pub(in super::super) async fn run<F: Future<Output = ()>>(
        self,
        carry: impl FnOnce(Upgraded, CloseReason) -> F,
    ) {
        let Ok(upgraded) = self.upgrade.await else {
            return;
        };
        let (closing, closed) = oneshot::channel();
        let mut carrying = pin!(carry(upgraded, closed));
        tokio::select! {
            () = carrying.as_mut() => return,
            error = self.watch.lost() => {
                let _it_is_ending = closing.send(error);
            }
        }
        let _it_says_nothing = timeout(LAST_WORD_LIMIT, carrying).await;
    }
}
