//! Shared state of all calls of the API: the engine, the log, and limits of callers.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

use super::auth::credentials::{Credentials, RefusalLimit};
use super::call_metrics::CallMetrics;
use super::followers::Followers;
use super::limits::RateLimits;
use super::oidc::{KeysError, Oidc};
use super::remedy_searches::RemedySearchQueue;
use crate::config::{ApiToken, OidcConfig};
use crate::disk_space::DiskSpace;
use crate::engine::EngineHandle;
use crate::inputs::InputStore;
use crate::issuance::CertificateIssuer;
use crate::session::Nodes;
use crate::store::StoreReader;

/// An OIDC issuer whose tokens are accepted.
#[derive(Debug)]
pub struct TrustedIssuer(Oidc);

impl TrustedIssuer {
    /// Makes the issuer of a config, and reads its keys.
    ///
    /// # Errors
    /// If the keys cannot be read.
    pub fn new(config: OidcConfig) -> Result<Self, KeysError> {
        Oidc::new(config).map(Self)
    }
}

/// The parts that are open to callers without credentials.
#[derive(Clone, Debug, Default)]
pub struct PublicAccess {
    /// Host names by which the API may be called without TLS, besides `localhost` and addresses; protects against DNS
    /// rebinding.
    pub names: Vec<String>,
    /// Whether `/metrics` requires a token of a caller who may see the cluster.
    pub metrics_need_token: bool,
}

/// Shared state of all calls. Clones share it.
#[derive(Clone, Debug)]
pub struct Api(pub(super) Arc<ApiShared>);

#[derive(Debug)]
pub(super) struct ApiShared {
    pub(super) engine: EngineHandle,
    pub(super) log: StoreReader,
    pub(super) disk_space: DiskSpace,
    pub(super) nodes: Nodes,
    pub(super) inputs: InputStore,
    pub(super) issuance: CertificateIssuer,
    pub(super) credentials: Credentials,
    pub(super) open: PublicAccess,
    pub(super) followers: Followers,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) calls: CallMetrics,
    pub(super) refusals: RefusalLimit,
    pub(super) limits: RateLimits,
    pub(super) remedy_searches: RemedySearchQueue,
}

impl Api {
    /// Makes the API of its parts. `stop` turns true when endless streams must end.
    pub fn new(
        engine: EngineHandle,
        log: StoreReader,
        (nodes, inputs): (Nodes, InputStore),
        issuance: CertificateIssuer,
        token: Option<&ApiToken>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let open = PublicAccess::default();
        let shared = (nodes, inputs);
        Self::with_issuer(engine, log, shared, issuance, (token, None), open, stop)
    }

    /// Makes the API as [`Api::new`] does, accepting tokens of an issuer too.
    pub fn with_issuer(
        engine: EngineHandle,
        log: StoreReader,
        (nodes, inputs): (Nodes, InputStore),
        issuance: CertificateIssuer,
        (token, issuer): (Option<&ApiToken>, Option<TrustedIssuer>),
        open: PublicAccess,
        stop: watch::Receiver<bool>,
    ) -> Self {
        // A store's file is always in a directory.
        let dir = log.file().parent().unwrap_or(Path::new("/"));
        let disk_space = DiskSpace::of(dir);
        Self(Arc::new(ApiShared {
            engine,
            log,
            disk_space,
            nodes,
            inputs,
            issuance,
            credentials: Credentials::new(token, issuer.map(|it| it.0)),
            open,
            followers: Followers::default(),
            stop,
            calls: CallMetrics::default(),
            refusals: RefusalLimit::default(),
            limits: RateLimits::default(),
            remedy_searches: RemedySearchQueue::default(),
        }))
    }

    /// Replaces the coordinator's own token.
    pub fn renew_token(&self, token: &ApiToken) {
        self.0.credentials.renew(token);
    }

    pub(super) fn engine(&self) -> &EngineHandle {
        &self.0.engine
    }

    pub(super) fn disk_space(&self) -> &DiskSpace {
        &self.0.disk_space
    }

    pub(super) fn calls(&self) -> &CallMetrics {
        &self.0.calls
    }

    /// Resolves when the coordinator stops.
    pub(super) async fn stopped(&self) {
        let mut stop = self.0.stop.clone();
        // A dropped sender stops it too.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}
