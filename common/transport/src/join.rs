//! Connections of hosts that join without a certificate, on the coordinator's and on the host's side.
//!
//! A joining host is not trusted: it gets one stream with small frames, and only as much time as the caller allows.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use quinn::{ClientConfig, Endpoint, EndpointConfig, VarInt};
use sluice_common::credential::Fingerprint;
use sluice_common::join::{MAX_JOIN_FRAME_BYTES, MAX_JOIN_REPLY_BYTES};
use tokio::time::timeout;

use crate::connection::{CLOSED, FrameReader, FrameWriter, framed};
use crate::endpoint::{canonical, endpoint, resolve, socket, unresolved};
use crate::error::{TransportError, explain};
use crate::peer::COORDINATOR_HOST;
use crate::settings::{self, MAX_REASON};
use crate::tls;

/// A peer without a certificate that wants to join.
#[derive(Debug)]
pub struct JoiningPeer {
    quic: quinn::Connection,
    most: usize,
}

impl JoiningPeer {
    /// Wraps an incoming connection.
    pub(crate) fn inbound(quic: quinn::Connection) -> Self {
        quic.set_max_concurrent_bi_streams(VarInt::from_u32(1));
        let most = MAX_JOIN_FRAME_BYTES;
        Self { quic, most }
    }

    /// Network address of the peer.
    pub fn remote_addr(&self) -> SocketAddr {
        canonical(self.quic.remote_address())
    }

    /// Waits for the stream that the peer opens.
    ///
    /// # Errors
    /// If the link is lost.
    pub async fn accept(&self) -> Result<(FrameWriter, FrameReader), TransportError> {
        let streams = self.quic.accept_bi().await.map_err(TransportError::lost)?;
        Ok(framed(streams, self.most))
    }

    /// Opens the stream.
    ///
    /// # Errors
    /// If the link is lost.
    pub async fn open(&self) -> Result<(FrameWriter, FrameReader), TransportError> {
        let streams = self.quic.open_bi().await.map_err(TransportError::lost)?;
        Ok(framed(streams, self.most))
    }

    /// Closes the link at once and tells the peer why.
    pub fn close(&self, why: &str) {
        let end = why.floor_char_boundary(MAX_REASON);
        self.quic.close(CLOSED, &why.as_bytes()[..end]);
    }

    /// Waits until the link is closed and returns the reason.
    pub async fn closed(&self) -> String {
        explain(self.quic.closed().await)
    }
}

/// A joining host's end, which dials the coordinator.
#[derive(Debug)]
pub struct JoinDialer {
    endpoint: Endpoint,
}

impl JoinDialer {
    /// Prepares to dial. Only a coordinator with a certificate under this authority is accepted.
    ///
    /// # Errors
    /// If no socket is available.
    pub fn new(authority: Fingerprint) -> Result<Self, TransportError> {
        let mut config = ClientConfig::new(Arc::new(tls::joining(authority)));
        config.transport_config(settings::dialling());
        let any = |ip| socket(SocketAddr::new(ip, 0));
        let mut endpoint = any(Ipv6Addr::UNSPECIFIED.into())
            .or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))
            .and_then(|socket| endpoint(socket, EndpointConfig::default(), None))
            .map_err(TransportError::Socket)?;
        endpoint.set_default_client_config(config);
        Ok(Self { endpoint })
    }

    /// Dials the coordinator at `address`, written `HOST:PORT`. On return the coordinator's identity is verified.
    ///
    /// # Errors
    /// If nothing answers within some seconds, or the peer is not the coordinator under that authority.
    pub async fn dial(&self, address: &str) -> Result<JoiningPeer, TransportError> {
        let mut outcome = Err(unresolved(address, std::io::ErrorKind::NotFound.into()));
        for found in resolve(address).await? {
            outcome = self.dial_one(address, found).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    async fn dial_one(&self, name: &str, at: SocketAddr) -> Result<JoiningPeer, TransportError> {
        let failed = |reason| TransportError::Dial {
            address: name.to_owned(),
            reason,
        };
        let connecting = self.endpoint.connect(at, COORDINATOR_HOST);
        let connecting = connecting.map_err(|error| failed(error.to_string()))?;
        match timeout(settings::HANDSHAKE_LIMIT, connecting).await {
            Ok(Ok(quic)) => Ok(JoiningPeer {
                quic,
                most: MAX_JOIN_REPLY_BYTES,
            }),
            Ok(Err(error)) => Err(failed(explain(error))),
            Err(_) => Err(TransportError::NoAnswer {
                address: name.to_owned(),
                limit: settings::HANDSHAKE_LIMIT,
            }),
        }
    }

    /// Closes all links dialled from here, waiting a limited time for the peer.
    pub async fn close(&self) {
        self.endpoint.close(CLOSED, b"");
        let _nobody_answers = timeout(settings::HANDSHAKE_LIMIT, self.endpoint.wait_idle()).await;
    }
}
