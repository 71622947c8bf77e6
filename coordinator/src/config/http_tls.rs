//! `[http_tls]`: the certificate of the API.

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

/// Source of the API's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpTls {
    /// The cluster's authority issues it, and the coordinator renews it while it runs.
    Cluster {
        /// Names and addresses of the API, besides those of this machine.
        names: Vec<String>,
    },
    /// Files hold it.
    Files {
        /// Certificate with its chain.
        cert: PathBuf,
        key: PathBuf,
        /// Authority of users' certificates, if it is not the cluster's.
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
