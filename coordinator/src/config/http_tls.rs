//! `[http_tls]`: by which certificate callers know the API.

use std::path::PathBuf;

use serde::Deserialize;

use super::{ConfigError, invalid};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawHttpTls {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    users_ca: Option<PathBuf>,
    names: Vec<String>,
}

/// By which certificate callers know the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpTls {
    /// One that the cluster's authority issues, and renews while the coordinator runs.
    Cluster {
        /// Names and addresses by which the API is called, beside those of this machine.
        names: Vec<String>,
    },
    /// One from files.
    Files {
        /// The certificate, and those between it and its authority.
        cert: PathBuf,
        /// Its key.
        key: PathBuf,
        /// The authority of users' certificates, where it is not the cluster's.
        users_ca: Option<PathBuf>,
    },
}

impl RawHttpTls {
    pub(super) fn check(self) -> Result<HttpTls, ConfigError> {
        let RawHttpTls {
            cert,
            key,
            users_ca,
            names,
        } = self;
        match (cert, key) {
            (Some(cert), Some(key)) if names.is_empty() => Ok(HttpTls::Files {
                cert,
                key,
                users_ca,
            }),
            (None, None) if users_ca.is_none() => Ok(HttpTls::Cluster { names }),
            (None, None) => Err(invalid(
                "http_tls.users_ca",
                "it belongs beside `cert` and `key`: without them users are those of the cluster's authority",
            )),
            (Some(_), Some(_)) => Err(invalid(
                "http_tls.names",
                "a certificate from a file has its names already: leave them out, or `cert` and `key`",
            )),
            _ => Err(invalid(
                "http_tls",
                "write both `cert` and `key`, or neither",
            )),
        }
    }
}
