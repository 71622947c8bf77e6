//! Fuzz tests of tokens and key lists. Claims are signed with the issuer's key, because random bytes never have a valid
//! signature and an issuer must not be trusted beyond its claims.

use sluice_fuzz::Fuzz;
use tokio::runtime::{Builder, Runtime};

use super::*;

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn is_harmless(message: &str) {
    assert!(!message.chars().any(char::is_control), "{message:?}");
}

/// Signs these bytes as claims.
fn signed_around(issuer: &TestIssuer, claims: &[u8]) -> String {
    let header = base64url(br#"{"typ":"JWT","alg":"EdDSA","kid":"one"}"#);
    let message = format!("{header}.{}", base64url(claims));
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &issuer.key, Algorithm::EdDSA);
    format!("{message}.{}", signature.unwrap())
}

/// Checks that only a token signed by the issuer identifies a user, whose rights end with the token.
#[test]
fn tokens() {
    let issuer = issuer();
    let words = [
        "\"iss\":\"https://id.example\"",
        "\"aud\":\"sluice\"",
        "\"exp\":4102444800",
        "\"nbf\":",
        "\"preferred_username\":\"alice\"",
        "\"groups\":[\"ml\"]",
        "\"realm_access\":{\"roles\":[\"gpu\"]}",
        "18446744073709551615",
        "1e400",
        "eyJhbGciOiJub25lIn0.",
        "eyJ0eXAiOiJKV1QiLCJhbGciOiJFZERTQSIsImtpZCI6Im9uZSJ9.",
    ];
    let runtime = runtime();
    Fuzz::new("oidc")
        .words(&words)
        .memory(4 << 20, 4096)
        .run(|input| {
            if let Ok(text) = std::str::from_utf8(input) {
                let unsigned = runtime.block_on(issuer.oidc.identify(text));
                is_harmless(unsigned.expect_err("nobody signed it"));
            }
            let token = signed_around(&issuer, input);
            match runtime.block_on(issuer.oidc.identify(&token)) {
                Ok(found) => {
                    let claims: Value = serde_json::from_slice(input).unwrap();
                    assert_eq!(claims["iss"], "https://id.example");
                    let until = claims["exp"].as_f64().unwrap() * 1000.0 + 31_000.0;
                    assert!(found.expires_at.unix_millis() as f64 <= until);
                }
                Err(message) => is_harmless(message),
            }
        });
}

/// Checks that a key list admits only tokens that one of its keys signed, and that a malformed list is named in the
/// error.
#[test]
fn lists_of_keys() {
    let issuer = issuer();
    let token = signed_around(&issuer, claims().to_string().as_bytes());
    let public = base64url(&issuer.public);
    let own = format!("\"x\":\"{public}\"");
    let words = [
        "\"keys\":[",
        "\"kty\":\"OKP\"",
        "\"kty\":\"RSA\"",
        "\"kty\":\"EC\"",
        "\"kty\":\"oct\"",
        "\"crv\":\"Ed25519\"",
        "\"crv\":\"P-256\"",
        "\"kid\":\"one\"",
        "\"alg\":\"EdDSA\"",
        "\"alg\":\"RS256\"",
        "\"n\":\"",
        "\"e\":\"AQAB\"",
        "\"use\":\"sig\"",
        "\"y\":\"",
        "\"k\":\"",
        &own,
    ];
    Fuzz::new("jwks")
        .words(&words)
        .memory(4 << 20, 4096)
        .run(|input| {
            let set = match keys::public("oidc.jwks_file", "keys.json", input) {
                Ok(set) => set,
                Err(error) => {
                    let message = error.to_string();
                    assert!(
                        message.contains("keys.json"),
                        "it names a place: {message:?}"
                    );
                    return is_harmless(&message);
                }
            };
            let is_there = String::from_utf8_lossy(input).contains(&public);
            for key in &set {
                for algorithm in ALGORITHMS {
                    if issuer.oidc.verified(&token, algorithm, key).is_ok() {
                        assert!(is_there, "a key that did not sign it");
                    }
                }
            }
        });
}
