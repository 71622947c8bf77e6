//! Masks tokens in texts: a token written where a name belongs must not appear in the log or in an event.
//! `api_tokens.rs` and `join_tokens.rs` make the tokens.

use std::borrow::Cow;

use sluice_common::environment::HIDDEN;

/// Prefixes of tokens.
const PREFIXES: [&str; 2] = [API_TOKEN, "sluice-join-"];
/// Prefix of API tokens, by which scanners find secrets in files.
pub(super) const API_TOKEN: &str = "sluice-api-";
/// Shortest text that counts as a token; names may begin with the prefix too, and are shorter.
const LEAST_CHARS: usize = 20;

/// Returns the text with `***` in place of the secret parts of tokens.
pub(super) fn masked(text: &str) -> Cow<'_, str> {
    PREFIXES.iter().fold(Cow::Borrowed(text), |text, prefix| {
        match text.contains(prefix) {
            true => Cow::Owned(without(&text, prefix)),
            false => text,
        }
    })
}

fn without(text: &str, prefix: &str) -> String {
    let mut parts = text.split(prefix);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let secret = part.find(|c| !is_of_token(c)).unwrap_or(part.len());
        let (secret, rest) = part.split_at(secret);
        shown.push_str(prefix);
        shown.push_str(if secret.len() < LEAST_CHARS {
            secret
        } else {
            HIDDEN
        });
        shown.push_str(rest);
    }
    shown
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_masked_and_names_are_not() {
        let secret = "0123456789abcdef0123456789abcdef";
        for (text, shown) in [
            (
                format!("/v1/api-tokens/sluice-api-{secret}"),
                "/v1/api-tokens/sluice-api-***",
            ),
            (format!("a sluice-join-1.{secret}/b"), "a sluice-join-***/b"),
            (
                format!("sluice-api-{secret},sluice-api-{secret}"),
                "sluice-api-***,sluice-api-***",
            ),
            (
                "/v1/api-tokens/sluice-api-ci".to_owned(),
                "/v1/api-tokens/sluice-api-ci",
            ),
            ("/v1/steps".to_owned(), "/v1/steps"),
        ] {
            assert_eq!(masked(&text), shown);
        }
    }
}
