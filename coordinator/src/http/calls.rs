//! How often which call was answered how, and how long that took: counted around every call, read by `/metrics`, and
//! told one by one to whoever debugs. Of a call only its path is told: queries and headers may hold secrets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use super::masked::masked;

/// One kind of call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    /// The path as it is routed, so that there are few; empty for paths that lead nowhere.
    route: String,
    method: String,
    status: String,
}

impl Call {
    pub(super) fn labels(&self) -> [(&'static str, &str); 3] {
        [
            ("route", &self.route),
            ("method", &self.method),
            ("status", &self.status),
        ]
    }
}

type Counts = BTreeMap<Call, (u64, Duration)>;

/// The counts. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls(Arc<Mutex<Counts>>);

impl Calls {
    fn count(&self, call: Call, took: Duration) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, time) = counts.entry(call).or_default();
        *count += 1;
        *time += took;
    }

    pub(super) fn seen(&self) -> Counts {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Counts one call.
pub(super) async fn count(State(calls): State<Calls>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or(String::new(), |path| path.as_str().to_owned());
    // Methods that nobody has heard of are one kind, or a caller could make up as many as he likes.
    let method = match request.method().as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => {
            known.to_owned()
        }
        _ => "other".to_owned(),
    };
    let span = tracing::debug_span!("call", %method, path = %masked(request.uri().path()));
    let response = next.run(request).instrument(span.clone()).await;
    let took = began.elapsed();
    span.in_scope(|| {
        let status = response.status().as_u16();
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(status, took_us, "call answered");
    });
    let status = response.status().as_str().to_owned();
    let call = Call {
        route,
        method,
        status,
    };
    calls.count(call, took);
    response
}
