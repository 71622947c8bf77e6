//! Checks that claims have the shapes of RFC 7519, each once. If one reader takes the first of two values and another
//! the second, an attacker who can get odd tokens signed chooses which one counts.

use std::collections::BTreeSet;
use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Rejects claims whose registered names have other shapes.
pub(super) fn check(claims: &Value) -> Result<(), &'static str> {
    let Some(claims) = claims.as_object() else {
        return Err("the token has no claims");
    };
    let is_text = |name: &str| claims.get(name).is_none_or(Value::is_string);
    let is_time = |name: &str| {
        let time = claims.get(name);
        time.is_none_or(|it| it.as_f64().is_some_and(|it| it.is_finite() && it >= 0.0))
    };
    let is_texts = |value: &Value| {
        let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
        value.is_string() || (!all.is_empty() && all.iter().all(Value::is_string))
    };
    if !is_text("iss") {
        return Err("the token's issuer (`iss`) is not one text");
    }
    if !is_text("sub") {
        return Err("the token's subject (`sub`) is not one text");
    }
    if !claims.get("aud").is_none_or(is_texts) {
        return Err("the token's audience (`aud`) is neither a text nor a list of texts");
    }
    if !["exp", "nbf", "iat"].into_iter().all(is_time) {
        return Err("the token does not say each time (`exp`, `nbf`, `iat`) as a number");
    }
    Ok(())
}

/// Rejects a token whose header or claims contain a name twice.
pub(super) fn check_names(token: &str) -> Result<(), &'static str> {
    let once = |part: &str| {
        let bytes = BASE64URL_NOPAD.decode(part.as_bytes()).ok();
        bytes.is_some_and(|bytes| serde_json::from_slice::<UniqueNames>(&bytes).is_ok())
    };
    match token.split('.').take(2).all(once) {
        true => Ok(()),
        false => Err("the token is not JSON in which each name occurs once"),
    }
}

/// Any JSON in which no object has a name twice.
struct UniqueNames;

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueNames)
    }
}

impl<'de> Visitor<'de> for UniqueNames {
    type Value = UniqueNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON in which each name occurs once")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<UniqueNames, M::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !seen.insert(name) {
                return Err(M::Error::custom("a name occurs twice"));
            }
            map.next_value::<UniqueNames>()?;
        }
        Ok(UniqueNames)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut all: S) -> Result<UniqueNames, S::Error> {
        while all.next_element::<UniqueNames>()?.is_some() {}
        Ok(UniqueNames)
    }

    fn visit_bool<E>(self, _: bool) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_i64<E>(self, _: i64) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_u64<E>(self, _: u64) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_f64<E>(self, _: f64) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_str<E>(self, _: &str) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_unit<E>(self) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }
}
