//! Runs programs beside steps, and sends steps their input: the call becomes a connection to the agent on the step's
//! host, and frames pass through unread. The end of either side ends both: if the caller goes, the agent kills the
//! program. A caller who loses the right is cut off with a last frame that says why.
//!
//! Refusals are sent before the connection is made, as ordinary errors.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use coordinator_core::{Core, Refusal};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use sluice_common::attempt_dir::INPUT_ENDED;
use sluice_common::exec::{self, ExecOrder, ExecRequest, FrameBoundaries, FrameKind, encode_frame};
use sluice_common::id::{AttemptId, NodeName, StepId, UserName};
use sluice_common::limit::MAX_BODY_BYTES;
use sluice_common::state::StepState;
use sluice_common::wire::{LogReply, LogRequest, LogStream};
use sluice_transport::{FrameReader, FrameWriter, TransportError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::Api;
use super::access::{Caller, CloseReason, WatchedUpgrade};
use super::body;
use super::connections::Peer;
use super::error::ApiError;
use super::params::{self, Params, Segment};

/// Longest time to an agent's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Bytes passed on in one write.
const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecParams {
    rank: Option<String>,
}

/// The host on which a part of a step runs.
struct ExecTarget {
    attempt: AttemptId,
    node: NodeName,
    /// User who submitted the step.
    submitted_by: Option<UserName>,
}

/// Stream to the agent that carries the program's streams.
struct AgentStream {
    writer: FrameWriter,
    reader: FrameReader,
    /// Frame for the caller before those of the agent.
    first: Vec<u8>,
}

/// Handles `POST /v1/steps/{id}/input`.
pub(super) async fn input(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    Params(params): Params<ExecParams>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let step = params::step_id(&segment)?;
    let rank = rank(&params)?;
    let upgrade = wanted_upgrade(&mut request);
    let target = api.engine().read(move |core| find(core, step, rank));
    let target = target.await??;
    let upgrade = upgrade.ok_or_else(no_upgrade)?;
    // The host cannot check it: it knows the step's user alone.
    if target.submitted_by.is_some() && by(&caller, &target) != target.submitted_by {
        return Err(ApiError::InputRefused {
            node: target.node.to_string(),
            message: "only its submitter and admins may send its input".to_owned(),
        });
    }
    let way = reach(&api, target, LogStream::Input, None).await?;
    Ok(switch(api, peer, upgrade, way))
}

fn rank(params: &ExecParams) -> Result<usize, ApiError> {
    let rank = params::number("rank", params.rank.as_deref())?;
    Ok(rank.map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX)))
}

fn wanted_upgrade(request: &mut Request) -> Option<WatchedUpgrade> {
    let upgrade = request.extensions_mut().remove::<WatchedUpgrade>();
    upgrade.filter(|_| wants_upgrade(request.headers()))
}

fn no_upgrade() -> ApiError {
    let headers = format!("`Connection: Upgrade` and `Upgrade: {}`", exec::UPGRADE);
    let message = format!("this call becomes a connection of frames: send {headers}");
    params::invalid("Upgrade", message)
}

/// The user on whose behalf the caller acts.
fn by(caller: &Caller, target: &ExecTarget) -> Option<UserName> {
    match caller.is_admin() {
        true => target.submitted_by.clone(),
        false => caller.who().user(),
    }
}

/// Answers that the connection carries frames from now on.
fn switch(api: Api, peer: Peer, upgrade: WatchedUpgrade, way: AgentStream) -> Response {
    // A reader of a program's output may be slow: the program waits for him.
    peer.stall_policy.allow_stalls();
    tokio::spawn(async move {
        // The connection keeps its permit until it ends.
        let _seat = peer.permit;
        let carry = |upgraded, last_word| carry(api, upgraded, last_word, way);
        upgrade.run(carry).await;
    });
    let headers = [
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static(exec::UPGRADE)),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response()
}

/// Handles `POST /v1/steps/{id}/exec`.
pub(super) async fn exec(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    Params(params): Params<ExecParams>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let step = params::step_id(&segment)?;
    let rank = rank(&params)?;
    let upgrade = wanted_upgrade(&mut request);
    let bytes = body::read(request, MAX_BODY_BYTES).await?;
    let wanted: ExecRequest = body::parse(&bytes, "")?;
    wanted.check()?;
    let target = api.engine().read(move |core| find(core, step, rank));
    let target = target.await??;
    let upgrade = upgrade.ok_or_else(no_upgrade)?;
    let order = ExecOrder {
        command: wanted.command,
        by: by(&caller, &target),
        terminal: wanted.terminal,
    };
    let way = reach(&api, target, LogStream::Exec, Some(&order)).await?;
    Ok(switch(api, peer, upgrade, way))
}

fn wants_upgrade(headers: &HeaderMap) -> bool {
    let wanted = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    wanted.is_some_and(|wanted| wanted.eq_ignore_ascii_case(exec::UPGRADE))
}

fn find(core: &Core, id: StepId, rank: usize) -> Result<ExecTarget, ApiError> {
    let Some(step) = core.state().step(&id) else {
        return Err(Refusal::UnknownStep { step: id }.into());
    };
    let not_running = |state| ApiError::NotRunning {
        step: step.id.to_string(),
        state,
    };
    if step.state != StepState::Running {
        return Err(not_running(step.state));
    }
    let attempt = step.latest().ok_or_else(|| not_running(step.state))?;
    let Some(part) = attempt.parts.get(rank) else {
        let last = attempt.parts.len().saturating_sub(1);
        let message = format!("{rank}: the ranks of `{id}` are 0 to {last}");
        return Err(params::invalid("rank", message));
    };
    Ok(ExecTarget {
        attempt: step.attempt_id(attempt.number),
        node: part.node.clone(),
        submitted_by: step.spec.submitted_by.clone(),
    })
}

/// Has the agent start the program or take input, and returns the stream of its frames.
async fn reach(
    api: &Api,
    target: ExecTarget,
    stream: LogStream,
    order: Option<&ExecOrder>,
) -> Result<AgentStream, ApiError> {
    let ExecTarget { attempt, node, .. } = target;
    let unreachable = || ApiError::ExecUnreachable {
        node: node.to_string(),
    };
    let connection = api.0.nodes.get(&node).ok_or_else(unreachable)?;
    let ask = async {
        let (mut writer, mut reader) = connection.open().await?;
        let request = LogRequest {
            attempt,
            stream,
            offset: 0,
            follow: true,
        };
        writer.send(&request).await?;
        if let Some(order) = order {
            writer.send(order).await?;
        }
        let reply = reader.next().await?.ok_or(TransportError::TruncatedFrame)?;
        Ok::<_, TransportError>((reply, (writer, reader)))
    };
    let asked = timeout(ANSWER_LIMIT, ask).await;
    let (reply, (writer, reader)) = match asked {
        Ok(Ok(answered)) => answered,
        Ok(Err(error)) => {
            tracing::info!(%node, "exec of a program in a step failed: {error}");
            return Err(unreachable());
        }
        Err(_) => return Err(unreachable()),
    };
    match reply {
        LogReply::From { offset } => Ok(AgentStream {
            writer,
            reader,
            first: match stream {
                LogStream::Input if offset == INPUT_ENDED => {
                    encode_frame(FrameKind::InputEnded, &[])
                }
                LogStream::Input => encode_frame(FrameKind::Taken, &offset.to_be_bytes()),
                LogStream::Exec | LogStream::Stdout | LogStream::Stderr => Vec::new(),
            },
        }),
        LogReply::Refused { message } if stream == LogStream::Input => {
            Err(ApiError::InputRefused {
                node: node.to_string(),
                message,
            })
        }
        LogReply::Refused { message } => Err(ApiError::ExecRefused {
            node: node.to_string(),
            message,
        }),
    }
}

/// Carries frames until either side has gone, or the caller has lost the right. Dropping the stream tells the agent to
/// kill the program.
async fn carry(
    api: Api,
    upgraded: Upgraded,
    last_word: CloseReason,
    AgentStream {
        writer,
        reader,
        first,
    }: AgentStream,
) {
    let (from_caller, mut to_caller) = tokio::io::split(TokioIo::new(upgraded));
    if to_caller.write_all(&first).await.is_err() {
        return;
    }
    tokio::select! {
        () = up(from_caller, writer, last_word.clone()) => {}
        () = down(reader, to_caller, last_word) => {}
        () = api.stopped() => {}
    }
}

/// Carries the caller's frames, for as long as the caller has the right.
async fn up(
    mut from_caller: ReadHalf<TokioIo<Upgraded>>,
    mut writer: FrameWriter,
    mut last_word: CloseReason,
) {
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        let count = tokio::select! {
            biased;
            () = received(&mut last_word) => return std::future::pending().await,
            read = from_caller.read(&mut bytes) => read.unwrap_or(0),
        };
        if count == 0 {
            return;
        }
        if writer.send_bytes(&bytes[..count]).await.is_err() {
            // The program has ended: its unread input is discarded, and its exit is on the way to the caller.
            return std::future::pending().await;
        }
    }
}

/// Carries the program's frames. The final message goes between two frames, so a frame that has begun is finished
/// first.
async fn down(
    mut reader: FrameReader,
    mut to_caller: WriteHalf<TokioIo<Upgraded>>,
    mut last_word: CloseReason,
) {
    let mut edges = FrameBoundaries::default();
    loop {
        let is_over = last_word.borrow().is_some();
        if is_over && edges.missing() == 0 {
            break;
        }
        let most = if is_over {
            edges.missing()
        } else {
            CHUNK_BYTES
        };
        let read = tokio::select! {
            biased;
            () = received(&mut last_word), if !is_over => continue,
            read = reader.read_bytes(most.min(CHUNK_BYTES)) => read,
        };
        let Ok(Some(bytes)) = read else { break };
        edges.advance(&bytes);
        if to_caller.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let end = last_word.borrow().clone();
    if let Some(why) = end.filter(|_| edges.missing() == 0) {
        let last = encode_frame(FrameKind::Closed, why.as_bytes());
        let _the_caller_is_gone = to_caller.write_all(&last).await;
    }
    let _the_caller_is_gone = to_caller.shutdown().await;
}

/// Resolves when there is a final message.
async fn received(last_word: &mut CloseReason) {
    let end = last_word.wait_for(Option::is_some).await.is_ok();
    if !end {
        std::future::pending().await
    }
}
