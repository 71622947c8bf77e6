//! Tokens in texts that are told to others: whoever writes one where a name belongs must not find it in the log or in an
//! event. They are known by what they begin with; who makes them is `api_tokens.rs` and `join_tokens.rs`.

use std::borrow::Cow;

use sluice_common::environment::HIDDEN;

/// What tokens begin with.
const PREFIXES: [&str; 2] = [API_TOKEN, "sluice-join-"];
/// What tokens of the API begin with, so that programs that look for secrets in files find them.
pub(super) const API_TOKEN: &str = "sluice-api-";
/// A name may begin so too, and is shorter than what nobody guesses.
const LEAST_CHARS: usize = 20;

/// The text with `***` in place of what makes tokens secret.
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
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let secret = part.find(|c| !is_of_token(c)).unwrap_or(part.len());
        let (secret, rest) = part.split_at(secret);
        told.push_str(prefix);
        told.push_str(if secret.len() < LEAST_CHARS {
            secret
        } else {
            HIDDEN
        });
        told.push_str(rest);
    }
    told
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
        for (text, told) in [
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
            assert_eq!(masked(&text), told);
        }
    }
}
