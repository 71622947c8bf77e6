//! Runs programs beside steps, sends steps their input, and connects to their ports: the call becomes a WebSocket
//! ([`stream`]) to the caller and a stream to the agent on the step's host.
//!
//! Refusals that need no message of the caller are sent before the WebSocket is made, as ordinary errors.

mod port;
mod stream;

use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use coordinator_core::{Core, Refusal};
use serde::Deserialize;
use sluice_common::attempt_dir::INPUT_ENDED;
use sluice_common::exec::{ExecOrder, ExecProgram};
use sluice_common::id::{AttemptId, NodeName, StepId, UserName};
use sluice_common::state::StepState;
use sluice_common::websocket::{Empty, ServerMessage};
use sluice_common::wire::{LogReply, LogRequest, LogStream};
use sluice_transport::{FrameReader, FrameWriter, TransportError};
use tokio::time::timeout;

use super::Api;
use super::access::Caller;
use super::connections::Peer;
use super::error::ApiError;
use super::params::{self, Params, Segment};
pub(super) use port::port;
use stream::{Handshake, StreamCall};

/// Longest time to an agent's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecParams {
    rank: Option<String>,
    /// Number of the attempt that the caller means; the latest if absent.
    attempt: Option<String>,
}

/// The part of a step that a call concerns.
struct PartOfStep {
    rank: usize,
    /// Number of the attempt, if the call names one.
    attempt: Option<u64>,
    /// Whether what is kept of a step that has ended will do.
    may_be_kept: bool,
}

/// The host on which a part of a step runs.
struct ExecTarget {
    attempt: AttemptId,
    node: NodeName,
    /// User who submitted the step.
    submitted_by: Option<UserName>,
    /// State of the step if it has ended and files of it may be kept: nothing else can be done with it.
    ended: Option<StepState>,
}

impl ExecTarget {
    /// Refuses what a step that has ended cannot do. Its host no longer knows who may act as its user, so only its submitter
    /// gets what is kept.
    fn check(&self, program: &ExecProgram, by: Option<&UserName>) -> Result<(), ApiError> {
        let Some(state) = self.ended else {
            return Ok(());
        };
        if *program != ExecProgram::CopyFiles {
            let step = self.attempt.step.to_string();
            return Err(ApiError::NotRunning { step, state });
        }
        if self.submitted_by.is_some() && by != self.submitted_by.as_ref() {
            return Err(ApiError::ExecRefused {
                node: self.node.to_string(),
                message: "the step has ended: only its submitter and admins may copy files that were kept of it"
                    .to_owned(),
            });
        }
        Ok(())
    }
}

/// Stream to the agent that carries the program's streams.
struct AgentStream {
    writer: FrameWriter,
    reader: FrameReader,
    /// Message for the caller before those of the agent.
    first: ServerMessage,
}

/// Handles `GET /v1/steps/{id}/input`.
pub(super) async fn input(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    Params(params): Params<ExecParams>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let step = params::step_id(&segment)?;
    let part = part(&params)?;
    let target = api.engine().read(move |core| find(core, step, part));
    let target = target.await??;
    let handshake = Handshake::of(&mut request)?;
    // The host cannot check it: it knows the step's user alone.
    if target.submitted_by.is_some() && by(&caller, &target) != target.submitted_by {
        return Err(ApiError::InputRefused {
            node: target.node.to_string(),
            message: "only its submitter and admins may send its input".to_owned(),
        });
    }
    let agent = reach(&api, target, LogStream::Input, None).await?;
    Ok(handshake.accept(api, peer, StreamCall::Input(agent)))
}

fn part(params: &ExecParams) -> Result<PartOfStep, ApiError> {
    let rank = params::number("rank", params.rank.as_deref())?;
    Ok(PartOfStep {
        rank: rank.map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX)),
        attempt: params::number("attempt", params.attempt.as_deref())?,
        may_be_kept: false,
    })
}

/// The user on whose behalf the caller acts.
fn by(caller: &Caller, target: &ExecTarget) -> Option<UserName> {
    match caller.is_admin() {
        true => target.submitted_by.clone(),
        false => caller.who().user(),
    }
}

/// Handles `GET /v1/steps/{id}/exec`.
pub(super) async fn exec(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    Params(params): Params<ExecParams>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let step = params::step_id(&segment)?;
    let part = PartOfStep {
        // The first message says what is wanted.
        may_be_kept: true,
        ..part(&params)?
    };
    let target = api.engine().read(move |core| find(core, step, part));
    let target = target.await??;
    let handshake = Handshake::of(&mut request)?;
    let by = by(&caller, &target);
    Ok(handshake.accept(api, peer, StreamCall::Exec { target, by }))
}

fn find(core: &Core, id: StepId, wanted: PartOfStep) -> Result<ExecTarget, ApiError> {
    let Some(step) = core.state().find(&id) else {
        return Err(core.unknown_step(&id).into());
    };
    params::no_whole_array(&step, "processes and files")?;
    let not_running = |state| ApiError::NotRunning {
        step: step.id.to_string(),
        state,
    };
    let ended = (step.state.is_terminal() && wanted.may_be_kept && !step.spec.keep.is_empty())
        .then_some(step.state);
    if step.state != StepState::Running && ended.is_none() {
        return Err(not_running(step.state));
    }
    let attempt = step.latest().ok_or_else(|| not_running(step.state))?;
    if let Some(number) = wanted.attempt.filter(|it| *it != u64::from(attempt.number)) {
        let message = format!(
            "{number}: attempt {} of `{id}` runs now: leave it out, or begin anew",
            attempt.number
        );
        return Err(params::invalid("attempt", message));
    }
    let rank = wanted.rank;
    let Some(part) = attempt.parts.get(rank) else {
        let last = attempt.parts.len().saturating_sub(1);
        let message = format!("{rank}: the ranks of `{id}` are 0 to {last}");
        return Err(params::invalid("rank", message));
    };
    if part.node.is_of_pool() {
        return Err(Refusal::StepWithoutHost {
            step: id,
            pool: attempt.pool.clone(),
        }
        .into());
    }
    Ok(ExecTarget {
        attempt: step.attempt_id(attempt.number),
        node: part.node.clone(),
        submitted_by: step.spec.submitted_by.clone(),
        ended,
    })
}

/// Has the agent start the program, take input or connect to a port, and returns the stream of its frames.
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
    let kind = AgentStreamKind::of(stream, order);
    let connection = api.0.nodes.get(&node).ok_or_else(unreachable)?;
    let ask = async {
        let (mut writer, mut reader) = connection.open().await?;
        let request = LogRequest {
            attempt,
            stream,
            offset: 0,
            follow: true,
            since: None,
            timestamps: false,
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
            kind.log_failure(&node, &error);
            return Err(unreachable());
        }
        Err(_) => return Err(unreachable()),
    };
    match reply {
        LogReply::From { offset } => Ok(AgentStream {
            writer,
            reader,
            first: kind.first(offset),
        }),
        LogReply::Refused { message } => Err(kind.refused(&node, message)),
    }
}

/// Purpose of a stream to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentStreamKind {
    Program,
    Input,
    Port,
}

impl AgentStreamKind {
    fn of(stream: LogStream, order: Option<&ExecOrder>) -> Self {
        match (stream, order.map(|order| &order.program)) {
            (LogStream::Input, _) => Self::Input,
            (_, Some(ExecProgram::Connect { .. })) => Self::Port,
            _ => Self::Program,
        }
    }

    /// First message for the caller.
    fn first(self, offset: u64) -> ServerMessage {
        match self {
            Self::Program => ServerMessage::Started(Empty {}),
            Self::Input if offset == INPUT_ENDED => ServerMessage::InputEnded(Empty {}),
            Self::Input => ServerMessage::Taken(offset),
            Self::Port => ServerMessage::Connected(Empty {}),
        }
    }

    fn refused(self, node: &NodeName, message: String) -> ApiError {
        let node = node.to_string();
        match self {
            Self::Program => ApiError::ExecRefused { node, message },
            Self::Input => ApiError::InputRefused { node, message },
            Self::Port => ApiError::PortRefused { node, message },
        }
    }

    fn log_failure(self, node: &NodeName, error: &TransportError) {
        match self {
            Self::Program => tracing::info!(%node, "a program could not be run in a step: {error}"),
            Self::Input => tracing::info!(%node, "input could not be sent to a step: {error}"),
            Self::Port => tracing::info!(%node, "a port of a step could not be reached: {error}"),
        }
    }
}
