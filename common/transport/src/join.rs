//! The way in for a host that has no certificate: what the coordinator sees of it, and how it dials.
//!
//! Nothing is known of who comes this way, so it gets little: one stream, small frames, and as much time as whoever
//! accepted it gives.

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

/// A peer who has shown no certificate, and wants one.
#[derive(Debug)]
pub struct JoiningPeer {
    quic: quinn::Connection,
    most: usize,
}

impl JoiningPeer {
    /// One that has dialled in.
    pub(crate) fn inbound(quic: quinn::Connection) -> Self {
        quic.set_max_concurrent_bi_streams(VarInt::from_u32(1));
        let most = MAX_JOIN_FRAME_BYTES;
        Self { quic, most }
    }

    /// Where it is.
    pub fn remote_addr(&self) -> SocketAddr {
        canonical(self.quic.remote_address())
    }

    /// The stream that it opens.
    ///
    /// # Errors
    /// Where the link is lost.
    pub async fn accept(&self) -> Result<(FrameWriter, FrameReader), TransportError> {
        let streams = self.quic.accept_bi().await.map_err(TransportError::lost)?;
        Ok(framed(streams, self.most))
    }

    /// Opens the stream.
    ///
    /// # Errors
    /// Where the link is lost.
    pub async fn open(&self) -> Result<(FrameWriter, FrameReader), TransportError> {
        let streams = self.quic.open_bi().await.map_err(TransportError::lost)?;
        Ok(framed(streams, self.most))
    }

    /// Ends the link at once and tells the peer why.
    pub fn close(&self, why: &str) {
        let end = why.floor_char_boundary(MAX_REASON);
        self.quic.close(CLOSED, &why.as_bytes()[..end]);
    }

    /// Waits for the end of the link and says why it ended.
    pub async fn closed(&self) -> String {
        explain(self.quic.closed().await)
    }
}

/// A host's end, from which it dials to join.
#[derive(Debug)]
pub struct JoinDialer {
    endpoint: Endpoint,
}

impl JoinDialer {
    /// Dials whoever shows a certificate of the coordinator under the authority of this fingerprint, and nobody else.
    ///
    /// # Errors
    /// Where there is no socket to be had.
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

    /// Dials the coordinator at `address`, written `HOST:PORT`. When this returns, who answers has proved to be it.
    ///
    /// # Errors
    /// Where nobody answers within some seconds, or who answers is not the coordinator under that authority.
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

    /// Ends what was dialled from here, once the peer was told or some time has passed.
    pub async fn close(&self) {
        self.endpoint.close(CLOSED, b"");
        let _nobody_answers = timeout(settings::HANDSHAKE_LIMIT, self.endpoint.wait_idle()).await;
    }
}
