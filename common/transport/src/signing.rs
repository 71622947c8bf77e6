//! Signing requests: a host's proof that it holds the key that it wants a certificate for.

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, KeyPair,
    PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKey, PublicKeyData,
};
use rustls::pki_types::CertificateSigningRequestDer;
use sluice_common::credential::Fingerprint;

use crate::authority::{AuthorityError, new_key};
use crate::certificate::sha256;

/// A request with a verified signature.
#[derive(Clone, Debug)]
pub struct SigningRequest {
    public_key: PublicKey,
}

/// Error for an invalid request.
#[derive(Debug, thiserror::Error)]
pub enum SigningRequestError {
    /// The request is malformed or not signed by its own key.
    #[error("the signing request cannot be read, or is not signed by its own key")]
    Unreadable(#[source] rcgen::Error),
    /// The key has an unsupported type.
    #[error("the signing request is for a key that is neither Ed25519 nor ECDSA over P-256")]
    Kind,
}

impl SigningRequest {
    /// Generates a key (PEM, secret) and a request for it.
    ///
    /// # Errors
    /// If no randomness is available.
    pub fn make() -> Result<(String, Vec<u8>), AuthorityError> {
        let key = new_key()?;
        Ok((key.serialize_pem(), request_for(&key)?))
    }

    /// Parses a request and verifies its signature.
    ///
    /// # Errors
    /// If the signature is invalid or the key's type is unsupported.
    pub fn read(der: &[u8]) -> Result<Self, SigningRequestError> {
        let der = CertificateSigningRequestDer::from(der);
        let request = CertificateSigningRequestParams::from_der(&der)
            .map_err(SigningRequestError::Unreadable)?;
        let public_key = request.public_key;
        if [&PKCS_ED25519, &PKCS_ECDSA_P256_SHA256].contains(&public_key.algorithm()) {
            return Ok(Self { public_key });
        }
        Err(SigningRequestError::Kind)
    }

    /// SHA-256 of the public key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::new(sha256(self.public_key.der_bytes()))
    }

    pub(crate) fn public_key(&self) -> &PublicKey {
        &self.public_key
    }
}

fn request_for(key: &KeyPair) -> Result<Vec<u8>, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params
        .serialize_request(key)
        .map_err(AuthorityError::Issue)?;
    Ok(request.der().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_for_the_key_that_signed_it_and_no_other() {
        let (key, request) = SigningRequest::make().unwrap();
        let read = SigningRequest::read(&request).unwrap();
        let again = request_for(&KeyPair::from_pem(&key).unwrap()).unwrap();
        let again = SigningRequest::read(&again).unwrap();
        assert_eq!(again.fingerprint(), read.fingerprint());
        let (_, other) = SigningRequest::make().unwrap();
        let other = SigningRequest::read(&other).unwrap();
        assert_ne!(other.fingerprint(), read.fingerprint());
        for at in [0, 20, request.len() - 1] {
            let mut bent = request.clone();
            bent[at] ^= 1;
            assert!(SigningRequest::read(&bent).is_err(), "bent at {at}");
        }
        assert!(SigningRequest::read(&[]).is_err());
        let cut = &request[..request.len() - 1];
        assert!(SigningRequest::read(cut).is_err());
    }

    #[test]
    fn a_key_of_another_kind_is_refused() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let request = CertificateParams::default().serialize_request(&key);
        let error = SigningRequest::read(request.unwrap().der()).unwrap_err();
        assert!(matches!(error, SigningRequestError::Kind), "{error}");
    }
}
