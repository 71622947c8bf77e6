//! What the calls of the API work on: the engine, the log, and what the API itself keeps of callers.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

use super::auth::credentials::{Credentials, Refusals};
use super::calls::Calls;
use super::events::tip::Tip;
use super::followers::Followers;
use super::limits::Limits;
use super::oidc::{KeysError, Oidc};
use crate::config::{ApiToken, OidcConfig};
use crate::engine::EngineHandle;
use crate::issuance::Issuance;
use crate::room::Room;
use crate::session::Nodes;
use crate::store::StoreReader;

/// An issuer whose tokens are taken.
#[derive(Debug)]
pub struct Issuer(Oidc);

impl Issuer {
    /// By the config; its keys are read now.
    ///
    /// # Errors
    /// Where there are none.
    pub fn new(config: OidcConfig) -> Result<Self, KeysError> {
        Oidc::new(config).map(Self)
    }
}

/// What is let through before anybody is asked who he is.
#[derive(Clone, Debug, Default)]
pub struct Open {
    /// Names by which the API may be called in the clear, beside `localhost` and addresses: a page of another site whose
    /// name was made to point here is none of them.
    pub names: Vec<String>,
    /// Whether `/metrics` is for callers alone who may see the cluster.
    pub metrics_need_token: bool,
}

/// What the calls work on. Clones are the same.
#[derive(Clone, Debug)]
pub struct Api(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) engine: EngineHandle,
    pub(super) log: StoreReader,
    pub(super) room: Room,
    pub(super) nodes: Nodes,
    pub(super) issuance: Issuance,
    pub(super) credentials: Credentials,
    pub(super) open: Open,
    pub(super) followers: Followers,
    pub(super) tip: Tip,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) calls: Calls,
    pub(super) refusals: Refusals,
    pub(super) limits: Limits,
}

impl Api {
    /// The API over its parts. `stop` turns true when streams that would never end must end.
    pub fn new(
        engine: EngineHandle,
        log: StoreReader,
        nodes: Nodes,
        issuance: Issuance,
        token: Option<&ApiToken>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let open = Open::default();
        Self::with_issuer(engine, log, nodes, issuance, (token, None), open, stop)
    }

    /// The same, which takes tokens of an issuer too.
    pub fn with_issuer(
        engine: EngineHandle,
        log: StoreReader,
        nodes: Nodes,
        issuance: Issuance,
        (token, issuer): (Option<&ApiToken>, Option<Issuer>),
        open: Open,
        stop: watch::Receiver<bool>,
    ) -> Self {
        // A store's file lies in some directory.
        let dir = log.file().parent().unwrap_or(Path::new("/"));
        let room = Room::of(dir);
        Self(Arc::new(Shared {
            engine,
            log,
            room,
            nodes,
            issuance,
            credentials: Credentials::new(token, issuer.map(|it| it.0)),
            open,
            followers: Followers::default(),
            tip: Tip::default(),
            stop,
            calls: Calls::default(),
            refusals: Refusals::default(),
            limits: Limits::default(),
        }))
    }

    /// Takes this as the coordinator's own token from now on, and not the one before.
    pub fn renew_token(&self, token: &ApiToken) {
        self.0.credentials.renew(token);
    }

    pub(super) fn engine(&self) -> &EngineHandle {
        &self.0.engine
    }

    pub(super) fn room(&self) -> &Room {
        &self.0.room
    }

    pub(super) fn calls(&self) -> &Calls {
        &self.0.calls
    }

    /// Comes back when the coordinator stops.
    pub(super) async fn stopped(&self) {
        let mut stop = self.0.stop.clone();
        // A sender that is gone stops nothing less.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}
