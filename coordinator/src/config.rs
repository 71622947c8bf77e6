//! Reads and checks `coordinator.toml`.
//!
//! Flags override the environment (`SLUICE_*`), which overrides the file. Three types for three stages: [`RawConfig`]
//! is the file, [`Overrides`] the flags and the environment, [`Config`] the checked result.

mod changes;
mod effective;
mod error;
mod exposure;
mod host;
mod http_tls;
mod malformed;
mod oidc;
mod token;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use coordinator_core::{Bounds, Settings};
use serde::Deserialize;
use sluice_common::amount::parse_memory;
use sluice_common::config::line_at;
use sluice_common::limit::{
    DEFAULT_HEARTBEAT, DEFAULT_LEASE, DEFAULT_LOST_AFTER, DEFAULT_STOP_LIMIT,
    DEFAULT_UNREACHABLE_AFTER, DRIFT_MARGIN, KEEPER_LIMIT,
};
use sluice_common::time::Span;
use sluice_log::{Filter, Format};
use sluice_transport::join_line::MAX_LINE_ADDRESSES;

use crate::store::DEFAULT_RETENTION;
pub use error::ConfigError;
use error::{invalid, span};
pub(crate) use host::is_host_and_port;
pub use http_tls::HttpTls;
use http_tls::RawHttpTls;
use malformed::explain;
use oidc::RawOidc;
pub use oidc::{KeySource, OidcConfig};
pub use token::ApiToken;
pub(crate) use token::own_token;
use token::read_token;

/// Default address for agents.
const DEFAULT_QUIC: &str = "127.0.0.1:7443";
/// Default address of the API.
const DEFAULT_HTTP: &str = "127.0.0.1:7070";
/// Default data directory: the state directory of the packaged unit.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/sluice/coordinator";
/// Default lifetime of a certificate. Renewal is at two thirds of it, so a host may be away for two days and come back.
const DEFAULT_CERT_TTL: Span = Span::from_secs(7 * 24 * 3600);
const MIN_CERT_TTL: Span = Span::from_secs(60);
const MAX_CERT_TTL: Span = Span::from_secs(10 * 365 * 24 * 3600);
/// The parsed, unchecked file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    quic: Option<String>,
    http: Option<String>,
    data_dir: Option<PathBuf>,
    lease: Option<String>,
    stop_limit: Option<String>,
    heartbeat: Option<String>,
    unreachable_after: Option<String>,
    lost_after: Option<String>,
    retention: Option<u64>,
    keep_finished: Option<usize>,
    keep_finished_bytes: Option<String>,
    max_queued_steps: Option<u64>,
    max_queued_bytes: Option<String>,
    tls: Option<RawTls>,
    http_tls: Option<RawHttpTls>,
    oidc: Option<RawOidc>,
    api_token_file: Option<PathBuf>,
    open_to_all_local_users: bool,
    http_names: Vec<String>,
    metrics_need_token: bool,
    node_cert_ttl: Option<String>,
    advertise: Vec<String>,
    log_format: Option<Format>,
    log_filter: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTls {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

/// Values of flags and environment variables.
#[derive(Args, Clone, Debug, Default)]
pub struct Overrides {
    /// Address for agents, such as 127.0.0.1:7443; port 0 picks one.
    #[arg(long, env = "SLUICE_QUIC", hide_env_values = true, value_name = "ADDR")]
    pub quic: Option<String>,
    /// Address for the HTTP API, such as 127.0.0.1:7070; port 0 picks one.
    #[arg(long, env = "SLUICE_HTTP", hide_env_values = true, value_name = "ADDR")]
    pub http: Option<String>,
    /// Directory of the store and, where none are configured, the certificates.
    #[arg(
        long,
        env = "SLUICE_DATA_DIR",
        hide_env_values = true,
        value_name = "DIR"
    )]
    pub data_dir: Option<PathBuf>,
    /// Time for which steps run on without an acknowledged heartbeat, such as 5m.
    #[arg(
        long,
        env = "SLUICE_LEASE",
        hide_env_values = true,
        value_name = "TIME"
    )]
    pub lease: Option<String>,
    /// Time that a host may take to stop a step whose lease has passed, such as 30s.
    #[arg(
        long,
        env = "SLUICE_STOP_LIMIT",
        hide_env_values = true,
        value_name = "TIME"
    )]
    pub stop_limit: Option<String>,
    /// Between two heartbeats of an agent, such as 3s.
    #[arg(
        long,
        env = "SLUICE_HEARTBEAT",
        hide_env_values = true,
        value_name = "TIME"
    )]
    pub heartbeat: Option<String>,
    /// Silence after which a node gets no new work, such as 15s.
    #[arg(
        long,
        env = "SLUICE_UNREACHABLE_AFTER",
        hide_env_values = true,
        value_name = "TIME"
    )]
    pub unreachable_after: Option<String>,
    /// Silence after which a node's steps are started elsewhere, such as 6m30s.
    #[arg(
        long,
        env = "SLUICE_LOST_AFTER",
        hide_env_values = true,
        value_name = "TIME"
    )]
    pub lost_after: Option<String>,
    /// Records kept for followers of events.
    #[arg(
        long,
        env = "SLUICE_RETENTION",
        hide_env_values = true,
        value_name = "N"
    )]
    pub retention: Option<u64>,
    /// Finished steps that are remembered.
    #[arg(
        long,
        env = "SLUICE_KEEP_FINISHED",
        hide_env_values = true,
        value_name = "N"
    )]
    pub keep_finished: Option<usize>,
    /// Let every user of this machine call the API as an admin, without a token.
    #[arg(long)]
    pub open_to_all_local_users: bool,
    /// File with the token that API calls must carry.
    #[arg(
        long,
        env = "SLUICE_API_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub api_token_file: Option<PathBuf>,
}

/// The checked config.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address for agents.
    pub quic: SocketAddr,
    /// Address of the API.
    pub http: SocketAddr,
    /// Directory of the store.
    pub data_dir: PathBuf,
    /// Settings of the core.
    pub settings: Settings,
    /// Number of records kept for followers of events.
    pub retention: u64,
    /// Paths of certificates if the config names them; otherwise the coordinator makes its own in the data directory.
    pub tls: Option<TlsPaths>,
    /// Token that API calls must carry if the config names one; otherwise the coordinator makes one in its data
    /// directory.
    pub api_token: Option<ApiToken>,
    /// Whether every user of this machine may call without a token.
    pub open_to_all_local_users: bool,
    /// Host names by which the API may be called without TLS, besides `localhost` and addresses.
    pub http_names: Vec<String>,
    /// Whether `/metrics` requires a token of a caller who may see the cluster.
    pub metrics_need_token: bool,
    /// TLS of the API; `None` is plain HTTP, which only loopback allows.
    pub http_tls: Option<HttpTls>,
    /// Issuer of accepted OIDC tokens.
    pub oidc: Option<OidcConfig>,
    /// Lifetime of the certificates of joined hosts and of the coordinator's own.
    pub cert_ttl: Span,
    /// Addresses (HOST:PORT) that hosts are told to dial; if empty, this host's name.
    pub advertise: Vec<String>,
    /// Filter of log lines.
    pub log_filter: Filter,
}

/// Paths of the coordinator's certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPaths {
    /// Certificate of the authority that signs agents' certificates.
    pub ca: PathBuf,
    /// The coordinator's own certificate.
    pub cert: PathBuf,
    /// Key of the coordinator's certificate.
    pub key: PathBuf,
}

impl RawConfig {
    /// Reads the file.
    ///
    /// # Errors
    /// If the file cannot be read, is not TOML, or has an unknown key or a value of the wrong type.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let (line, quoted) = line_at(text, error.span().map(|span| span.start));
            ConfigError::Malformed {
                path: path.to_owned(),
                line,
                message: explain(error.message(), quoted),
            }
        })
    }

    /// Whether callers must show a credential.
    #[cfg(test)]
    pub(crate) fn asks_for_tokens(&self) -> bool {
        self.api_token_file.is_some() || self.oidc.is_some()
    }

    /// Returns the log format that the file sets. It is needed before the checks, because those may log.
    pub fn log_format(&self) -> Option<Format> {
        self.log_format
    }

    /// Returns the log filter that the file sets.
    pub fn log_filter(&self) -> Option<&str> {
        self.log_filter.as_deref()
    }

    /// Returns the bounds of queued and finished steps; `finished` overrides the file.
    fn bounds(&self, finished: Option<usize>) -> Result<Bounds, ConfigError> {
        let usual = Bounds::DEFAULT;
        let finished = finished.or(self.keep_finished);
        let (ended, queued) = (&self.keep_finished_bytes, &self.max_queued_bytes);
        Ok(Bounds {
            keep_finished: finished.unwrap_or(usual.keep_finished),
            keep_finished_bytes: bytes("keep_finished_bytes", ended, usual.keep_finished_bytes)?,
            queued_steps: self.max_queued_steps.unwrap_or(usual.queued_steps),
            queued_bytes: bytes("max_queued_bytes", queued, usual.queued_bytes)?,
        })
    }

    /// Checks the file and `overrides` together.
    ///
    /// # Errors
    /// The first invalid value, by its key.
    pub fn check(self, overrides: Overrides) -> Result<Config, ConfigError> {
        let over = overrides;
        let bounds = self.bounds(over.keep_finished)?;
        let settings = Settings {
            lease: span("lease", over.lease.or(self.lease), DEFAULT_LEASE)?,
            stop_limit: span(
                "stop_limit",
                over.stop_limit.or(self.stop_limit),
                DEFAULT_STOP_LIMIT,
            )?,
            heartbeat: span(
                "heartbeat",
                over.heartbeat.or(self.heartbeat),
                DEFAULT_HEARTBEAT,
            )?,
            unreachable_after: span(
                "unreachable_after",
                over.unreachable_after.or(self.unreachable_after),
                DEFAULT_UNREACHABLE_AFTER,
            )?,
            lost_after: span(
                "lost_after",
                over.lost_after.or(self.lost_after),
                DEFAULT_LOST_AFTER,
            )?,
            bounds,
        };
        check_terms(&settings)?;
        let http_tls = self.http_tls.map(RawHttpTls::check).transpose()?;
        let oidc = self.oidc.map(RawOidc::check).transpose()?;
        let mut config = Config {
            quic: address("quic", over.quic.or(self.quic), DEFAULT_QUIC)?,
            http: address("http", over.http.or(self.http), DEFAULT_HTTP)?,
            data_dir: over
                .data_dir
                .or(self.data_dir)
                .unwrap_or_else(|| DEFAULT_DATA_DIR.into()),
            settings,
            retention: over
                .retention
                .or(self.retention)
                .unwrap_or(DEFAULT_RETENTION),
            tls: self
                .tls
                .map(|RawTls { ca, cert, key }| TlsPaths { ca, cert, key }),
            api_token: over
                .api_token_file
                .or(self.api_token_file)
                .map(|path| read_token(&path))
                .transpose()?,
            http_names: self.http_names,
            metrics_need_token: self.metrics_need_token,
            open_to_all_local_users: over.open_to_all_local_users || self.open_to_all_local_users,
            http_tls,
            oidc,
            cert_ttl: cert_ttl(self.node_cert_ttl)?,
            advertise: advertised(self.advertise)?,
            log_filter: Filter::from_env_or(self.log_filter.as_deref())?,
        };
        if !config.http.ip().is_loopback() && config.http_tls.is_none() {
            config.http_tls = Some(HttpTls::Cluster { names: Vec::new() });
        }
        config.check_exposure()?;
        Ok(config)
    }
}

fn bytes(key: &'static str, text: &Option<String>, default: u64) -> Result<u64, ConfigError> {
    let Some(text) = text else { return Ok(default) };
    parse_memory(text).map_err(|error| invalid(key, error))
}

fn cert_ttl(written: Option<String>) -> Result<Span, ConfigError> {
    let key = "node_cert_ttl";
    let ttl = span(key, written, DEFAULT_CERT_TTL)?;
    if (MIN_CERT_TTL..=MAX_CERT_TTL).contains(&ttl) {
        return Ok(ttl);
    }
    let message = format!(
        "{ttl} is not between {MIN_CERT_TTL}, in which a node that is away for a while can renew, and {MAX_CERT_TTL}"
    );
    Err(invalid(key, message))
}

fn advertised(written: Vec<String>) -> Result<Vec<String>, ConfigError> {
    let bad = written.iter().find(|address| !is_host_and_port(address));
    match bad {
        Some(address) => Err(invalid(
            "advertise",
            format!(
                "`{}` is not an address: write HOST:PORT",
                address.escape_debug()
            ),
        )),
        None if written.len() > MAX_LINE_ADDRESSES => Err(invalid(
            "advertise",
            format!("at most {MAX_LINE_ADDRESSES} addresses fit into the line that hosts join by"),
        )),
        None => Ok(written),
    }
}

fn address(
    key: &'static str,
    text: Option<String>,
    default: &str,
) -> Result<SocketAddr, ConfigError> {
    let text = text.unwrap_or_else(|| default.to_owned());
    text.parse().map_err(|_| {
        invalid(
            key,
            format!(
                "`{}` is not an address with a port, such as `{default}`",
                text.escape_default()
            ),
        )
    })
}

/// Checks that the durations leave no moment in which a step may run on two hosts, and that heartbeats arrive before a
/// node counts as silent.
fn check_terms(terms: &Settings) -> Result<(), ConfigError> {
    let least = terms.lease + terms.stop_limit + KEEPER_LIMIT + DRIFT_MARGIN;
    if terms.lost_after < least {
        let message = format!(
            "{} is too short: what is started elsewhere must have stopped on the lost host, so it must be at least {least} \
             (lease {} + stop_limit {} + {KEEPER_LIMIT} in which a host's keeper ends what its supervisor has not \
             + {DRIFT_MARGIN} by which clocks may differ)",
            terms.lost_after, terms.lease, terms.stop_limit
        );
        return Err(invalid("lost_after", message));
    }
    let two_beats = terms.heartbeat + terms.heartbeat;
    if terms.unreachable_after < two_beats || terms.unreachable_after > terms.lost_after {
        let message = format!(
            "{} must be at least twice the heartbeat {}, because one may be late, and not longer than lost_after {}",
            terms.unreachable_after, terms.heartbeat, terms.lost_after
        );
        return Err(invalid("unreachable_after", message));
    }
    if terms.lease < two_beats {
        let message = format!(
            "{} must be at least twice the heartbeat {}, which renews it: steps would be stopped where one is late",
            terms.lease, terms.heartbeat
        );
        return Err(invalid("lease", message));
    }
    Ok(())
}

impl Config {
    /// Returns the addresses that hosts are told to dial; `own_address` if the config names none.
    pub(crate) fn advertised(&self, own_address: &str) -> Vec<String> {
        match self.advertise.is_empty() {
            true => vec![own_address.to_owned()],
            false => self.advertise.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
