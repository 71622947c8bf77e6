//! Formats an error with its causes on one line, for messages to people.

use core::error::Error;
use core::fmt::Write;

use alloc::string::{String, ToString};

/// The error's message and those of its causes, outermost first, separated by colons.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(text, ": {error}").expect("a string takes all that is written");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the file is bad")]
    struct Inner;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot start")]
    struct Outer(#[source] Inner);

    #[test]
    fn causes_follow_their_effects() {
        assert_eq!(error_chain(&Outer(Inner)), "cannot start: the file is bad");
        assert_eq!(error_chain(&Inner), "the file is bad");
    }
}
