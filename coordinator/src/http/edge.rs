//! The edge of the API: connections are let in, made secret where that is configured, bounded in number, and cut where
//! they are slow; what comes by them goes to the router.
//!
//! ```text
//! accept -> a seat, for which an older one may have to go -> TLS handshake -> HTTP/1.1, or HTTP/2 where TLS agreed on it -> router
//! ```
//!
//! What is slow is cut: a handshake, the first call, the head of a request (which is also how long a connection may be idle), and a
//! reader that takes nothing. Bodies are `body.rs`'s.

mod certificate;
mod seats;
mod steady;
mod unread;

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
pub(super) use seats::Seat;
use seats::{Room, Seats};
pub(super) use steady::Patience;
use steady::Steady;

/// Connections: each costs some 10 kB, one with a half-sent head 40 kB, and a descriptor, of which a process has 20,000 at
/// worst. An honest caller shows who he is within a few round trips, so that few wait at a time.
const ROOM: Room = Room {
    waiting: 1024,
    known: 8192,
    known_of_each: 1024,
};
/// How long the first call on a connection may take, its handshake included.
const FIRST_CALL_LIMIT: Duration = Duration::from_secs(15);
/// How long a handshake of TLS may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and how long a connection may be idle: longer than clients keep theirs.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// How long a reader may take nothing at all.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// The head of a request.
const MAX_HEAD_BYTES: usize = 32 * 1024;
const MAX_HEADERS: usize = 64;
/// Calls at once on one connection of HTTP/2.
const MAX_STREAMS: u32 = 64;
/// How often the other end of an HTTP/2 connection is asked whether it is there, and how long it may take to answer.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// After a failure to accept, which is one of the machine's: descriptors are used up.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end of a connection; a part of every request.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// The user's certificate that it has shown.
    pub(super) user: Option<UserCertificate>,
    pub(super) patience: Patience,
    /// Whether the connection is TLS.
    pub(super) is_secret: bool,
    /// The connection's place among others.
    pub(super) seat: Arc<Seat>,
    /// Told of each call.
    called: Arc<Notify>,
}

impl Peer {
    fn new(address: SocketAddr, seat: Seat) -> Self {
        Self {
            address,
            user: None,
            patience: Patience::default(),
            is_secret: false,
            seat: Arc::new(seat),
            called: Arc::default(),
        }
    }
}

/// How connections are made secret, as it is at the moment; in the clear where `None`.
pub type Tls = Option<watch::Receiver<Arc<HttpsServer>>>;

/// Answers on `listener` until `api`'s stop; then finishes what is under way.
pub(super) async fn serve(listener: TcpListener, tls: Tls, api: Api, router: Router) {
    let door = Door {
        router,
        tls,
        api: api.clone(),
    };
    let seats = Seats::new(ROOM);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let peer = Peer::new(address, seats.take(address.ip()));
                    connections.spawn(door.clone().hold(stream, peer));
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
struct Door {
    router: Router,
    tls: Tls,
    api: Api,
}

impl Door {
    /// Serves a connection until it ends, is too slow with its first call, or loses its place.
    async fn hold(self, stream: TcpStream, peer: Peer) {
        let (seat, called, address) = (peer.seat.clone(), peer.called.clone(), peer.address);
        let too_late = async {
            if timeout(FIRST_CALL_LIMIT, called.notified()).await.is_ok() {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = self.admit(stream, peer) => {}
            () = seat.is_taken_away() => tracing::debug!(%address, "more connections wait than may: this one is closed"),
            () = too_late => tracing::debug!(%address, "no call within the time for the first one"),
        }
    }

    async fn admit(self, stream: TcpStream, mut peer: Peer) {
        // An answer is one small write: waiting to fill a packet would only make it late.
        let _slower_without = stream.set_nodelay(true);
        let steady = Steady::new(stream, STALL_LIMIT, peer.patience.clone());
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
                    let (request, unread) = unread::lend(request);
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
