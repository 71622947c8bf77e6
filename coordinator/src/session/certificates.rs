//! The certificate stream of a linked node: sends it the trusted authorities, and renews its certificate on request.
//! The link goes on under the certificate that it began with.

use std::time::{Duration, Instant};

use sluice_common::error_chain::error_chain;
use sluice_common::id::NodeName;
use sluice_common::join::{CertificateMessage, CertificateRequest};
use sluice_transport::{Connection, FrameReader, FrameWriter, parse_certificates};

use super::SessionEnd;
use crate::issuance::CertificateIssuer;

/// Least time between two certificates for one link: a node asks every few days, or again after a change of the
/// authority.
const BETWEEN: Duration = Duration::from_secs(1);

/// Serves the stream until it ends; returns why the link must end with it, if it must.
pub(super) async fn serve(
    node: &NodeName,
    connection: &Connection,
    issuance: &CertificateIssuer,
    (mut out, mut requests): (FrameWriter, FrameReader),
) -> Result<(), SessionEnd> {
    let mut trust = issuance.trust();
    let mut issued_at: Option<Instant> = None;
    trust.mark_changed();
    loop {
        tokio::select! {
            changed = trust.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let word = trust.borrow_and_update().word();
                out.send(&word).await?;
            }
            request = requests.next::<CertificateRequest>() => {
                let Some(request) = request? else {
                    return Ok(());
                };
                let soon = issued_at.is_some_and(|at| at.elapsed() < BETWEEN);
                issued_at = Some(Instant::now());
                let word = answer(node, connection, issuance, &request, soon);
                out.send(&word).await?;
            }
        }
    }
}

/// Issues a certificate with the contents of the present one. A node whose access was revoked has no link.
fn answer(
    node: &NodeName,
    connection: &Connection,
    issuance: &CertificateIssuer,
    request: &CertificateRequest,
    soon: bool,
) -> CertificateMessage {
    if soon {
        let message = "it asked again within a second".to_owned();
        return CertificateMessage::Refused { message };
    }
    let claim = connection.peer_identity().claim.clone();
    match issuance.certify(&request.request, node.clone(), claim) {
        Ok(credentials) => {
            tracing::info!("certificate renewed");
            // The node has this one from now on, though the link goes on under the one before.
            if let Ok(certificates) = parse_certificates(&credentials.certificate)
                && let Some(certificate) = certificates.first()
            {
                issuance.note(node, certificate);
            }
            CertificateMessage::Certificate(credentials)
        }
        Err(error) => {
            let message = error_chain(&error);
            tracing::warn!("the certificate cannot be renewed: {message}");
            CertificateMessage::Refused { message }
        }
    }
}
