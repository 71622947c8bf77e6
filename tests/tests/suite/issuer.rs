//! An OpenID Connect issuer with a generated key.

use std::time::SystemTime;

use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

pub(crate) struct Issuer(Ed25519KeyPair);

impl Issuer {
    pub(crate) fn new() -> Self {
        let random = ring::rand::SystemRandom::new();
        let pair = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Self(Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap())
    }

    /// Returns its published keys.
    pub(crate) fn jwks(&self) -> String {
        let x = base64url(self.0.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x}]}).to_string()
    }

    /// Returns a token that is valid for `seconds` from now, or was until then.
    pub(crate) fn token(&self, user: &str, seconds: i64) -> String {
        self.token_with(user, seconds, &json!({"groups": ["ml"]}))
    }

    /// Returns a token with these claims besides those that it needs.
    pub(crate) fn token_with(&self, user: &str, seconds: i64, more: &Value) -> String {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = i64::try_from(since.unwrap().as_secs()).unwrap();
        let mut claims = json!({
            "iss": "https://id.example", "aud": "sluice", "sub": user, "exp": now + seconds
        });
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
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
