//! Admits hosts without a certificate, from their request to the answer. The core decides whom to admit; this module
//! bounds the cost of an unknown peer, and makes the use of a token durable before a certificate is issued.
//!
//! ```text
//! accepted -> limits -> one frame within seconds -> signature checked -> core, committed -> certificate -> closed
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coordinator_core::{JoinApplication, JoinRefusal, Joined};
use sluice_common::error_chain::error_chain;
use sluice_common::join::{JoinReply, JoinRequest};
use sluice_transport::{FrameReader, FrameWriter, JoiningPeer, SigningRequest, TransportError};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::FAREWELL_LIMIT;
use super::refusals::RefusalLog;
use crate::engine::{EngineHandle, EngineStopped};
use crate::issuance::CertificateIssuer;

/// Deadline from the handshake to the request, which a host has ready when it dials.
const ASKING_LIMIT: Duration = Duration::from_secs(5);

/// Unknown peers at one time. Each costs some hundred kilobytes at most, and is gone within seconds.
const MAX_STRANGERS: usize = 64;

/// Tries of one address in a burst: a rack behind one address that is installed at once.
const BURST: f64 = 64.0;

/// Tries that an address regains per second.
const PER_SECOND: f64 = 8.0;

/// Remembered addresses. Beyond them all start anew.
const MAX_ADDRESSES: usize = 10_000;

/// Longest agent version that is logged.
const MAX_VERSION_CHARS: usize = 64;

/// Accepts hosts that join. Clones share the limits.
#[derive(Clone, Debug)]
pub(super) struct JoinAcceptor {
    room: Arc<Semaphore>,
    tries: Arc<Mutex<BTreeMap<IpAddr, (f64, Instant)>>>,
}

impl Default for JoinAcceptor {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(MAX_STRANGERS)),
            tries: Arc::default(),
        }
    }
}

/// Why a join was denied.
#[derive(Debug, thiserror::Error)]
enum JoinDenied {
    #[error("too many hosts join at once: it may try again in a moment")]
    Busy,
    #[error("it sent nothing within {}s", ASKING_LIMIT.as_secs())]
    Silent,
    #[error("its request to join is malformed")]
    Garbled(#[source] TransportError),
    #[error(transparent)]
    Refused(#[from] JoinRefusal),
    #[error("{0}")]
    Request(String),
    #[error(transparent)]
    Stopping(#[from] EngineStopped),
}

impl JoinAcceptor {
    /// Serves one joining peer.
    pub(super) async fn meet(
        &self,
        peer: JoiningPeer,
        engine: &EngineHandle,
        issuance: &CertificateIssuer,
        refusals: &RefusalLog,
    ) {
        let from = peer.remote_addr();
        let outcome = match self.enter(from.ip()) {
            Some(_room) => talk(&peer, engine, issuance).await,
            None => Err(JoinDenied::Busy),
        };
        match outcome {
            Ok(joined) => {
                tracing::debug!(node = %joined.node, %from, generation = joined.claim.generation.number(), "host joined");
                peer.close("");
            }
            Err(away) => {
                let why = error_chain(&away);
                refusals.tell(None, from, &format!("it may not join: {why}"));
                peer.close(&why);
            }
        }
    }

    fn enter(&self, from: IpAddr) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let allowed = self.may_try(from, Instant::now());
        let room = Arc::clone(&self.room).try_acquire_owned().ok();
        room.filter(|_| allowed)
    }

    fn may_try(&self, from: IpAddr, now: Instant) -> bool {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        if tries.len() >= MAX_ADDRESSES && !tries.contains_key(&from) {
            tries.clear();
        }
        let (left, at) = tries.entry(from).or_insert((BURST, now));
        let back = now.duration_since(*at).as_secs_f64() * PER_SECOND;
        (*left, *at) = ((*left + back).min(BURST), now);
        let allowed = *left >= 1.0;
        if allowed {
            *left -= 1.0;
        }
        allowed
    }
}

async fn talk(
    peer: &JoiningPeer,
    engine: &EngineHandle,
    issuance: &CertificateIssuer,
) -> Result<Joined, JoinDenied> {
    let asked = timeout(ASKING_LIMIT, hear(peer)).await;
    let (mut out, request) = match asked {
        Ok(heard) => heard.map_err(JoinDenied::Garbled)?,
        Err(_) => return Err(JoinDenied::Silent),
    };
    let (reply, outcome) = match admit(request, engine, issuance).await {
        Ok((reply, joined)) => (reply, Ok(joined)),
        Err(away) => {
            let later = matches!(away, JoinDenied::Stopping(_));
            let message = error_chain(&away);
            (JoinReply::Refused { message, later }, Err(away))
        }
    };
    if out.send(&reply).await.is_ok() {
        out.finish();
        let _ = timeout(FAREWELL_LIMIT, out.delivered()).await;
    }
    outcome
}

async fn hear(peer: &JoiningPeer) -> Result<(FrameWriter, JoinRequest), TransportError> {
    let (out, mut reader): (FrameWriter, FrameReader) = peer.accept().await?;
    let request = reader.next().await?.ok_or(TransportError::TruncatedFrame)?;
    Ok((out, request))
}

async fn admit(
    request: JoinRequest,
    engine: &EngineHandle,
    issuance: &CertificateIssuer,
) -> Result<(JoinReply, Joined), JoinDenied> {
    if !issuance.can_issue() {
        let away = crate::issuance::IssueError::NoKey;
        return Err(JoinDenied::Request(away.to_string()));
    }
    let signed = SigningRequest::read(&request.request)
        .map_err(|error| JoinDenied::Request(error_chain(&error)))?;
    let ask = JoinApplication {
        hash: sluice_transport::join_line::hash_of(&request.secret),
        node: request.node,
        pool: request.pool,
        key: signed.fingerprint(),
    };
    let joined = engine.join(ask).await??;
    let credentials = issuance
        .certify_checked(&signed, joined.node.clone(), joined.claim.clone())
        .map_err(|error| JoinDenied::Request(error_chain(&error)))?;
    let version: String = request.version.chars().take(MAX_VERSION_CHARS).collect();
    tracing::debug!(node = %joined.node, version = %version.escape_debug(), "certificate issued");
    Ok((JoinReply::Joined(credentials), joined))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_tries_without_end_is_slowed_down_and_no_other() {
        let join_acceptor = JoinAcceptor::default();
        let now = Instant::now();
        let [rude, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let let_in = (0..1000)
            .filter(|_| join_acceptor.may_try(rude, now))
            .count();
        assert_eq!(let_in, 64);
        assert!(join_acceptor.may_try(other, now));
        let later = now + Duration::from_secs(1);
        let let_in = (0..1000)
            .filter(|_| join_acceptor.may_try(rude, later))
            .count();
        assert_eq!(let_in, 8);
    }

    #[test]
    fn strangers_are_bounded_however_many_there_are() {
        let join_acceptor = JoinAcceptor::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let inside: Vec<_> = (0..200)
            .map_while(|n| join_acceptor.enter(address(n)))
            .collect();
        assert_eq!(inside.len(), MAX_STRANGERS);
        drop(inside);
        assert!(join_acceptor.enter(address(7)).is_some());
    }
}
