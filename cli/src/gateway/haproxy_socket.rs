//! Commands to a running HAProxy over its socket: one connection for each, as HAProxy closes it after the answer.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time to an answer. HAProxy answers within milliseconds, except while it starts.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Most bytes of an answer: statistics have about 500 for each server.
const MAX_ANSWER_BYTES: u64 = 64 * 1024 * 1024;

/// Why a command had no effect.
#[derive(Debug, thiserror::Error)]
pub(super) enum HaproxySocketError {
    #[error("HAProxy does not answer at {path}: {source}", path = path.display())]
    Unreachable { path: PathBuf, source: io::Error },
    #[error("HAProxy refused `{command}`: {answer}")]
    Refused { command: String, answer: String },
}

/// The socket of a HAProxy.
#[derive(Clone, Debug)]
pub(super) struct HaproxySocket {
    path: PathBuf,
}

impl HaproxySocket {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Sends a command that asks for something.
    ///
    /// # Errors
    /// If HAProxy does not answer.
    pub(super) fn ask(&self, command: &str) -> Result<String, HaproxySocketError> {
        self.exchange(command)
            .map_err(|source| HaproxySocketError::Unreachable {
                path: self.path.clone(),
                source,
            })
    }

    /// Sends a command that changes something.
    ///
    /// # Errors
    /// If HAProxy does not answer, or refuses.
    pub(super) fn tell(&self, command: &str) -> Result<(), HaproxySocketError> {
        let answer = self.ask(command)?;
        match is_success(&answer) {
            true => Ok(()),
            false => Err(HaproxySocketError::Refused {
                command: command.to_owned(),
                answer: crate::render::safe(answer.trim()),
            }),
        }
    }

    fn exchange(&self, command: &str) -> io::Result<String> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        stream.write_all(format!("{command}\n").as_bytes())?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// Whether an answer to a change says that it was made. HAProxy says nothing then, except about addresses.
fn is_success(answer: &str) -> bool {
    let answer = answer.trim();
    let made = ["no need to change", "IP changed from", "port changed from"];
    answer.is_empty() || made.iter().any(|start| answer.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_refusal_unless_it_tells_of_an_address() {
        for answer in [
            "\n",
            "no need to change the addr, port changed from '1' to '18103' by 'stats socket command'\n\n",
            "IP changed from '127.0.0.1' to '::1', port changed from '18101' to '99' by 'stats socket command'\n",
            "no need to change both the addr and the port\n",
        ] {
            assert!(is_success(answer), "{answer}");
        }
        for answer in [
            "No such server.\n",
            "Invalid addr 'foo' by 'stats socket command'\n",
            "entry not found.\n",
        ] {
            assert!(!is_success(answer), "{answer}");
        }
    }
}
