//! Handles `GET /v1/steps/{step}/ports/{port}`: a connection to a port of a running step, one for each call.

use axum::Extension;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use coordinator_core::Core;
use sluice_common::id::StepId;
use sluice_common::port::{PortName, tell_ports};

use super::super::Api;
use super::super::access::Caller;
use super::super::connections::Peer;
use super::super::error::ApiError;
use super::super::params::{self, Params};
use super::stream::{Handshake, StreamCall};
use super::{ExecParams, by, find, part};

/// A step and the name of one of its ports, from a path.
pub(in super::super) struct PortPath {
    step: StepId,
    port: String,
}

impl<S: Send + Sync> FromRequestParts<S> for PortPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path: Result<Path<(String, String)>, _> = Path::from_request_parts(parts, state).await;
        let Ok(Path((step, port))) = path else {
            let path = parts.uri.path().to_owned();
            return Err(ApiError::UnknownRoute { path });
        };
        let step = params::step_id(&step)?;
        Ok(Self { step, port })
    }
}

/// Handles the call. All that needs no answer of the host is refused before the WebSocket is made.
pub(in super::super) async fn port(
    State(api): State<Api>,
    caller: Caller,
    PortPath { step, port }: PortPath,
    Params(params): Params<ExecParams>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let part = part(&params)?;
    let target = api.engine().read(move |core| {
        let target = find(core, step.clone(), part)?;
        Ok::<_, ApiError>((target, known_port(core, &step, &port)?))
    });
    let (target, port) = target.await??;
    let handshake = Handshake::of(&mut request)?;
    let by = by(&caller, &target);
    Ok(handshake.accept(api, peer, StreamCall::Port { target, port, by }))
}

/// Returns the port of this name; the error names those that the step has.
fn known_port(core: &Core, id: &StepId, name: &str) -> Result<PortName, ApiError> {
    let Some(step) = core.state().find(id) else {
        return Err(core.unknown_step(id).into());
    };
    let ports = &step.spec.ports;
    if let Some(port) = ports.iter().find(|port| port.as_str() == name) {
        return Ok(port.clone());
    }
    let name = name.escape_debug();
    let all: Vec<&str> = ports.iter().map(PortName::as_str).collect();
    let told = tell_ports(id.as_str(), &all);
    Err(params::invalid("port", format!("`{name}`: {told}")))
}
