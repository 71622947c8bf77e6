//! The HTTP API as functions: one for each call of the command line, and the retry rule. Every call can be repeated
//! safely (a submit carries its id), so a call that failed on the way is tried again.

mod access;
mod admin;
mod allocations;
mod error;
mod event_stream;
mod exec;
mod inputs;
mod ping;
mod platform;
mod recovery;
mod retry;
mod services;
mod sse;
mod step_action;
mod step_name;
mod steps;
mod templates;
mod terms;
mod tls;
mod token;
mod tunnel;

use std::io::Read;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use sluice_common::api::{
    BatchRequest, BatchView, ErrorBody, ExplainView, NodeView, Page, PoolView, PreviewView,
    StepView,
};
use sluice_common::request::StepRequest;
use sluice_common::state::StepState;
use sluice_common::wire::LogStream;
use ureq::http::{self, Response};
use ureq::{Agent, Body};

use crate::context::{Context, ContextError};
use crate::out::Out;

pub(crate) use error::ApiError;
pub(crate) use error::{foreign_error, outage_note};
pub(crate) use event_stream::{EventFilter, EventStream, Since};
pub(crate) use exec::{ExecConnection, MessageReader, MessageWriter, StreamMessage, failed};
pub(crate) use ping::PingResult;
pub(crate) use retry::{Backoff, RetryLimit};
pub(crate) use sse::SseReader;
pub(crate) use step_action::StepAction;
pub(crate) use terms::{ApplyResult, Fields};
use tls::ContextTls;

/// Longest time to a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Longest time to an ordinary answer: a commit on a busy disk takes a quarter of a second at worst, a batch of ten
/// thousand steps a few seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Silence after which a followed stream counts as dead and is opened again where it stopped. It costs a silent step
/// one request a minute, and notices a host that vanished.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// Header with the offset of the answer's first byte in an output.
const OFFSET_HEADER: &str = "sluice-log-offset";
/// Items requested per page of a list.
const PAGE_ITEMS: usize = 500;
/// Most bytes of one answer.
const MAX_ANSWER_BYTES: u64 = 256 * 1024 * 1024;

/// Output that is being read.
pub(crate) struct LogBody {
    /// Offset of the first byte.
    pub(crate) start: u64,
    /// The bytes; an end without an error is the end of the output.
    pub(crate) reader: Box<dyn Read + Send>,
}

/// A client of one cluster; cheap to clone, usable from several threads.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: Agent,
    context: Arc<Context>,
    /// Output for notes about retries of lists.
    out: Option<Out>,
}

type Query<'a> = Vec<(&'a str, String)>;

impl Client {
    /// Makes a client for the cluster of `context`. Proxies are ignored.
    ///
    /// # Errors
    /// If the certificates that it names cannot be used.
    pub(crate) fn new(context: Context) -> Result<Self, ContextError> {
        Self::within(context, None)
    }

    /// Makes a client whose calls end within a time, whatever happens.
    ///
    /// # Errors
    /// As `new`.
    pub(crate) fn impatient(context: Context, limit: Duration) -> Result<Self, ContextError> {
        Self::within(context, Some(limit))
    }

    fn within(context: Context, limit: Option<Duration>) -> Result<Self, ContextError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .user_agent(concat!("sluice/", env!("CARGO_PKG_VERSION")))
            .timeout_global(limit)
            .timeout_connect(Some(CONNECT_LIMIT))
            .timeout_recv_response(Some(ANSWER_LIMIT));
        let config = match ContextTls::of(&context)? {
            None => config.build(),
            Some(trust) => {
                let tls = trust.for_calls().map_err(|message| {
                    let path = context.path.clone();
                    ContextError::Unusable { path, message }
                })?;
                config.tls_config(tls).build()
            }
        };
        Ok(Self {
            agent: config.new_agent(),
            context: Arc::new(context),
            out: None,
        })
    }

    /// Reports retries of lists, as `outage_note` does.
    #[must_use]
    pub(crate) fn telling(self, out: Out) -> Self {
        Self {
            out: Some(out),
            ..self
        }
    }

    /// Returns the context of this cluster.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Repeats `call` while it fails transiently and `patience` lasts; `on_outage` is called at each failure.
    pub(crate) fn keep_trying<T>(
        &self,
        patience: RetryLimit,
        mut on_outage: impl FnMut(&ApiError),
        mut call: impl FnMut() -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let since = Instant::now();
        let mut backoff = Backoff::for_calls();
        loop {
            match call() {
                Err(error) if error.is_passing() && !patience.is_spent(since) => {
                    self.check_alive()?;
                    on_outage(&error);
                    thread::sleep(backoff.next());
                }
                done => return done,
            }
        }
    }

    /// Fails if the cluster can never come back.
    pub(crate) fn check_alive(&self) -> Result<(), ApiError> {
        self.context
            .check_alive()
            .map_err(|e| ApiError::Gone(Box::new(e)))
    }

    pub(crate) fn submit(&self, request: &StepRequest) -> Result<StepView, ApiError> {
        self.post("/v1/steps", request)
    }

    pub(crate) fn preview(&self, request: &StepRequest) -> Result<PreviewView, ApiError> {
        let query = vec![("dry_run", "true".to_owned())];
        self.post_with("/v1/steps", &query, request)
    }

    pub(crate) fn submit_batch(&self, steps: Vec<StepRequest>) -> Result<BatchView, ApiError> {
        self.post(
            "/v1/steps:batch",
            &BatchRequest {
                defaults: None,
                steps,
            },
        )
    }

    pub(crate) fn step(&self, id: &str) -> Result<StepView, ApiError> {
        self.get(&format!("/v1/steps/{}", segment(id)), &Query::new())
    }

    pub(crate) fn explain(&self, id: &str) -> Result<ExplainView, ApiError> {
        let path = format!("/v1/steps/{}/explain", segment(id));
        self.get(&path, &Query::new())
    }

    /// Calls for one page of a list and returns the ids or names in it.
    pub(crate) fn names(&self, path: &str, limit: usize) -> Result<Vec<String>, ApiError> {
        let page: Page<serde_json::Value> = self.get(path, &vec![("limit", limit.to_string())])?;
        let name = |item: &serde_json::Value| {
            let name = item.get("id").or_else(|| item.get("name"));
            name.and_then(|name| name.as_str().map(str::to_owned))
        };
        Ok(page.items.iter().filter_map(name).collect())
    }

    /// Calls `GET /v1/steps/{id}:wait`: returns the step when it is in `state` (or has ended, if `None`), can never be,
    /// or after `limit`.
    pub(crate) fn wait(
        &self,
        id: &str,
        state: Option<StepState>,
        limit: Duration,
    ) -> Result<StepView, ApiError> {
        let mut query = vec![("timeout", format!("{}ms", limit.as_millis()))];
        if let Some(state) = state {
            query.push(("for", state.to_string()));
        }
        let path = format!("/v1/steps/{}:wait", segment(id));
        self.parse(self.call(&path, &query, Some(limit + ANSWER_LIMIT), None)?)
    }

    /// Calls `GET /v1/steps/{id}/logs` for output of an attempt from `offset` on, with further parameters.
    pub(crate) fn logs(
        &self,
        id: &str,
        attempt: u32,
        rank: u32,
        stream: LogStream,
        offset: u64,
        mut query: Query,
    ) -> Result<LogBody, ApiError> {
        query.extend([
            ("stream", stream.file_name().to_owned()),
            ("offset", offset.to_string()),
            ("attempt", attempt.to_string()),
            ("rank", rank.to_string()),
        ]);
        let path = format!("/v1/steps/{}/logs", segment(id));
        let response = self.call(&path, &query, Some(ANSWER_LIMIT), Some(SILENCE_LIMIT))?;
        let start = response.headers().get(OFFSET_HEADER);
        let start = start.and_then(|value| value.to_str().ok()?.parse().ok());
        // Without it the position of the bytes is unknown.
        let start =
            start.ok_or_else(|| self.garbled(&format!("output without `{OFFSET_HEADER}`")))?;
        Ok(LogBody {
            start,
            reader: Box::new(response.into_body().into_reader()),
        })
    }

    pub(crate) fn nodes(&self) -> Result<Vec<NodeView>, ApiError> {
        self.all_pages("/v1/nodes", Query::new())
    }

    pub(crate) fn node(&self, name: &str) -> Result<NodeView, ApiError> {
        self.get(&format!("/v1/nodes/{}", segment(name)), &Query::new())
    }

    /// Calls `GET /v1/nodes` for the nodes of a pool.
    pub(crate) fn nodes_of(&self, pool: &str) -> Result<Vec<NodeView>, ApiError> {
        self.all_pages("/v1/nodes", vec![("pool", pool.to_owned())])
    }

    /// Calls `GET /v1/pools/{pool}/queue` for the first steps.
    pub(crate) fn queue(&self, pool: &str, limit: usize) -> Result<Vec<StepView>, ApiError> {
        let path = format!("/v1/pools/{}/queue", segment(pool));
        let page: Page<StepView> = self.get(&path, &vec![("limit", limit.to_string())])?;
        Ok(page.items)
    }

    pub(crate) fn pools(&self) -> Result<Vec<PoolView>, ApiError> {
        self.all_pages("/v1/pools", Query::new())
    }

    pub(crate) fn pool(&self, name: &str) -> Result<PoolView, ApiError> {
        self.get(&format!("/v1/pools/{}", segment(name)), &Query::new())
    }

    fn all_pages<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
    ) -> Result<Vec<T>, ApiError> {
        Ok(self.pages(path, query, None)?.items)
    }

    /// Reads pages until there are `limit` items, or all, and joins them.
    fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
        limit: Option<usize>,
    ) -> Result<Page<T>, ApiError> {
        let mut note = self.out.map(outage_note);
        let mut all = Page::of(Vec::new(), None);
        loop {
            let left = limit.map_or(PAGE_ITEMS, |limit| limit.saturating_sub(all.items.len()));
            if left == 0 {
                return Ok(all);
            }
            let mut query = query.clone();
            query.push(("limit", left.min(PAGE_ITEMS).to_string()));
            query.extend(all.next_cursor.take().map(|cursor| ("cursor", cursor)));
            let tell = |error: &ApiError| note.iter_mut().for_each(|note| note(error));
            let page: Page<T> =
                self.keep_trying(RetryLimit::READ, tell, || self.get(path, &query))?;
            let empty = page.items.is_empty();
            all.items.extend(page.items);
            all.left_out = all
                .left_out
                .into_iter()
                .chain(page.left_out)
                .reduce(|a, b| a + b);
            match page.next_cursor {
                Some(next) if !empty => all.next_cursor = Some(next),
                _ => return Ok(all),
            }
        }
    }

    fn get<T: DeserializeOwned>(&self, path: &str, query: &Query<'_>) -> Result<T, ApiError> {
        self.parse(self.call(path, query, Some(ANSWER_LIMIT), None)?)
    }

    /// Makes a `GET` whose answer begins within `answer` and is never silent for longer than `silence`.
    fn call(
        &self,
        path: &str,
        query: &Query<'_>,
        answer: Option<Duration>,
        silence: Option<Duration>,
    ) -> Result<Response<Body>, ApiError> {
        let request = self.agent.get(self.url(path, query));
        let request = self
            .authorized(request)
            .config()
            .timeout_recv_response(answer);
        let request = match silence {
            Some(limit) => request.timeout_per_read(Some(limit)),
            None => request.timeout_recv_body(Some(ANSWER_LIMIT)),
        };
        self.checked(request.build().call())
    }

    fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<T, ApiError> {
        self.post_with(path, &Query::new(), body)
    }

    fn post_with<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query<'_>,
        body: &impl serde::Serialize,
    ) -> Result<T, ApiError> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.garbled(&e))?;
        let request = self.agent.post(self.url(path, query));
        let request = self.authorized(request).content_type("application/json");
        let request = request
            .config()
            .timeout_recv_body(Some(ANSWER_LIMIT))
            .build();
        self.parse(self.checked(request.send(&bytes[..]))?)
    }

    fn delete(&self, path: &str, query: &Query<'_>) -> Result<Response<Body>, ApiError> {
        let request = self.authorized(self.agent.delete(self.url(path, query)));
        let request = request
            .config()
            .timeout_recv_body(Some(ANSWER_LIMIT))
            .build();
        self.checked(request.call())
    }

    fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<T, ApiError> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.garbled(&e))?;
        let request = self.agent.put(self.url(path, &Query::new()));
        let request = self.authorized(request).content_type("application/json");
        let request = request
            .config()
            .timeout_recv_body(Some(ANSWER_LIMIT))
            .build();
        self.parse(self.checked(request.send(&bytes[..]))?)
    }

    fn url(&self, path: &str, query: &Query<'_>) -> String {
        let scheme = if self.context.file.is_secret() {
            "https"
        } else {
            "http"
        };
        let mut url = format!("{scheme}://{}{path}", self.context.file.authority());
        for (i, (name, value)) in query.iter().enumerate() {
            url.push(if i == 0 { '?' } else { '&' });
            url.push_str(&format!("{name}={}", segment(value)));
        }
        url
    }

    fn authorized<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.context.file.token {
            Some(token) => request.header(http::header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    fn checked(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, ApiError> {
        let response = answer.map_err(|e| self.unreachable(&e))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = self.read_all(response)?;
        Err(ApiError::Refused {
            status: status.as_u16(),
            error: serde_json::from_slice(&body).map_or_else(
                |_| foreign_error(status, &body),
                |body: ErrorBody| body.error,
            ),
        })
    }

    fn parse<T: DeserializeOwned>(&self, response: Response<Body>) -> Result<T, ApiError> {
        let body = self.read_all(response)?;
        serde_json::from_slice(&body).map_err(|e| self.garbled(&e))
    }

    fn read_all(&self, response: Response<Body>) -> Result<Vec<u8>, ApiError> {
        let body = response
            .into_body()
            .into_with_config()
            .limit(MAX_ANSWER_BYTES);
        body.read_to_vec().map_err(|e| self.unreachable(&e))
    }

    /// Returns the error for a stream that broke while it was read.
    pub(crate) fn lost(&self, error: &std::io::Error) -> ApiError {
        ApiError::Unreachable {
            http: self.context.file.http.clone(),
            message: error.to_string(),
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> ApiError {
        ApiError::Unreachable {
            http: self.context.file.http.clone(),
            message: {
                let said = match error {
                    ureq::Error::Io(source) => source.to_string(),
                    other => other.to_string(),
                };
                tls::explained(&said, &self.context.path).unwrap_or(said)
            },
        }
    }

    fn garbled(&self, error: &impl ToString) -> ApiError {
        ApiError::Garbled {
            http: self.context.file.http.clone(),
            message: error.to_string(),
        }
    }
}

/// Escapes a text for a path or query: all but the unreserved characters of RFC 3986 as `%XX`.
fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ureq::http::StatusCode;

    fn client(token: Option<&str>) -> Client {
        Client::new(Context {
            path: "/x".into(),
            file: crate::context::ContextFile {
                http: "127.0.0.1:9".into(),
                token: token.map(Into::into),
                ..Default::default()
            },
        })
        .unwrap()
    }

    #[test]
    fn no_name_climbs_out_of_its_place_in_a_path() {
        assert_eq!(segment("a/../b?c=d&e%20"), "a%2F..%2Fb%3Fc%3Dd%26e%2520");
        let query = vec![("cursor", "a b".to_owned()), ("limit", "5".to_owned())];
        let url = client(None).url("/v1/steps", &query);
        assert_eq!(url, "http://127.0.0.1:9/v1/steps?cursor=a%20b&limit=5");
    }

    #[test]
    fn only_passing_failures_are_tried_again_and_only_so_often() {
        let refused = |status| ApiError::Refused {
            status,
            error: foreign_error(StatusCode::from_u16(status).unwrap(), b""),
        };
        let client = client(None);
        let mut calls = 0;
        let result: Result<(), _> = client.keep_trying(
            RetryLimit::Endless,
            |_| (),
            || {
                calls += 1;
                Err(refused(if calls < 3 { 503 } else { 404 }))
            },
        );
        assert_eq!((calls, result.unwrap_err().status()), (3, Some(404)));
        let spent = client.keep_trying(
            RetryLimit::For(Duration::ZERO),
            |_| (),
            || Err::<(), _>(refused(503)),
        );
        assert_eq!(spent.unwrap_err().status(), Some(503));
    }

    #[test]
    fn a_coordinator_that_is_not_there_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let http = listener.local_addr().unwrap().to_string();
        drop(listener);
        let mut context = client(None).context().clone();
        context.file.http = http.clone();
        let error = Client::new(context).unwrap().step("a").unwrap_err();
        assert!(error.is_passing());
        assert!(error.to_string().contains(&http), "{error}");
    }
}
