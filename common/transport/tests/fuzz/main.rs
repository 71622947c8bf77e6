//! Hostile bytes from unknown peers: join lines, certificates and signing requests. Corpora and engine are those of
//! `sluice-fuzz`.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use data_encoding::BASE64URL_NOPAD;
use ring::digest::{SHA256, digest};
use sluice_fuzz::Fuzz;
use sluice_transport::{
    CertificateDer, JoinLine, SigningRequest, Validity, cluster_of, fingerprint_of,
    parse_certificates, to_pem,
};

fn line_comes_back(text: &str) {
    match text.parse::<JoinLine>() {
        Ok(line) => assert_eq!(line.to_string().parse::<JoinLine>().unwrap(), line),
        Err(error) => assert!(!error.to_string().chars().any(char::is_control)),
    }
}

/// A line with correct length and checksum around these bytes, which chance would not find.
fn line_around(body: &[u8]) -> String {
    let whole = digest(&SHA256, body);
    let sum = &whole.as_ref()[..4];
    let length = u16::try_from(body.len() + sum.len()).unwrap();
    let bytes = [&length.to_be_bytes(), body, sum].concat();
    format!("sluice-join-1.{}", BASE64URL_NOPAD.encode(&bytes))
}

#[test]
fn lines_for_joining() {
    let words = ["sluice-join-1.", "coord-1:7443", "gpu-7"];
    Fuzz::new("join-line").words(&words).run(|input| {
        line_comes_back(&line_around(input));
        if let Ok(text) = std::str::from_utf8(input) {
            line_comes_back(text);
        }
    });
}

#[test]
fn certificates_and_requests() {
    let words = [
        "-----BEGIN CERTIFICATE-----\n",
        "-----END CERTIFICATE-----\n",
        "sluice:node:",
        "\x30\x13",
        "\x06\x03",
    ];
    Fuzz::new("certificates").words(&words).run(|input| {
        let _refused_or_not = SigningRequest::read(input);
        let der = CertificateDer::from(input);
        if let Some(validity) = Validity::of(&der) {
            let _when = validity.renew_at();
        }
        let _cluster = cluster_of(&der);
        let pem = to_pem(&der);
        if let Ok(found) = parse_certificates(&pem) {
            assert_eq!(
                found.iter().map(fingerprint_of).collect::<Vec<_>>(),
                [fingerprint_of(&der)]
            );
        }
        if let Ok(text) = std::str::from_utf8(input) {
            let _all =
                parse_certificates(text).map(|all| all.iter().filter_map(Validity::of).count());
        }
    });
}
