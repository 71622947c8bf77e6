//! Verifies tokens of an OpenID Connect issuer: signed by one of its keys, for this API, valid now. Claims identify the
//! caller; bindings give rights.
//!
//! `oidc/keys.rs` fetches the keys. Only algorithms with a public key are allowed: an unsigned token, or one signed
//! with a shared secret, is rejected.

mod keys;
mod strict;

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::Value;
use sluice_common::time::Time;

use crate::config::OidcConfig;
use keys::IssuerKeys;
pub use keys::KeysError;

/// Accepted signature algorithms.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
/// Longest accepted token.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Deepest nesting of claims that is read.
const MAX_DEPTH: usize = 4;

#[derive(Debug)]
pub(super) struct Oidc {
    config: OidcConfig,
    keys: IssuerKeys,
}

/// The identity in a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenIdentity {
    pub(super) name: String,
    pub(super) claims: BTreeMap<String, Vec<String>>,
    /// Claims with a value that is not a text.
    pub(super) not_texts: BTreeSet<String>,
    pub(super) expires_at: Time,
}

impl Oidc {
    pub(super) fn new(config: OidcConfig) -> Result<Self, KeysError> {
        let keys = IssuerKeys::from(config.keys.clone())?;
        Ok(Self { config, keys })
    }

    /// Verifies a token and returns its identity.
    pub(super) async fn identify(&self, token: &str) -> Result<TokenIdentity, &'static str> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err("the token is too long");
        }
        let header = decode_header(token)
            .map_err(|_| "the token is malformed, or its signature is not the issuer's")?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err("the token is signed with an algorithm that is not accepted");
        }
        if asks_for_more(token) {
            return Err("the token requires an extension that is not supported (`crit`)");
        }
        strict::check_names(token)?;
        let keys = self.keys.with(header.kid.as_deref()).await;
        let mut keys = keys.iter().filter(|key| match &header.kid {
            Some(id) => key.common.key_id.as_ref() == Some(id),
            None => true,
        });
        let mut last = "the token is signed with a key that the issuer does not have";
        let found = keys.find_map(|key| match self.verified(token, header.alg, key) {
            Ok(claims) => Some(claims),
            Err(why) => {
                last = why;
                None
            }
        });
        self.understood(&found.ok_or(last)?)
    }

    fn verified(
        &self,
        token: &str,
        algorithm: Algorithm,
        key: &Jwk,
    ) -> Result<Value, &'static str> {
        use jsonwebtoken::errors::ErrorKind as K;
        let mut validation = Validation::new(algorithm);
        validation.leeway = self.config.leeway.millis() / 1000;
        validation.validate_nbf = true;
        validation.set_audience(&[&self.config.audience]);
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_required_spec_claims(&["exp", "aud", "iss"]);
        let key = DecodingKey::from_jwk(key).map_err(|_| "the issuer's key cannot be used")?;
        let verified = decode::<Value>(token, &key, &validation);
        let token = verified.map_err(|error| match error.kind() {
            K::ExpiredSignature => "the token has expired: get a new one from the issuer",
            K::ImmatureSignature => "the token is not valid yet",
            K::InvalidAudience => "the token is for another service",
            K::InvalidIssuer => "the token is of another issuer",
            _ => "the token is malformed, or its signature is not the issuer's",
        })?;
        strict::check(&token.claims)?;
        Ok(token.claims)
    }

    fn understood(&self, claims: &Value) -> Result<TokenIdentity, &'static str> {
        let mut found = ParsedClaims::default();
        found.flatten("", claims, MAX_DEPTH);
        let ParsedClaims { values, not_texts } = found;
        let name = match values.get(&self.config.name_claim).map(Vec::as_slice) {
            Some([name]) if !name.is_empty() => name,
            Some([_, _, ..]) => return Err("the token names its user more than once"),
            _ => return Err("the token does not name its user"),
        };
        let expires = claims.get("exp").and_then(Value::as_u64).unwrap_or(0);
        let expires = expires.saturating_mul(1000);
        Ok(TokenIdentity {
            name: name.clone(),
            expires_at: Time::from_unix_millis(expires) + self.config.leeway,
            claims: values,
            not_texts,
        })
    }
}

/// Whether the header names critical extensions (RFC 7515, 4.1.11), none of which are supported.
fn asks_for_more(token: &str) -> bool {
    let head = token.split('.').next().unwrap_or_default();
    let head = BASE64URL_NOPAD.decode(head.as_bytes()).ok();
    let head = head.and_then(|head| serde_json::from_slice::<Value>(&head).ok());
    head.is_none_or(|head| head.get("crit").is_some())
}

/// Claims by name, nested ones with dots between.
#[derive(Default)]
struct ParsedClaims {
    /// All values of a claim, as texts.
    values: BTreeMap<String, Vec<String>>,
    /// Claims with a value that is not a text.
    not_texts: BTreeSet<String>,
}

impl ParsedClaims {
    fn flatten(&mut self, name: &str, value: &Value, depth: usize) {
        let text = match value {
            Value::Object(map) if depth > 0 => {
                for (key, value) in map {
                    let key = if name.is_empty() {
                        key.clone()
                    } else {
                        format!("{name}.{key}")
                    };
                    self.flatten(&key, value, depth - 1);
                }
                return;
            }
            Value::Array(all) if depth > 0 => {
                all.iter().for_each(|value| self.flatten(name, value, 0));
                return;
            }
            Value::String(text) => Some(text.clone()),
            Value::Bool(truth) => Some(truth.to_string()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Object(_) | Value::Array(_) => None,
        };
        if !value.is_string() {
            self.not_texts.insert(name.to_owned());
        }
        if let Some(text) = text {
            self.values.entry(name.to_owned()).or_default().push(text);
        }
    }
}

#[cfg(test)]
mod tests {
    mod fuzz;

    use std::fs;
    use std::time::SystemTime;

    use super::*;
    use crate::config::KeySource;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use serde_json::json;
    use sluice_common::time::Span;

    struct TestIssuer {
        oidc: Oidc,
        key: EncodingKey,
        public: Vec<u8>,
        dir: tempfile::TempDir,
    }

    fn now() -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap().as_secs()
    }

    fn base64url(bytes: &[u8]) -> String {
        BASE64URL_NOPAD.encode(bytes)
    }

    fn issuer() -> TestIssuer {
        let random = ring::rand::SystemRandom::new();
        let pair = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let public = Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap();
        let public = public.public_key().as_ref().to_vec();
        let dir = tempfile::tempdir().unwrap();
        let jwks_file = dir.path().join("jwks.json");
        let secret = json!({ "kty": "oct", "kid": "shared", "k": base64url(b"known to all") });
        let own = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "one", "x": base64url(&public) });
        fs::write(&jwks_file, json!({ "keys": [own, secret] }).to_string()).unwrap();
        let config = OidcConfig {
            issuer: "https://id.example".into(),
            audience: "sluice".into(),
            keys: KeySource::File(jwks_file),
            leeway: Span::from_secs(30),
            name_claim: "preferred_username".into(),
        };
        TestIssuer {
            oidc: Oidc::new(config).unwrap(),
            key: EncodingKey::from_ed_der(pair.as_ref()),
            public,
            dir,
        }
    }

    fn claims() -> Value {
        json!({ "iss": "https://id.example", "aud": ["sluice", "other"], "exp": now() + 60, "preferred_username": "alice",
                "groups": ["ml", "ops"], "realm_access": { "roles": ["gpu"] } })
    }

    fn signed(issuer: &TestIssuer, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = Some("one".into());
        encode(&header, claims, &issuer.key).unwrap()
    }

    #[tokio::test]
    async fn a_token_of_another_shape_than_the_standard_s_is_refused() {
        let issuer = issuer();
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            claims
        };
        let later = now() + 60;
        for odd in [
            with("iss", json!(["https://id.example"])),
            with("iss", json!(["https://id.example", "https://evil.example"])),
            with("aud", json!([])),
            with("aud", json!(["sluice", 7])),
            with("aud", json!({ "sluice": true })),
            with("sub", json!(["alice", "root"])),
            with("sub", json!(7)),
            with("exp", json!(later.to_string())),
            with("nbf", json!("0")),
            with("iat", json!("0")),
            with("iat", json!(-1)),
            with("preferred_username", json!(["alice", "root"])),
            with("preferred_username", json!("")),
        ] {
            let result = issuer.oidc.identify(&signed(&issuer, &odd)).await;
            assert!(result.is_err(), "{odd}: {result:?}");
        }
        let once = claims().to_string();
        for (twice, member) in [
            (r#"{"iss":"https://evil.example","#, "iss"),
            (r#"{"preferred_username":"root","#, "preferred_username"),
            (r#"{"exp":1,"#, "exp"),
        ] {
            let text = once.replacen('{', twice, 1);
            let token = signed_text(&issuer, &text);
            assert!(
                issuer.oidc.identify(&token).await.is_err(),
                "{member} twice"
            );
        }
        let nested = once.replacen(r#"{"roles""#, r#"{"roles":["admin"],"roles""#, 1);
        assert_ne!(nested, once);
        assert!(
            issuer
                .oidc
                .identify(&signed_text(&issuer, &nested))
                .await
                .is_err()
        );
        assert!(
            issuer
                .oidc
                .identify(&signed_text(&issuer, &once))
                .await
                .is_ok()
        );
    }

    /// Signs a token with claims as they are written.
    fn signed_text(issuer: &TestIssuer, claims: &str) -> String {
        let head = json!({ "alg": "EdDSA", "kid": "one", "typ": "JWT" }).to_string();
        let message = format!(
            "{}.{}",
            base64url(head.as_bytes()),
            base64url(claims.as_bytes())
        );
        let signature =
            jsonwebtoken::crypto::sign(message.as_bytes(), &issuer.key, Algorithm::EdDSA);
        format!("{message}.{}", signature.unwrap())
    }

    #[tokio::test]
    async fn a_token_of_the_issuer_says_who_and_what_he_is() {
        let issuer = issuer();
        let found = issuer
            .oidc
            .identify(&signed(&issuer, &claims()))
            .await
            .unwrap();
        assert_eq!(found.name, "alice");
        assert_eq!(found.claims["groups"], ["ml", "ops"]);
        assert_eq!(found.claims["realm_access.roles"], ["gpu"]);
    }

    #[tokio::test]
    async fn a_token_of_another_time_service_or_issuer_is_refused() {
        let issuer = issuer();
        for (name, value, why) in [
            ("exp", json!(now() - 31), "has expired"),
            ("nbf", json!(now() + 60), "not valid yet"),
            ("nbf", json!((now() + 60).to_string()), "as a number"),
            ("aud", json!("other"), "another service"),
            ("iss", json!("https://evil.example"), "another issuer"),
            ("preferred_username", Value::Null, "name its user"),
        ] {
            let mut claims = claims();
            claims[name] = value;
            let refused = issuer
                .oidc
                .identify(&signed(&issuer, &claims))
                .await
                .unwrap_err();
            assert!(refused.contains(why), "{name}: {refused}");
        }
        let mut late = claims();
        late["exp"] = json!(now() - 5);
        assert!(
            issuer.oidc.identify(&signed(&issuer, &late)).await.is_ok(),
            "clocks differ a little"
        );
        let mut endless = claims();
        endless.as_object_mut().unwrap().remove("exp");
        assert!(
            issuer
                .oidc
                .identify(&signed(&issuer, &endless))
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn what_is_signed_with_nothing_or_with_a_secret_is_refused() {
        let issuer = issuer();
        let body = base64url(claims().to_string().as_bytes());
        let none = base64url(br#"{"alg":"none"}"#);
        assert!(
            issuer
                .oidc
                .identify(&format!("{none}.{body}."))
                .await
                .is_err()
        );
        for (kid, secret) in [("shared", &b"known to all"[..]), ("one", &issuer.public)] {
            let mut header = Header::new(Algorithm::HS256);
            header.kid = Some(kid.into());
            let token = encode(&header, &claims(), &EncodingKey::from_secret(secret)).unwrap();
            let refused = issuer.oidc.identify(&token).await.unwrap_err();
            assert!(refused.contains("algorithm"), "{refused}");
        }
        let good = signed(&issuer, &claims());
        let (signed_part, signature) = good.rsplit_once('.').unwrap();
        let (head, _) = signed_part.split_once('.').unwrap();
        let forged = base64url(claims().to_string().replace("alice", "admin").as_bytes());
        assert!(
            issuer
                .oidc
                .identify(&format!("{head}.{forged}.{signature}"))
                .await
                .is_err()
        );
        assert!(issuer.oidc.identify(&"x".repeat(100_000)).await.is_err());
    }

    #[tokio::test]
    async fn a_token_that_asks_for_more_than_is_known_here_is_refused() {
        let issuer = issuer();
        let part = |value: Value| base64url(value.to_string().as_bytes());
        for (crit, is_taken) in [
            (None, true),
            (Some(json!(["exp"])), false),
            (Some(json!([])), false),
        ] {
            let mut head = json!({ "alg": "EdDSA", "kid": "one" });
            head.as_object_mut()
                .unwrap()
                .extend(crit.map(|crit| ("crit".to_owned(), crit)));
            let signed = format!("{}.{}", part(head), part(claims()));
            let signature =
                jsonwebtoken::crypto::sign(signed.as_bytes(), &issuer.key, Algorithm::EdDSA);
            let token = format!("{signed}.{}", signature.unwrap());
            let found = issuer.oidc.identify(&token).await;
            assert_eq!(found.is_ok(), is_taken, "{found:?}");
            assert!(is_taken || found.unwrap_err().contains("`crit`"));
        }
    }

    #[tokio::test]
    async fn keys_are_read_again_when_their_file_has_changed() {
        let issuer = issuer();
        let token = signed(&issuer, &claims());
        assert!(issuer.oidc.identify(&token).await.is_ok());
        let file = issuer.dir.path().join("jwks.json");
        fs::write(&file, r#"{"keys":[]}"#).unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(later)
            .unwrap();
        let refused = issuer.oidc.identify(&token).await.unwrap_err();
        assert!(refused.contains("does not have"), "{refused}");
    }
}
