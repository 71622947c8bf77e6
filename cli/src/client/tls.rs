//! TLS of the command line: the trusted authorities and the client certificate that the context names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::context::{Context, ContextError};

/// Contents of the files that a context names.
pub(crate) struct ContextTls {
    ca: Vec<u8>,
    own: Option<(Vec<u8>, Vec<u8>)>,
}

impl ContextTls {
    /// Reads the files; `None` if the context's address has no TLS.
    ///
    /// # Errors
    /// If it names no authority, or a file cannot be read.
    pub(crate) fn of(context: &Context) -> Result<Option<Self>, ContextError> {
        if !context.file.is_secret() {
            return Ok(None);
        }
        let Some(ca) = &context.file.ca else {
            let path = context.path.clone();
            return Err(ContextError::NoAuthority { path });
        };
        let read = |file: &PathBuf| {
            let file = context.beside(file);
            std::fs::read(&file).map_err(|source| ContextError::File { file, source })
        };
        let own = match (&context.file.cert, &context.file.key) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            _ => None,
        };
        let ca = read(ca)?;
        Ok(Some(Self { ca, own }))
    }

    /// Returns the configuration of the HTTP library.
    pub(crate) fn for_calls(&self) -> Result<TlsConfig, String> {
        let wrong = |error: ureq::Error| error.to_string();
        let ca = certificates(&self.ca)?;
        let own = match &self.own {
            None => None,
            Some((cert, key)) => {
                let key = PrivateKey::from_pem(key).map_err(wrong)?;
                Some(ClientCert::new_with_certs(&certificates(cert)?, key))
            }
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Ok(TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&ca))
            .client_cert(own)
            .unversioned_rustls_crypto_provider(provider)
            .build())
    }

    /// Returns the configuration of `exec` connections.
    pub(crate) fn for_connections(&self) -> Result<Arc<ClientConfig>, String> {
        let wrong = |error: rustls::Error| error.to_string();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.ca) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            roots.add(certificate).map_err(wrong)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]);
        let builder = builder.map_err(wrong)?.with_root_certificates(roots);
        let config = match &self.own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert).collect();
                let chain = chain.map_err(|error| error.to_string())?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| error.to_string())?;
                builder.with_client_auth_cert(chain, key).map_err(wrong)?
            }
        };
        Ok(Arc::new(config))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let items = parse_pem(pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(error) => Some(Err(error.to_string())),
    });
    let all: Vec<_> = items.collect::<Result<_, _>>()?;
    match all.is_empty() {
        true => Err("there is no certificate in it".to_owned()),
        false => Ok(all),
    }
}

/// Explains a TLS failure, with what to do.
pub(crate) fn explained(message: &str, context: &Path) -> Option<String> {
    let context = context.display();
    let words = [
        (
            "UnknownIssuer",
            "its certificate is not of the authority in the context file (`ca`): the address is another cluster's, or the authority has changed",
        ),
        (
            "NotValidForName",
            "its certificate is not for this address: call it by a name that it has, or add the address to `names` of `[http_tls]` in coordinator.toml",
        ),
        (
            "NotValidYet",
            "its certificate is not valid yet: compare the clocks (`sluice doctor`)",
        ),
        (
            "alert: CertificateExpired",
            "your certificate in the context file (`cert`) has expired: have a new one issued with `sluice-coordinator issue-user`",
        ),
        (
            "Expired",
            "a certificate has expired: the coordinator's own, or the authority's; compare the clocks (`sluice doctor`)",
        ),
        (
            "CertificateUnknown",
            "it does not take the certificate of the context file (`cert`): have one issued with `sluice-coordinator issue-user`",
        ),
        (
            "invalid HTTP version",
            "it speaks TLS: write its address with `https://`, and `ca` beside it (`sluice login` does)",
        ),
        (
            "InvalidContentType",
            "it speaks no TLS: write its address without `https://`",
        ),
    ];
    let found = words.into_iter().find(|(word, _)| message.contains(word));
    found.map(|(_, way_out)| format!("{way_out} ({context})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tls_says_is_put_in_words() {
        let told = |message| explained(message, Path::new("c.json"));
        let message = "io: invalid peer certificate: UnknownIssuer";
        assert!(
            told(message)
                .unwrap()
                .starts_with("its certificate is not of the authority")
        );
        let own = told("io: received fatal alert: CertificateExpired").unwrap();
        assert!(own.starts_with("your certificate"), "{own}");
        let other = told("io: invalid peer certificate: Expired").unwrap();
        assert!(other.contains("the coordinator's own"), "{other}");
        assert_eq!(told("connection refused"), None);
    }
}
