//! An OpenID Connect issuer with a generated key.

use std::time::SystemTime;

use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

pub(super) struct Issuer(Ed25519KeyPair);

impl Issuer {
    pub(super) fn new() -> Self {
        let random = ring::rand::SystemRandom::new();
        let pair = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Self(Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap())
    }

    /// Returns its published keys.
    pub(super) fn jwks(&self) -> String {
        let x = base64url(self.0.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x}]}).to_string()
    }

    /// Returns a token that is valid for `seconds` from now, or was until then.
    pub(super) fn token(&self, user: &str, seconds: i64) -> String {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = i64::try_from(since.unwrap().as_secs()).unwrap();
        let claims = json!({
            "iss": "https://id.example", "aud": "sluice", "sub": user, "exp": now + seconds, "groups": ["ml"]
        });
        let part = |value: &Value| base64url(value.to_string().as_bytes());
        let head = json!({"alg": "EdDSA", "kid": "one"});
        let signed = format!("{}.{}", part(&head), part(&claims));
        let signature = self.0.sign(signed.as_bytes());
        format!("{signed}.{}", base64url(signature.as_ref()))
    }
}

fn base64url(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut word = [0; 3];
        word[..chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes([0, word[0], word[1], word[2]]);
        let letters = (0..=chunk.len()).map(|i| LETTERS[(word >> (18 - 6 * i)) as usize & 63]);
        text.extend(letters.map(char::from));
    }
    text
}
