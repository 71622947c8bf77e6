//! Hostile tokens, and hostile lists of keys. Claims are signed by the issuer's own key: chance would not find a signature,
//! and an issuer is not trusted further than its word.

use sluice_fuzz::Fuzz;
use tokio::runtime::{Builder, Runtime};

use super::*;

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn is_harmless(said: &str) {
    assert!(!said.chars().any(char::is_control), "{said:?}");
}

/// These bytes as claims, in a token of the issuer.
fn signed_around(issuer: &Issuer, claims: &[u8]) -> String {
    let header = base64url(br#"{"typ":"JWT","alg":"EdDSA","kid":"one"}"#);
    let message = format!("{header}.{}", base64url(claims));
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &issuer.key, Algorithm::EdDSA);
    format!("{message}.{}", signature.unwrap())
}

/// Nobody is somebody by a token that the issuer has not signed; by one that it has, he has a name, and no right that
/// lasts longer than the token.
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
                Err(said) => is_harmless(said),
            }
        });
}

/// A list of keys lets in nobody whose token none of them has signed, and says where it is when it is none.
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
                    let said = error.to_string();
                    assert!(said.contains("keys.json"), "it names a place: {said:?}");
                    return is_harmless(&said);
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
