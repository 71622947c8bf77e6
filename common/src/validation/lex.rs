//! Splits the text of a rule into tokens.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::error::{MAX_RULE_BYTES, RuleError, RuleProblem};

/// A token with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// Byte offset of the token.
    pub(super) at: usize,
    pub(super) word: TokenKind<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind<'a> {
    /// A number, with its unit if any.
    Number(&'a str),
    /// A name or a part of one.
    Name(&'a str),
    /// The content of a quoted text.
    Text(&'a str),
    /// An operator of one or two characters.
    Sign(&'a str),
    /// End of the rule.
    End,
}

/// Operators, two-character ones first.
const SIGNS: [&str; 15] = [
    "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "(", ")", "[", "]", ".",
];

/// Splits a text into tokens, ending with [`TokenKind::End`].
pub(super) fn words(text: &str) -> Result<Vec<Token<'_>>, RuleError> {
    if text.len() > MAX_RULE_BYTES {
        return Err(RuleError {
            column: 1,
            wrong: RuleProblem::TooLong(text.len()),
        });
    }
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let blank = rest.len() - rest.trim_start().len();
        at += blank;
        let (word, len) = word(text, at)?;
        found.push(Token { at, word });
        if word == TokenKind::End {
            return Ok(found);
        }
        at += len;
    }
}

/// The token at a position, and its length in bytes.
fn word(text: &str, at: usize) -> Result<(TokenKind<'_>, usize), RuleError> {
    let rest = &text[at..];
    let Some(first) = rest.chars().next() else {
        return Ok((TokenKind::End, 0));
    };
    if matches!(first, '"' | '\'') {
        let inner = &rest[1..];
        let end = inner
            .find(first)
            .ok_or_else(|| error(text, at, RuleProblem::Unclosed))?;
        // No fact contains such a character, and messages show texts as written.
        let unseen =
            |(_, c): &(usize, char)| c.escape_debug().len() > 1 && !matches!(c, '\\' | '"' | '\'');
        if let Some((place, c)) = inner[..end].char_indices().find(unseen) {
            let wrong = RuleProblem::Character(c.escape_debug().to_string());
            return Err(error(text, at + 1 + place, wrong));
        }
        return Ok((TokenKind::Text(&inner[..end]), end + 2));
    }
    if first.is_ascii_digit() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.';
        let number = take_while(rest, is_part);
        return Ok((TokenKind::Number(number), number.len()));
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let name = take_while(rest, |c| c.is_ascii_alphanumeric() || c == '_');
        return Ok((TokenKind::Name(name), name.len()));
    }
    match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
        Some(sign) => Ok((TokenKind::Sign(sign), sign.len())),
        None => Err(error(text, at, unexpected_character(rest, first))),
    }
}

fn take_while(text: &str, is_part: impl Fn(char) -> bool) -> &str {
    let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
    &text[..end]
}

fn unexpected_character(rest: &str, first: char) -> RuleProblem {
    match first {
        '=' => RuleProblem::Sign("=", "write `==` to compare"),
        '&' | '|' if rest.len() > 1 => RuleProblem::Joined,
        _ => RuleProblem::Character(first.escape_debug().to_string()),
    }
}

pub(super) fn error(text: &str, at: usize, wrong: RuleProblem) -> RuleError {
    let column = text[..at].chars().count() + 1;
    RuleError { column, wrong }
}

impl TokenKind<'_> {
    /// The token as messages quote it.
    pub(super) fn shown(self) -> String {
        match self {
            TokenKind::Number(text) | TokenKind::Name(text) | TokenKind::Sign(text) => {
                alloc::format!("`{text}`")
            }
            TokenKind::Text(text) => alloc::format!("\"{}\"", text.escape_debug()),
            TokenKind::End => "nothing".to_string(),
        }
    }
}
