//! Connections of the API: accepts them, makes them TLS if configured, bounds their number, cuts slow ones, and passes
//! calls to the router.
//!
//! ```text
//! accept -> a permit, for which an older connection may be cut -> TLS handshake -> HTTP/1.1, or HTTP/2 if TLS agreed on it -> router
//! ```
//! Slow handshakes, first calls, request heads (which includes idle connections) and readers are cut. `body.rs` bounds
//! bodies.

mod certificate;
mod permits;
mod stall_guard;
mod unread_body;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sluice_transport::HttpsServer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use super::Api;
pub(super) use certificate::UserCertificate;
pub(super) use permits::ConnectionPermit;
use permits::{ConnectionLimits, ConnectionPermits};
use stall_guard::StallGuard;
pub(super) use stall_guard::StallPolicy;

/// Limits of connections: each costs some 10 kB, one with a half-sent head 40 kB, and a descriptor, of which a process
/// has 20,000 at worst. An honest caller authenticates within a few round trips, so few wait at a time.
const LIMITS: ConnectionLimits = ConnectionLimits {
    waiting: 1024,
    known: 8192,
    known_per_address: 1024,
};
/// Longest time to the first call on a connection, including the handshake.
const FIRST_CALL_LIMIT: Duration = Duration::from_secs(15);
/// Longest TLS handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Longest time for the head of a request, and so for an idle connection: longer than clients keep theirs.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// Longest time in which a reader takes nothing.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// Most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 32 * 1024;
const MAX_HEADERS: usize = 64;
/// Most calls at one time on an HTTP/2 connection.
const MAX_STREAMS: u32 = 64;
/// Interval of pings on an HTTP/2 connection, and longest time to the answer.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Pause after a failure to accept, which means that the machine is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The other end of a connection; a part of every request.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// The user's certificate that it has shown.
    pub(super) user: Option<UserCertificate>,
    pub(super) stall_policy: StallPolicy,
    /// Whether the connection is TLS.
    pub(super) is_secret: bool,
    /// The permit of the connection.
    pub(super) permit: Arc<ConnectionPermit>,
    /// Notified of each call.
    called: Arc<Notify>,
}

impl Peer {
    fn new(address: SocketAddr, permit: ConnectionPermit) -> Self {
        Self {
            address,
            user: None,
            stall_policy: StallPolicy::default(),
            is_secret: false,
            permit: Arc::new(permit),
            called: Arc::default(),
        }
    }
}

/// The current TLS configuration; plain HTTP if `None`.
pub type Tls = Option<watch::Receiver<Arc<HttpsServer>>>;

/// Serves `listener` until `api` is stopped; then finishes the calls that are under way.
pub(super) async fn serve(listener: TcpListener, tls: Tls, api: Api, router: Router) {
    let acceptor = Acceptor {
        router,
        tls,
        api: api.clone(),
    };
    let permits = ConnectionPermits::new(LIMITS);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let peer = Peer::new(address, permits.take(address.ip()));
                    connections.spawn(acceptor.clone().hold(stream, peer));
                }
                Err(error) => {
                    tracing::warn!("cannot accept a call: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_ended) = connections.join_next() => {}
            () = api.stopped() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

#[derive(Clone)]
struct Acceptor {
    router: Router,
    tls: Tls,
    api: Api,
}

impl Acceptor {
    /// Serves a connection until it ends, is too slow with its first call, or loses its permit.
    async fn hold(self, stream: TcpStream, peer: Peer) {
        let (permit, called, address) = (peer.permit.clone(), peer.called.clone(), peer.address);
        let too_late = async {
            if timeout(FIRST_CALL_LIMIT, called.notified()).await.is_ok() {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = self.admit(stream, peer) => {}
            () = permit.revoked() => tracing::debug!(%address, "connection closed: too many connections wait without a credential"),
            () = too_late => tracing::debug!(%address, "connection closed: no call came in time"),
        }
    }

    async fn admit(self, stream: TcpStream, mut peer: Peer) {
        // An answer is one small write, which Nagle's algorithm would only delay.
        let _slower_without = stream.set_nodelay(true);
        let steady = StallGuard::new(stream, STALL_LIMIT, peer.stall_policy.clone());
        let address = peer.address;
        let Some(tls) = &self.tls else {
            return self.http1(steady, peer).await;
        };
        peer.is_secret = true;
        let server = Arc::clone(&tls.borrow());
        let acceptor = TlsAcceptor::from(Arc::clone(&server.config));
        let secret = match timeout(HANDSHAKE_LIMIT, acceptor.accept(steady)).await {
            Ok(Ok(secret)) => secret,
            Ok(Err(error)) => {
                tracing::debug!(%address, "no handshake: {error}");
                return;
            }
            Err(_too_slow) => return,
        };
        let (_, session) = secret.get_ref();
        let chain = session.peer_certificates();
        peer.user = chain.and_then(|it| UserCertificate::new(it, server, tls.clone()));
        let second = session.alpn_protocol() == Some(b"h2");
        match second {
            true => self.http2(secret, peer).await,
            false => self.http1(secret, peer).await,
        }
    }

    async fn http1(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer) {
        let router = self.router.clone();
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_LIMIT)
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| {
                    let (request, unread) = unread_body::lend(request);
                    let answer = call(&router, &peer, request.map(Body::new));
                    async move {
                        let mut answer = answer.await?;
                        unread.settle(&mut answer).await;
                        Ok::<_, Infallible>(answer)
                    }
                }),
            )
            .with_upgrades();
        let mut connection = pin!(connection);
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = self.api.stopped() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        ended(outcome);
    }

    async fn http2(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer) {
        let router = self.router.clone();
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_INTERVAL)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD_BYTES as u32)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request: hyper::Request<Incoming>| {
                    call(&router, &peer, request.map(Body::new))
                }),
            );
        let mut connection = pin!(connection);
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = self.api.stopped() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        ended(outcome);
    }
}

fn ended(outcome: Result<(), hyper::Error>) {
    if let Err(error) = outcome {
        tracing::debug!("a call's connection has ended: {error}");
    }
}

fn call(
    router: &Router,
    peer: &Peer,
    mut request: Request,
) -> impl Future<Output = Result<axum::response::Response, Infallible>> + use<> {
    peer.called.notify_one();
    request.extensions_mut().insert(peer.clone());
    // A router is always ready.
    Service::call(&mut router.clone(), request)
}
