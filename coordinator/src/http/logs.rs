//! Output of steps, passed through from the agent that has it: bytes from an offset, and with `follow` as they are
//! written.
//!
//! If the stream ends properly the output is complete (so far, or for good when it is followed). If the link to the
//! agent breaks, the body is broken off, which HTTP distinguishes, and the caller resumes at the offset that it has
//! reached.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use coordinator_core::Core;
use futures_util::stream::unfold;
use serde::Deserialize;
use sluice_common::api::parse_timestamp;
use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::wire::{LogReply, LogRequest, LogStream, OutputSince};
use sluice_transport::{FrameReader, TransportError};
use tokio::time::timeout;

use super::Api;
use super::error::ApiError;
use super::params::{self, Params, Segment};

/// Header with the offset of the body's first byte, later than requested if the oldest output was dropped.
const OFFSET_HEADER: &str = "sluice-log-offset";
/// Header with the number of the attempt; 0 if there is none.
const ATTEMPT_HEADER: &str = "sluice-attempt";

/// Longest time to an agent's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Bytes passed on in one write.
const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogParams {
    stream: Option<String>,
    offset: Option<String>,
    follow: Option<String>,
    attempt: Option<String>,
    rank: Option<String>,
    since: Option<String>,
    timestamps: Option<String>,
}

/// A request for output.
struct LogQuery {
    step: StepId,
    attempt: Option<u32>,
    /// Rank of the part of a gang.
    rank: usize,
    stream: LogStream,
    offset: u64,
    follow: bool,
    since: Option<OutputSince>,
    timestamps: bool,
}

impl LogQuery {
    /// Fails if the offset is beyond the output: it is of another attempt or stream, and an empty answer would look
    /// like "nothing new".
    fn reaches(&self, offset: u64) -> Result<(), ApiError> {
        if self.offset <= offset {
            return Ok(());
        }
        Err(ApiError::OffsetBeyondEnd {
            offset: self.offset,
            end: offset,
        })
    }
}

enum LogLocation {
    At(LogSource),
    /// The step has not run, and may yet.
    NotYet,
    /// The step has not run and never will.
    Never,
}

/// The host that has, or had, the output.
struct LogSource {
    attempt: AttemptId,
    node: NodeName,
    /// Whether the process was started. If not, there is no output, and the host may not know the attempt.
    ran: bool,
}

/// Handles `GET /v1/steps/{id}/logs`.
pub(super) async fn logs(
    State(api): State<Api>,
    Segment(segment): Segment,
    Params(params): Params<LogParams>,
) -> Result<Response, ApiError> {
    let query = LogQuery {
        step: params::step_id(&segment)?,
        attempt: params::number("attempt", params.attempt.as_deref())?
            .map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        rank: params::number("rank", params.rank.as_deref())?
            .map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX)),
        stream: log_stream(params.stream.as_deref())?,
        offset: params::number("offset", params.offset.as_deref())?.unwrap_or(0),
        follow: params::flag("follow", params.follow.as_deref())?,
        since: output_since(params.since.as_deref())?,
        timestamps: params::flag("timestamps", params.timestamps.as_deref())?,
    };
    tokio::select! {
        answer = answer(&api, &query) => answer,
        () = api.stopped() => Err(ApiError::Stopping),
    }
}

fn log_stream(text: Option<&str>) -> Result<LogStream, ApiError> {
    match text {
        None | Some("stdout") => Ok(LogStream::Stdout),
        Some("stderr") => Ok(LogStream::Stderr),
        Some(text) => Err(params::invalid(
            "stream",
            format!("`{}` is neither `stdout` nor `stderr`", text.escape_debug()),
        )),
    }
}

fn output_since(text: Option<&str>) -> Result<Option<OutputSince>, ApiError> {
    let Some(text) = text else {
        return Ok(None);
    };
    if let Ok(span) = text.parse() {
        return Ok(Some(OutputSince::Ago(span)));
    }
    let at = parse_timestamp(text).map_err(|e| {
        let text = e.text;
        let forms = "a duration such as `10m`, nor a time such as `2026-12-01T08:00:00Z`";
        params::invalid("since", format!("`{text}` is neither {forms}"))
    });
    at.map(|at| Some(OutputSince::At(at)))
}

async fn answer(api: &Api, query: &LogQuery) -> Result<Response, ApiError> {
    match locate(api, query).await? {
        LogLocation::At(source) => fetch(api, query, source).await,
        // Nothing was written, so the output is complete.
        LogLocation::NotYet | LogLocation::Never => {
            query.reaches(0)?;
            Ok(octets(0, 0, Body::empty()))
        }
    }
}

/// Finds the output; with `follow` it waits until there is some, or never will be.
async fn locate(api: &Api, query: &LogQuery) -> Result<LogLocation, ApiError> {
    let mut interest = api.engine().watch_step(query.step.clone());
    loop {
        let (step, attempt, rank) = (query.step.clone(), query.attempt, query.rank);
        let found = api
            .engine()
            .read(move |core| find(core, step, attempt, rank))
            .await??;
        match found {
            LogLocation::NotYet if query.follow => interest.changed().await,
            found => return Ok(found),
        }
    }
}

fn find(
    core: &Core,
    id: StepId,
    number: Option<u32>,
    rank: usize,
) -> Result<LogLocation, ApiError> {
    let Some(step) = core.state().find(&id) else {
        return Err(core.unknown_step(&id).into());
    };
    params::no_whole_array(&step, "an output")?;
    let latest = step.latest();
    let attempt = match number {
        None => latest,
        Some(number) => Some(
            step.attempt(number)
                .ok_or_else(|| ApiError::UnknownAttempt {
                    step: id.to_string(),
                    attempt: number,
                    latest: latest.map_or(0, |attempt| attempt.number),
                })?,
        ),
    };
    let hosts = attempt.map_or(step.spec.nodes.max(1) as usize, |attempt| {
        attempt.parts.len()
    });
    if rank >= hosts {
        let message = format!("{rank}: the ranks of `{}` are 0 to {}", step.id, hosts - 1);
        return Err(params::invalid("rank", message));
    }
    Ok(
        match attempt.and_then(|attempt| Some((attempt, attempt.parts.get(rank)?))) {
            // A pool without hosts runs nothing.
            Some((_, part)) if part.node.is_of_pool() => LogLocation::Never,
            Some((attempt, part)) => LogLocation::At(LogSource {
                attempt: step.attempt_id(attempt.number),
                node: part.node.clone(),
                ran: part.started.is_some(),
            }),
            None if step.state.is_terminal() => LogLocation::Never,
            None => LogLocation::NotYet,
        },
    )
}

async fn fetch(api: &Api, query: &LogQuery, source: LogSource) -> Result<Response, ApiError> {
    let LogSource { attempt, node, ran } = source;
    let number = attempt.number;
    let request = LogRequest {
        attempt,
        stream: query.stream,
        offset: query.offset,
        follow: query.follow,
        since: query.since,
        timestamps: query.timestamps,
    };
    let unreachable = || ApiError::NodeUnreachable {
        node: node.to_string(),
    };
    let asked = timeout(ANSWER_LIMIT, ask(api, &node, &request)).await;
    let (reply, reader) = match asked {
        Ok(Some(Ok(answer))) => answer,
        Ok(Some(Err(error))) => {
            tracing::info!(%node, "a request for output failed: {error}");
            return Err(unreachable());
        }
        Ok(None) | Err(_) => return Err(unreachable()),
    };
    match reply {
        LogReply::From { offset } => {
            query.reaches(offset)?;
            Ok(octets(number, offset, stream_body(api.clone(), reader)))
        }
        LogReply::Refused { .. } if !ran => {
            query.reaches(0)?;
            Ok(octets(number, 0, Body::empty()))
        }
        LogReply::Refused { message } => Err(ApiError::OutputUnavailable {
            node: node.to_string(),
            message,
        }),
    }
}

/// Asks the agent; `None` if the node is not linked.
async fn ask(
    api: &Api,
    node: &NodeName,
    request: &LogRequest,
) -> Option<Result<(LogReply, FrameReader), TransportError>> {
    let connection = api.0.nodes.get(node)?;
    let exchange = async {
        let (mut writer, mut reader) = connection.open().await?;
        writer.send(request).await?;
        writer.finish();
        let reply = reader.next().await?;
        Ok((reply.ok_or(TransportError::TruncatedFrame)?, reader))
    };
    Some(exchange.await)
}

/// Streams the bytes as they come. Dropping it, when the caller has gone, tells the agent to stop.
fn stream_body(api: Api, reader: FrameReader) -> Body {
    Body::from_stream(unfold(Some((api, reader)), async |state| {
        let (api, mut reader) = state?;
        let chunk = tokio::select! {
            chunk = reader.read_bytes(CHUNK_BYTES) => chunk,
            () = api.stopped() => return Some((Err(broken("the coordinator is stopping")), None)),
        };
        match chunk {
            Ok(Some(bytes)) => Some((Ok(Bytes::from(bytes)), Some((api, reader)))),
            Ok(None) => None,
            Err(error) => Some((Err(broken(&error.to_string())), None)),
        }
    }))
}

/// Breaks the body off, so that it does not look complete.
fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, why.to_owned())
}

fn octets(attempt: u32, offset: u64, body: Body) -> Response {
    let headers = [
        (CONTENT_TYPE.as_str(), "application/octet-stream".to_owned()),
        (OFFSET_HEADER, offset.to_string()),
        (ATTEMPT_HEADER, attempt.to_string()),
    ];
    (headers, body).into_response()
}
