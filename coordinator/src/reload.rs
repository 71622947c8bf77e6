//! Reloads the config on SIGHUP. A config with a mistake is rejected as a whole and changes nothing; of a valid one,
//! the changeable keys take effect at once and the others are logged as waiting for a restart. [`crate::config`] knows
//! which keys are changeable.

use std::path::PathBuf;

use sluice_common::config::ReloadReport;
use sluice_common::error_chain::error_chain;
use sluice_log::{Format, Log};
use tokio::signal::unix::Signal;

use crate::config::{Config, ConfigError, Overrides, RawConfig};
use crate::engine::{EngineHandle, EngineStopped, Retention};
use crate::http::Api;
use crate::issuance::CertificateIssuer;
use crate::notify;

/// Everything needed to read the config again as at the start.
#[derive(Debug)]
pub struct ConfigSource {
    /// Path of the file, if there is one.
    pub file: Option<PathBuf>,
    /// Values of flags and environment variables.
    pub overrides: Overrides,
    /// Log format set by a flag or a variable.
    pub format: Option<Format>,
    /// Log format in use.
    pub runs_format: Format,
    pub log: Log,
}

/// Parts of the coordinator that a reload changes.
pub(crate) struct ReloadTargets {
    pub(crate) engine: EngineHandle,
    pub(crate) issuance: CertificateIssuer,
    pub(crate) api: Api,
    /// Address for hosts if the config names none.
    pub(crate) own_address: String,
}

impl ConfigSource {
    /// Reloads on each SIGHUP until the engine has ended. `config` is the config in use.
    pub(crate) async fn listen(
        &self,
        mut hangup: Signal,
        mut config: Config,
        parts: &ReloadTargets,
    ) {
        while hangup.recv().await.is_some() {
            notify::notify_reloading();
            let done = self.renew(&mut config, parts).await;
            notify::notify_ready();
            if let Err(EngineStopped) = done {
                return;
            }
        }
    }

    async fn renew(&self, config: &mut Config, parts: &ReloadTargets) -> Result<(), EngineStopped> {
        let Some(file) = &self.file else {
            tracing::warn!(
                "there is no config to reload: this coordinator was started with flags alone"
            );
            return Ok(());
        };
        match self.read(file) {
            Ok((written, format)) => {
                let mut changes = config.renew(written);
                changes.defer("log_format", self.runs_format, format);
                self.log.set_filter(&config.log_filter);
                tell(&changes);
                self.apply(config, parts).await
            }
            Err(error) => {
                tracing::warn!(
                    file = %file.display(),
                    "the config cannot be reloaded, so the coordinator keeps the one before: {}",
                    error_chain(&error)
                );
                Ok(())
            }
        }
    }

    fn read(&self, file: &std::path::Path) -> Result<(Config, Format), ConfigError> {
        let raw = RawConfig::load(file)?;
        let format = self.format.or(raw.log_format()).unwrap_or_default();
        Ok((raw.check(self.overrides.clone())?, format))
    }

    async fn apply(&self, config: &Config, parts: &ReloadTargets) -> Result<(), EngineStopped> {
        config
            .api_token
            .iter()
            .for_each(|token| parts.api.renew_token(token));
        parts
            .issuance
            .advertise(config.advertised(&parts.own_address));
        let keep = Retention {
            records: config.retention,
            bounds: config.settings.bounds,
        };
        parts.engine.keep(keep).await
    }
}

fn tell(changes: &ReloadReport) {
    match &changes.applied[..] {
        [] => tracing::info!("config reloaded: nothing that takes effect now has changed"),
        taken => tracing::info!(changed = taken.join(","), "config reloaded"),
    }
    for deferred in &changes.deferred {
        tracing::warn!("{deferred}");
    }
}
