//! Keeps certificates up to date while the coordinator runs: checks the files periodically, renews the coordinator's
//! own certificate and the API's before they expire, and publishes changed authorities. Existing connections keep the
//! certificates that they began with.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use sluice_common::credential::Fingerprint;
use sluice_common::error_chain::error_chain;
use sluice_common::id::NodeName;
use sluice_transport::files::read_public;
use sluice_transport::{Identity, Listener};
use tokio::time::{MissedTickBehavior, interval};

use crate::engine::EngineHandle;
use crate::identity::http::HttpCertificate;
use crate::identity::{renew_own, write_seen};
use crate::issuance::{CertificateIssuer, IssuanceConfig, Trust};

/// Time between two checks of the files. An admin who changes the authority waits for the next check.
const LOOK: Duration = Duration::from_secs(2);

/// Contents at the last check, compared to see changes.
#[derive(Default, PartialEq, Eq)]
struct CertificateFiles {
    authorities: String,
    certificate: String,
    has_key: bool,
}

impl CertificateFiles {
    /// Reads the files. One that cannot be read counts as empty: the last version that could be read stays in force.
    fn look(terms: &IssuanceConfig) -> Self {
        Self {
            authorities: read_public(&terms.files.ca).unwrap_or_default(),
            certificate: read_public(&terms.files.cert).unwrap_or_default(),
            has_key: terms.authority_key.exists(),
        }
    }
}

/// Checks the files until the task is dropped.
pub(crate) async fn keep(
    listener: Arc<Listener>,
    mut http: Option<HttpCertificate>,
    issuance: CertificateIssuer,
    engine: EngineHandle,
) -> Infallible {
    let terms = issuance.terms().clone();
    let mut seen = CertificateFiles::look(&terms);
    let mut written = BTreeMap::new();
    let mut last_error = String::new();
    let mut told_of_http = String::new();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if let Err(why) = renew(&terms) {
            tell_once(
                &mut last_error,
                &format!("the coordinator's certificate is not renewed: {why}"),
            );
        }
        let now = CertificateFiles::look(&terms);
        if now != seen {
            match take_over(&listener, &issuance) {
                Ok(()) => last_error.clear(),
                Err(why) => tell_once(
                    &mut last_error,
                    &format!("new certificates are not used: {why}"),
                ),
            }
            seen = now;
        }
        if let Some(http) = &mut http {
            keep_http(http, &mut told_of_http);
        }
        write_register(&issuance, &engine, &mut written).await;
    }
}

fn keep_http(http: &mut HttpCertificate, last_error: &mut String) {
    match http.keep() {
        Ok(true) => {
            last_error.clear();
            tracing::info!("the API uses a new certificate");
        }
        Ok(false) => {}
        Err(why) => tell_once(
            last_error,
            &format!(
                "the API's certificate stays as it is: {}",
                error_chain(&why)
            ),
        ),
    }
}

fn tell_once(last_error: &mut String, why: &str) {
    if last_error != why {
        tracing::warn!("{why}");
        why.clone_into(last_error);
    }
}

fn renew(terms: &IssuanceConfig) -> Result<(), String> {
    match renew_own(&terms.files, &terms.cluster, terms.ttl) {
        Ok(true) => {
            tracing::info!("the coordinator's certificate was renewed");
            Ok(())
        }
        Ok(false) => Ok(()),
        Err(error) => Err(error_chain(&error)),
    }
}

fn take_over(listener: &Listener, issuance: &CertificateIssuer) -> Result<(), String> {
    let terms = issuance.terms();
    let identity = Identity::load(&terms.files).map_err(|error| error_chain(&error))?;
    let trust = Trust::read(terms, &identity).map_err(|error| error_chain(&error))?;
    listener
        .renew(&identity)
        .map_err(|error| error_chain(&error))?;
    issuance.change(trust);
    tracing::info!(authority = %identity.authority(), "certificates reloaded");
    Ok(())
}

/// Writes to disk under which authority each node connected last, which an admin needs to know before retiring one.
async fn write_register(
    issuance: &CertificateIssuer,
    engine: &EngineHandle,
    written: &mut BTreeMap<NodeName, Fingerprint>,
) {
    let mut seen = issuance.seen();
    if seen == *written {
        return;
    }
    let known = engine.read(|core| core.state().nodes().keys().cloned().collect::<Vec<_>>());
    let Ok(known) = known.await else {
        return;
    };
    issuance.forget_others(&known);
    seen.retain(|node, _| known.contains(node));
    match write_seen(&issuance.terms().files, &seen) {
        Ok(()) => *written = seen,
        Err(error) => tracing::debug!(
            "cannot write under which authorities nodes connected: {}",
            error_chain(&error)
        ),
    }
}
