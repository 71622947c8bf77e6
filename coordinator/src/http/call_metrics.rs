//! Counts calls by path, method and status, with their durations, for `/metrics`, and logs each at debug level. Only
//! paths are logged: queries and headers may contain secrets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use super::masked::masked;

/// Labels of a call's counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallKey {
    /// The path as routed, so that there are few; empty for unknown paths.
    route: String,
    method: String,
    status: String,
}

impl CallKey {
    pub(super) fn labels(&self) -> [(&'static str, &str); 3] {
        [
            ("route", &self.route),
            ("method", &self.method),
            ("status", &self.status),
        ]
    }
}

type Counts = BTreeMap<CallKey, (u64, Duration)>;

/// The counters. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct CallMetrics(Arc<Mutex<Counts>>);

impl CallMetrics {
    fn count(&self, call: CallKey, took: Duration) {
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
pub(super) async fn count(
    State(calls): State<CallMetrics>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or(String::new(), |path| path.as_str().to_owned());
    // Unknown methods count as one, because a caller could invent any number.
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
    let call = CallKey {
        route,
        method,
        status,
    };
    calls.count(call, took);
    response
}
