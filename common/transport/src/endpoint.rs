//! The two ends of links: [`Listener`] and [`Dialer`]. They own the UDP sockets and decide which peers are admitted.
//! Must run inside a `tokio` runtime.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::HandshakeData;
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, Incoming, ReadToEndError, ServerConfig, VarInt,
};
use rustls::pki_types::CertificateDer;
use sluice_common::id::ClusterId;
use sluice_common::join::JOIN_ALPN;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::connection::{CLOSED, Connection, VerifiedCertificate};
use crate::error::{TransportError, explain};
use crate::gate::{Gate, GateDecision, HandshakePermit};
use crate::identity::Identity;
use crate::join::JoiningPeer;
use crate::peer::{COORDINATOR_HOST, CertificateError, Peer, peer_identity_of};
use crate::{settings, tls};

/// Close code for verified peers that are not admitted.
const REFUSED: VarInt = VarInt::from_u32(1);
/// First data of the coordinator, on a stream of its own: the agent is admitted. In TLS 1.3 the client finishes before
/// the server has verified it, so without this a refused dial would first appear to succeed.
const ADMITTED: &[u8] = b"+";

/// The coordinator's end, which accepts agents. Dropping it keeps existing links; [`Listener::close`] closes them.
#[derive(Debug)]
pub struct Listener {
    endpoint: Endpoint,
    cluster: Option<ClusterId>,
    gate: Gate,
}

/// An incoming connection before its handshake.
#[derive(Debug)]
pub struct Handshake {
    incoming: Incoming,
    cluster: Option<ClusterId>,
    room: HandshakePermit,
}

/// A peer after its handshake.
#[derive(Debug)]
pub enum AcceptedPeer {
    /// A node with a certificate.
    Node(Connection),
    /// A host without a certificate that wants to join.
    JoiningPeer(JoiningPeer),
}

/// An agent's end, which dials the coordinator.
#[derive(Clone, Debug)]
pub struct Dialer {
    endpoint: Endpoint,
    cluster: Option<ClusterId>,
}

impl Listener {
    /// Listens on `addr` as the coordinator.
    ///
    /// # Errors
    /// If the certificate is not the coordinator's, or the address cannot be bound.
    pub fn bind(addr: SocketAddr, identity: &Identity) -> Result<Self, TransportError> {
        if *identity.peer() != Peer::Coordinator {
            return Err(wrong_identity(identity, "listening", "the coordinator's"));
        }
        let config = server_config(identity);
        let cluster = identity.peer_identity().cluster.clone();
        socket(addr)
            .and_then(|socket| endpoint(socket, identity.reset.endpoint_config(), Some(config)))
            .map(|endpoint| Self {
                endpoint,
                cluster,
                gate: Gate::default(),
            })
            .map_err(|source| TransportError::Bind {
                address: addr,
                source,
            })
    }

    /// Replaces certificate and trusted authorities. Existing links stay.
    ///
    /// # Errors
    /// If the certificate is not the coordinator's.
    pub fn renew(&self, identity: &Identity) -> Result<(), TransportError> {
        if *identity.peer() != Peer::Coordinator {
            return Err(wrong_identity(identity, "listening", "the coordinator's"));
        }
        self.endpoint
            .set_server_config(Some(server_config(identity)));
        Ok(())
    }

    /// Local address, with the port that the kernel chose if 0 was requested.
    pub fn local_addr(&self) -> SocketAddr {
        let addr = self.endpoint.local_addr();
        addr.expect("a bound socket has an address")
    }

    /// The next incoming connection that the gate admits; `None` once closed. Cancel-safe.
    pub async fn accept(&self) -> Option<Handshake> {
        loop {
            let incoming = self.endpoint.accept().await?;
            let from = incoming.remote_address().ip();
            match self.gate.enter(from, incoming.remote_address_validated()) {
                GateDecision::Admit(room) => {
                    let cluster = self.cluster.clone();
                    return Some(Handshake {
                        incoming,
                        cluster,
                        room,
                    });
                }
                // Peers without a proven address are asked to prove it.
                GateDecision::Retry => drop(incoming.retry()),
                GateDecision::Ignore => incoming.ignore(),
            }
        }
    }

    /// Closes every link and stops accepting.
    pub fn close(&self) {
        self.endpoint.close(CLOSED, b"the coordinator shuts down");
    }

    /// Waits until every peer was told of the close, after [`Self::close`]. Takes a few round trips if a peer is
    /// silent.
    pub async fn wait_idle(&self) {
        self.endpoint.wait_idle().await;
    }
}

impl Handshake {
    /// Claimed address of the peer, not verified.
    pub fn remote_addr(&self) -> SocketAddr {
        canonical(self.incoming.remote_address())
    }

    /// Verifies certificates both ways and admits a node. Takes a few round trips and at most some seconds; await it in
    /// a task of its own, so that a slow peer delays no others.
    ///
    /// # Errors
    /// If the peer is too slow, or presents no node certificate of this cluster's authority.
    pub async fn finish(self) -> Result<Connection, TransportError> {
        match self.finish_any().await? {
            AcceptedPeer::Node(connection) => Ok(connection),
            AcceptedPeer::JoiningPeer(stranger) => {
                stranger.close("no host can join here");
                Err(TransportError::Certificate {
                    address: stranger.remote_addr(),
                    source: CertificateError::Missing,
                })
            }
        }
    }

    /// Like [`finish`](Self::finish), and also admits hosts that want to join without a certificate.
    ///
    /// # Errors
    /// Same as [`finish`](Self::finish), except for joining hosts.
    pub async fn finish_any(self) -> Result<AcceptedPeer, TransportError> {
        let address = self.remote_addr();
        let failed = |reason| TransportError::Handshake { address, reason };
        match timeout(settings::HANDSHAKE_LIMIT, self.admit()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(failed(format!(
                "it took longer than {}s",
                settings::HANDSHAKE_LIMIT.as_secs()
            ))),
        }
    }

    async fn admit(self) -> Result<AcceptedPeer, TransportError> {
        let address = self.remote_addr();
        let failed = |error| TransportError::Handshake {
            address,
            reason: explain(error),
        };
        let connection = self.incoming.await.map_err(failed)?;
        if wants_to_join(&connection) {
            return Ok(AcceptedPeer::JoiningPeer(JoiningPeer::inbound(connection)));
        }
        let is_node = |peer: &Peer| matches!(peer, Peer::Node(_));
        let shown = verify_member(&connection, self.cluster.as_ref(), is_node)?;
        let mut stream = connection.open_uni().await.map_err(failed)?;
        stream
            .write_all(ADMITTED)
            .await
            .map_err(TransportError::writing)?;
        // Dropping the stream finishes it.
        self.room.remember_address();
        Ok(AcceptedPeer::Node(Connection::new(connection, shown)))
    }
}

fn server_config(identity: &Identity) -> ServerConfig {
    let mut config = ServerConfig::with_crypto(Arc::new(tls::server(identity)));
    config
        .transport_config(settings::listening())
        .max_incoming(settings::MAX_WAITING_HANDSHAKES)
        .incoming_buffer_size(settings::WAITING_HANDSHAKE_BYTES)
        .incoming_buffer_size_total(settings::WAITING_BYTES);
    config
}

/// Whether the join protocol was negotiated.
fn wants_to_join(connection: &quinn::Connection) -> bool {
    let agreed = connection.handshake_data();
    let agreed = agreed.and_then(|any| any.downcast::<HandshakeData>().ok());
    agreed.is_some_and(|data| data.protocol.as_deref() == Some(JOIN_ALPN))
}

impl Dialer {
    /// Opens a socket to dial from, as the node named in the certificate.
    ///
    /// # Errors
    /// If the certificate is not a node's, or no socket is available.
    pub fn new(identity: &Identity) -> Result<Self, TransportError> {
        if *identity.peer() == Peer::Coordinator {
            return Err(wrong_identity(identity, "dialling", "a node's"));
        }
        let mut config = ClientConfig::new(Arc::new(tls::client(identity)));
        config.transport_config(settings::dialling());
        let any = |ip: IpAddr| socket(SocketAddr::new(ip, 0));
        // One socket serves IPv4 and IPv6 if the host has both.
        let mut endpoint = any(Ipv6Addr::UNSPECIFIED.into())
            .or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))
            .and_then(|socket| endpoint(socket, EndpointConfig::default(), None))
            .map_err(TransportError::Socket)?;
        endpoint.set_default_client_config(config);
        let cluster = identity.peer_identity().cluster.clone();
        Ok(Self { endpoint, cluster })
    }

    /// Connects to the coordinator at `address`, written `HOST:PORT`. If the host has several addresses, the first to
    /// answer is used. Returns when the coordinator has admitted this node. Cancel-safe.
    ///
    /// # Errors
    /// If the host has no address, nothing answers within some seconds, the peer is not the cluster's coordinator, or
    /// it refuses this node.
    pub async fn dial(&self, address: &str) -> Result<Connection, TransportError> {
        self.dial_within(address, settings::HANDSHAKE_LIMIT).await
    }

    async fn dial_within(
        &self,
        address: &str,
        limit: Duration,
    ) -> Result<Connection, TransportError> {
        let silent = || TransportError::NoAnswer {
            address: address.to_owned(),
            limit,
        };
        match timeout(limit, self.dial_all(address)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(silent()),
        }
    }

    /// Tries all addresses of a host, staggered.
    async fn dial_all(&self, address: &str) -> Result<Connection, TransportError> {
        let mut tries = JoinSet::new();
        for (number, socket_addr) in (0..).zip(resolve(address).await?) {
            let dialer = self.clone();
            let name = address.to_owned();
            tries.spawn(async move {
                sleep(settings::STAGGER * number).await;
                dialer.dial_one(&name, socket_addr).await
            });
        }
        let mut outcome = Err(unresolved(address, io::ErrorKind::NotFound.into()));
        while let Some(tried) = tries.join_next().await {
            outcome = tried.unwrap_or_else(|stopped| {
                Err(TransportError::Dial {
                    address: address.to_owned(),
                    reason: stopped.to_string(),
                })
            });
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    async fn dial_one(
        &self,
        name: &str,
        address: SocketAddr,
    ) -> Result<Connection, TransportError> {
        let failed = |reason| TransportError::Dial {
            address: name.to_owned(),
            reason,
        };
        let connecting = self
            .endpoint
            .connect(address, COORDINATOR_HOST)
            .map_err(|error| failed(error.to_string()))?;
        let connection = connecting.await.map_err(|error| failed(explain(error)))?;
        let is_coordinator = |peer: &Peer| *peer == Peer::Coordinator;
        let shown = verify_member(&connection, self.cluster.as_ref(), is_coordinator)?;
        let mut stream = connection
            .accept_uni()
            .await
            .map_err(|error| failed(explain(error)))?;
        match stream.read_to_end(ADMITTED.len()).await {
            Ok(said) if said == ADMITTED => Ok(Connection::new(connection, shown)),
            Ok(_) => Err(failed("it speaks another protocol".to_owned())),
            Err(ReadToEndError::TooLong) => Err(failed("it speaks another protocol".to_owned())),
            Err(ReadToEndError::Read(error)) => {
                Err(failed(TransportError::reading(error).to_string()))
            }
        }
    }

    /// Closes every link dialled from here.
    pub fn close(&self) {
        self.endpoint.close(CLOSED, b"the agent shuts down");
    }

    /// Waits until every peer was told of the close, after [`Self::close`].
    pub async fn wait_idle(&self) {
        self.endpoint.wait_idle().await;
    }
}

fn wrong_identity(identity: &Identity, end: &'static str, wanted: &'static str) -> TransportError {
    TransportError::WrongIdentity {
        cert: identity.cert.clone(),
        peer: identity.peer().clone(),
        end,
        wanted,
    }
}

pub(crate) async fn resolve(address: &str) -> Result<Vec<SocketAddr>, TransportError> {
    let found = tokio::net::lookup_host(address)
        .await
        .map_err(|source| unresolved(address, source))?;
    Ok(found.take(settings::MAX_ADDRESSES).collect())
}

pub(crate) fn unresolved(address: &str, source: io::Error) -> TransportError {
    TransportError::Resolve {
        address: address.to_owned(),
        source,
    }
}

/// Identity in the verified certificate. Closes the connection if `expected` rejects the peer, or if it belongs to
/// another cluster under the same authority.
fn verify_member(
    connection: &quinn::Connection,
    ours: Option<&ClusterId>,
    expected: impl Fn(&Peer) -> bool,
) -> Result<VerifiedCertificate, TransportError> {
    let shown = chain_of(connection).and_then(|chain| {
        let leaf = chain.first().ok_or(CertificateError::Missing)?;
        let member = peer_identity_of(leaf)?;
        Ok(VerifiedCertificate { member, chain })
    });
    let checked = match shown {
        Ok(shown) if !expected(&shown.member.peer) => CertificateError::WrongEnd {
            peer: shown.member.peer,
        },
        Ok(shown) => match (shown.member.cluster.as_ref(), ours) {
            (Some(theirs), Some(ours)) if theirs != ours => CertificateError::OtherCluster {
                theirs: theirs.clone(),
                ours: ours.clone(),
            },
            (Some(_) | None, _) => return Ok(shown),
        },
        Err(error) => error,
    };
    connection.close(REFUSED, checked.to_string().as_bytes());
    Err(TransportError::Certificate {
        address: canonical(connection.remote_address()),
        source: checked,
    })
}

fn chain_of(
    connection: &quinn::Connection,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let identity = connection.peer_identity();
    let chain = identity.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    chain.map(|chain| *chain).ok_or(CertificateError::Missing)
}

/// Converts IPv4-mapped addresses to IPv4.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

pub(crate) fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    // The kernel may grant less, which is slower but correct.
    let wanted = settings::SOCKET_BUFFER_BYTES;
    let raised = socket
        .set_recv_buffer_size(wanted)
        .and_then(|()| socket.set_send_buffer_size(wanted));
    if let Err(error) = raised {
        debug!(%error, "the UDP buffers stay as they are");
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

pub(crate) fn endpoint(
    socket: UdpSocket,
    config: EndpointConfig,
    server: Option<ServerConfig>,
) -> io::Result<Endpoint> {
    let runtime = quinn::default_runtime()
        .ok_or_else(|| io::Error::other("there is no tokio runtime here"))?;
    Endpoint::new(config, server, socket, runtime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Authority;
    use crate::identity::TlsFiles;

    fn node() -> Identity {
        let dir = tempfile::tempdir().unwrap();
        let [ca, cert, key] = ["ca", "cert", "key"].map(|name| dir.path().join(name));
        let authority = Authority::create("c1").unwrap();
        authority.write(&ca, &key).unwrap();
        let issued = authority.issue_node("gpu-7").unwrap();
        issued.write(&cert, &key).unwrap();
        Identity::load(&TlsFiles { ca, cert, key }).unwrap()
    }

    #[tokio::test]
    async fn nobody_there_is_said_so_within_the_limit() {
        let dialer = Dialer::new(&node()).unwrap();
        // A socket that is bound but never answers; an unbound port could be taken by another test.
        let deaf = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = deaf.local_addr().unwrap().to_string();
        let limit = Duration::from_millis(50);
        let error = dialer.dial_within(&address, limit).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{address} did not answer within 0.05s: is a coordinator listening there, on UDP?"
            )
        );
    }

    #[test]
    fn outside_of_a_runtime_there_is_an_error_and_no_panic() {
        let error = Dialer::new(&node()).unwrap_err();
        assert!(matches!(error, TransportError::Socket(_)), "{error}");
    }

    #[test]
    fn an_ipv4_peer_of_a_socket_for_both_is_shown_as_one_of_ipv4() {
        let mapped: SocketAddr = "[::ffff:10.0.0.7]:80".parse().unwrap();
        assert_eq!(canonical(mapped).to_string(), "10.0.0.7:80");
    }
}
