//! A linked node's stream for certificates: it is told which authorities to trust, and given its next certificate where it
//! asks. The link lives on under the certificate that it began with.

use std::time::{Duration, Instant};

use sluice_common::error_chain::error_chain;
use sluice_common::id::NodeName;
use sluice_common::join::{CertificateMessage, CertificateRequest};
use sluice_transport::{Connection, FrameReader, FrameWriter, parse_certificates};

use super::SessionEnd;
use crate::issuance::CertificateIssuer;

/// Between two certificates for one link: a node asks once in days, or once more where the authority has changed.
const BETWEEN: Duration = Duration::from_secs(1);

/// Serves the stream until it ends; why the link must end with it, if it must.
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

/// What its certificate says now is what the next one says: a node whose access ended has no link.
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
            // It holds this one from now on, though the link lives on under the one before.
            if let Ok(certificates) = parse_certificates(&credentials.certificate)
                && let Some(certificate) = certificates.first()
            {
                issuance.note(node, certificate);
            }
            CertificateMessage::Certificate(credentials)
        }
        Err(error) => {
            let message = error_chain(&error);
            tracing::warn!("no new certificate: {message}");
            CertificateMessage::Refused { message }
        }
    }
}
