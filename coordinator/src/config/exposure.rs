//! Checks that listeners that others can reach require credentials.

use super::{Config, ConfigError, invalid};
use crate::identity;

impl Config {
    /// Fails if a listener that the network can reach asks for no credential: certificates of an admin's authority for
    /// agents, tokens for callers.
    pub(super) fn check_exposure(&self) -> Result<(), ConfigError> {
        let has_authority = self.tls.is_some() || identity::is_made(&self.data_dir);
        if !has_authority && !self.quic.ip().is_loopback() {
            let message = format!(
                "{} is reachable from other machines, which needs certificates: run `sluice-coordinator init` with this \
                 data_dir once, configure `tls` with `ca`, `cert` and `key`, or listen on 127.0.0.1",
                self.quic
            );
            return Err(invalid("quic", message));
        }
        if self.open_to_all_local_users {
            self.check_openness()?;
        }
        if self.api_token.is_none() && !self.http.ip().is_loopback() {
            let message = format!(
                "{} is reachable from other machines, so callers must show a token: configure `api_token_file`, or listen on 127.0.0.1",
                self.http
            );
            return Err(invalid("http", message));
        }
        Ok(())
    }

    fn check_openness(&self) -> Result<(), ConfigError> {
        let key = "open_to_all_local_users";
        if self.api_token.is_some() || self.oidc.is_some() {
            let message = "it lets every user of this machine call without a token, and excludes `api_token_file` and `oidc`: remove one";
            return Err(invalid(key, message));
        }
        if !self.http.ip().is_loopback() {
            let message = format!(
                "{} is reachable from other machines, whose users would be let in too: listen on 127.0.0.1, or remove it and configure `api_token_file`",
                self.http
            );
            return Err(invalid(key, message));
        }
        Ok(())
    }
}
