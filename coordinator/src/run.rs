//! Starts the coordinator from a checked config, and stops it.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use coordinator_core::State;
use sluice_common::epoch::MAX_EPOCH;
use sluice_common::id::ClusterId;
use sluice_transport::{Identity, Listener, TlsFiles, TransportError};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::backup::control::ControlSocket;
use crate::cert_renewal;
use crate::clock::Clock;
use crate::config::{ApiToken, Config, ConfigError, TlsPaths, own_token};
use crate::engine::{self, EngineError, EngineHandle, EngineThread};
use crate::http::{self, Api, PublicAccess, TrustedIssuer};
use crate::identity::{self, http::HttpCertificate};
use crate::inputs::{self, InputError, InputStore};
use crate::issuance::{CertificateIssuer, IssuanceConfig, Trust, TrustError};
use crate::notify;
use crate::reload::{ConfigSource, ReloadTargets};
use crate::session::{self, Nodes};
use crate::store::StoreError;

/// Time that callers may take to read their answers when the coordinator stops.
const FAREWELL_LIMIT: Duration = Duration::from_secs(3);

/// Time to wait for agents to notice the end of their links.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// Why the coordinator did not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store's epoch leaves no room for another start.
    #[error(
        "{} is at epoch {epoch}, which no coordinator can have reached by its starts: a host claimed it, and an earlier release accepted it. With the coordinator stopped, run `sluice-coordinator repair-epoch` on the data directory: it \
         makes a backup there first",
        place.display()
    )]
    Epoch {
        /// Data directory or backup.
        place: PathBuf,
        epoch: u64,
    },
    /// The certificates below the data directory cannot be used.
    #[error(transparent)]
    Identity(#[from] identity::IdentityError),
    /// The configured certificates cannot be used.
    #[error(transparent)]
    Certificates(#[from] sluice_transport::IdentityError),
    /// The issuing authority cannot be used.
    #[error(transparent)]
    Authority(#[from] TrustError),
    /// Another program listens on the address.
    #[error(
        "{address} is in use: stop what listens there, or choose another address with --{flag}"
    )]
    InUse {
        address: SocketAddr,
        /// Flag that sets the address.
        flag: &'static str,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: choose another address with --{flag}")]
    Bind {
        address: SocketAddr,
        /// Flag that sets the address.
        flag: &'static str,
        source: io::Error,
    },
    /// The coordinator's own token cannot be made.
    #[error(transparent)]
    Token(#[from] ConfigError),
    /// The keys of the OIDC issuer cannot be read.
    #[error(transparent)]
    Keys(#[from] http::KeysError),
    /// The endpoint for agents could not be opened.
    #[error(transparent)]
    Transport(TransportError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The stored inputs cannot be used.
    #[error(transparent)]
    Inputs(#[from] InputError),
    /// Signals cannot be listened for, or the API's listener failed.
    #[error("cannot {action}")]
    Io {
        action: &'static str,
        source: io::Error,
    },
}

/// Runs until SIGTERM or SIGINT, or with `exit_with_stdin` until standard input ends. SIGHUP reloads the config.
/// `ready` is called once with the addresses of the API and of the link when the coordinator takes work.
///
/// # Errors
/// If it cannot start, or its store fails.
pub async fn run(
    config: Config,
    reload: ConfigSource,
    exit_with_stdin: bool,
    ready: impl FnOnce(SocketAddr, SocketAddr),
) -> Result<(), RunError> {
    let signals = StopSignals::listen(exit_with_stdin)?;
    let hangup = hear(SignalKind::hangup())?;
    let mut running = RunningCoordinator::start(config.clone()).await?;
    ready(running.http_addr, running.listener.local_addr());
    tracing::info!(http = %running.http_addr, quic = %running.listener.local_addr(), "ready");
    tracing::info!(key = %running.engine.seal().lease_key(), "leases are signed with this key");
    notify::notify_ready();
    let outcome = tokio::select! {
        ended = running.thread.ended() => ended.map_err(RunError::from),
        why = signals.wait() => {
            tracing::info!("stopping: {why}");
            notify::notify_stopping();
            return running.stop().await;
        }
        () = reload.listen(hangup, config, &running.parts) => running.thread.ended().await.map_err(RunError::from),
        never = notify::notify_alive(running.engine.clone()) => match never {},
    };
    running.listener.close();
    outcome
}

/// A coordinator that takes work.
pub(crate) struct RunningCoordinator {
    pub(crate) http_addr: SocketAddr,
    pub(crate) listener: Arc<Listener>,
    pub(crate) engine: EngineHandle,
    thread: EngineThread,
    http: JoinHandle<()>,
    sessions: JoinHandle<()>,
    keeper: JoinHandle<Infallible>,
    /// Removes inputs that no step needs.
    cleaner: JoinHandle<()>,
    stop: watch::Sender<bool>,
    parts: ReloadTargets,
    /// Socket for backups.
    control: Option<ControlSocket>,
}

impl RunningCoordinator {
    pub(crate) async fn start(config: Config) -> Result<Self, RunError> {
        let (store, recovered) = identity::open_store(&config.data_dir, config.retention)?;
        check_epoch(&recovered.state, &config.data_dir)?;
        let files = tls_files(&config, &recovered.cluster)?;
        let ttl = Duration::from_millis(config.cert_ttl.millis());
        identity::renew_own(&files, &recovered.cluster, ttl)?;
        let identity = Identity::load(&files)?;
        // Both are bound before the engine starts, because an address in use must not cost an epoch.
        let listener = Arc::new(bind_quic(config.quic, &identity)?);
        let (http_listener, http_addr) = bind_http(config.http).await?;
        let certificate = http_certificate(&config, &files, http_addr, ttl)?;
        let tls = certificate.as_ref().map(HttpCertificate::shown);
        let issuer = config.oidc.clone().map(TrustedIssuer::new).transpose()?;
        tracing::info!(cluster = %recovered.cluster, seq = recovered.last_seq, "store opened");
        let token = callers_token(&config)?;
        let log = store.reader();
        let control = ControlSocket::listen(&config.data_dir, store.reader());
        let control = control.inspect_err(|error| {
            tracing::warn!("no socket for backups in the data directory: {error}; `backup` works only while the coordinator is stopped");
        });
        let cluster = recovered.cluster.clone();
        let clock = Clock::start_over(&config.data_dir, recovered.last_at);
        let (engine, thread) = engine::start(config.settings, store, recovered, clock)?;
        let own_address = own_address(listener.local_addr());
        let addresses = config.advertised(&own_address);
        let issuance = issuance(files, cluster, ttl, addresses, &identity)?;
        let nodes = Nodes::default();
        let inputs = InputStore::open(&config.data_dir)?;
        let cleaner = tokio::spawn(inputs::keep_clean(inputs.clone(), engine.clone()));
        let (stop, stopping) = watch::channel(false);
        let api = Api::with_issuer(
            engine.clone(),
            log,
            (nodes.clone(), inputs.clone()),
            issuance.clone(),
            (token.as_ref(), issuer),
            PublicAccess {
                names: config.http_names,
                metrics_need_token: config.metrics_need_token,
            },
            stopping,
        );
        let parts = ReloadTargets {
            engine: engine.clone(),
            issuance: issuance.clone(),
            api: api.clone(),
            own_address,
        };
        let http = tokio::spawn(http::serve(http_listener, tls, api));
        let door = Arc::clone(&listener);
        let keeper = cert_renewal::keep(
            Arc::clone(&listener),
            certificate,
            issuance.clone(),
            engine.clone(),
        );
        let keeper = tokio::spawn(keeper);
        let for_sessions = engine.clone();
        let sessions = tokio::spawn(async move {
            session::serve(&door, for_sessions, nodes, issuance, inputs).await;
        });
        Ok(Self {
            http_addr,
            listener,
            engine,
            thread,
            http,
            sessions,
            keeper,
            cleaner,
            stop,
            parts,
            control: control.ok(),
        })
    }

    /// Returns the API.
    #[cfg(test)]
    pub(crate) fn api(&self) -> &Api {
        &self.parts.api
    }

    /// Finishes calls under way, then ends the engine, then the links, so that the end of a link is not taken for the
    /// loss of a node.
    pub(crate) async fn stop(mut self) -> Result<(), RunError> {
        self.stop.send_replace(true);
        drop(self.control.take());
        // Readers of the store must be gone when it is closed.
        drop(self.parts);
        let _callers_who_do_not_read = timeout(FAREWELL_LIMIT, &mut self.http).await;
        self.keeper.abort();
        self.cleaner.abort();
        self.engine.stop().await;
        let outcome = self.thread.ended().await;
        self.listener.close();
        let _agents_who_do_not_answer = timeout(CLOSE_LIMIT, async {
            self.listener.wait_idle().await;
            let _ = self.sessions.await;
        })
        .await;
        Ok(outcome?)
    }
}

/// Checks that a coordinator can start on a store with this state; `place` is its directory or file.
///
/// # Errors
/// If its epoch is the highest possible.
pub fn check_epoch(state: &State, place: &Path) -> Result<(), RunError> {
    let epoch = state.epoch().map_or(0, |epoch| epoch.counter);
    if epoch < MAX_EPOCH {
        return Ok(());
    }
    let place = place.to_owned();
    Err(RunError::Epoch { place, epoch })
}

/// Builds the issuer of hosts' certificates.
fn issuance(
    files: TlsFiles,
    cluster: ClusterId,
    ttl: Duration,
    addresses: Vec<String>,
    identity: &Identity,
) -> Result<CertificateIssuer, RunError> {
    let terms = IssuanceConfig {
        authority_key: identity::key_of(&files),
        files,
        cluster,
        ttl,
        addresses,
    };
    let trust = Trust::read(&terms, identity)?;
    if !trust.can_issue() {
        tracing::warn!(
            "no key of the cluster's authority is here: hosts cannot join by token, and no certificate is renewed"
        );
    }
    Ok(CertificateIssuer::new(terms, trust))
}

/// Returns the token that callers must show, or none if the config says so, which is logged at each start.
fn callers_token(config: &Config) -> Result<Option<ApiToken>, RunError> {
    if let Some(token) = &config.api_token {
        return Ok(Some(token.clone()));
    }
    if config.open_to_all_local_users {
        tracing::warn!(
            "every user of this machine is an admin of this cluster: open_to_all_local_users is set, so calls need no token"
        );
        return Ok(None);
    }
    let (token, path) = own_token(&config.data_dir)?;
    tracing::info!(
        file = %path.display(),
        "no api_token_file is configured: callers must show the token in this file, as after `sluice login ADDRESS --token-file FILE`"
    );
    Ok(Some(token))
}

fn tls_files(config: &Config, cluster: &ClusterId) -> Result<TlsFiles, RunError> {
    match &config.tls {
        Some(TlsPaths { ca, cert, key }) => Ok(TlsFiles {
            ca: ca.clone(),
            cert: cert.clone(),
            key: key.clone(),
        }),
        None => Ok(identity::ensure(&config.data_dir, cluster)?),
    }
}

fn http_certificate(
    config: &Config,
    files: &TlsFiles,
    address: SocketAddr,
    ttl: Duration,
) -> Result<Option<HttpCertificate>, RunError> {
    let made = config
        .http_tls
        .as_ref()
        .map(|tls| HttpCertificate::new(tls, files, address.ip(), ttl));
    Ok(made.transpose()?)
}

/// Returns the address that hosts dial if the config names none: this listener's, with the host's name if it listens on
/// all addresses.
fn own_address(local: SocketAddr) -> String {
    let port = local.port();
    let name = nix::unistd::gethostname().ok();
    let name = name.map(|name| name.to_string_lossy().into_owned());
    match name.filter(|_| local.ip().is_unspecified()) {
        Some(name) => format!("{name}:{port}"),
        None => local.to_string(),
    }
}

fn bind_quic(address: SocketAddr, identity: &Identity) -> Result<Listener, RunError> {
    Listener::bind(address, identity).map_err(|error| match error {
        TransportError::Bind { address, source } => bind_error(address, "quic", source),
        other => RunError::Transport(other),
    })
}

async fn bind_http(address: SocketAddr) -> Result<(TcpListener, SocketAddr), RunError> {
    let failed = |source| bind_error(address, "http", source);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
}

fn bind_error(address: SocketAddr, flag: &'static str, source: io::Error) -> RunError {
    if source.kind() == io::ErrorKind::AddrInUse {
        return RunError::InUse { address, flag };
    }
    RunError::Bind {
        address,
        flag,
        source,
    }
}

/// Signals that stop the coordinator. Registered at the beginning, so that a start can be stopped as well.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    stdin: Option<oneshot::Receiver<()>>,
}

impl StopSignals {
    fn listen(exit_with_stdin: bool) -> Result<Self, RunError> {
        Ok(Self {
            terminate: hear(SignalKind::terminate())?,
            interrupt: hear(SignalKind::interrupt())?,
            stdin: exit_with_stdin.then(stdin_end),
        })
    }

    async fn wait(mut self) -> &'static str {
        let stdin = async {
            match self.stdin {
                Some(end) => end.await.unwrap_or(()),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = stdin => "standard input was closed: the program that started this has ended",
        }
    }
}

fn hear(kind: SignalKind) -> Result<Signal, RunError> {
    signal(kind).map_err(|source| RunError::Io {
        action: "listen for signals",
        source,
    })
}

/// Resolves at the end of standard input. The thread blocks in a read that cannot be interrupted, and ends with the
/// process.
fn stdin_end() -> oneshot::Receiver<()> {
    let (tell, end) = oneshot::channel();
    thread::spawn(move || {
        let mut buffer = [0; 256];
        let mut stdin = io::stdin().lock();
        while stdin.read(&mut buffer).is_ok_and(|count| count > 0) {}
        let _ = tell.send(());
    });
    end
}

/// Prints the line that tells the parent process that work is taken, and at which addresses.
///
/// # Errors
/// If standard output is closed.
pub fn print_ready(http: SocketAddr, quic: SocketAddr) -> io::Result<()> {
    let addresses = serde_json::json!({ "http": http.to_string(), "quic": quic.to_string() });
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "ready {addresses}")?;
    stdout.flush()
}
