//! SIGHUP has the coordinator read its config anew. One with a mistake is refused as a whole, and the coordinator goes on
//! with what it has; of one without, what may change counts from now on, and what may not is named. `run` drives it;
//! what may change is [`crate::config`]'s to say.

use std::path::PathBuf;

use sluice_common::config::ReloadReport;
use sluice_common::error_chain::error_chain;
use sluice_log::{Format, Log};
use tokio::signal::unix::Signal;

use crate::config::{Config, ConfigError, Overrides, RawConfig};
use crate::engine::{EngineGone, EngineHandle, Keep};
use crate::http::Api;
use crate::issuance::Issuance;
use crate::notify;

/// What is needed to read the config again as it was read at the start.
#[derive(Debug)]
pub struct Reload {
    /// The file; there need be none.
    pub file: Option<PathBuf>,
    /// What flags and the environment say.
    pub overrides: Overrides,
    /// The form of the log that was asked for with a flag or a variable.
    pub format: Option<Format>,
    /// The form that the log has.
    pub runs_format: Format,
    /// The log.
    pub log: Log,
}

/// What a config that is read anew goes to.
pub(crate) struct Parts {
    pub(crate) engine: EngineHandle,
    pub(crate) issuance: Issuance,
    pub(crate) api: Api,
    /// Where hosts are told to dial by a config that names no place.
    pub(crate) own_address: String,
}

impl Reload {
    /// Until the engine has ended. `config` is what the coordinator runs with.
    pub(crate) async fn listen(&self, mut hangup: Signal, mut config: Config, parts: &Parts) {
        while hangup.recv().await.is_some() {
            notify::tell_reloading();
            let done = self.renew(&mut config, parts).await;
            notify::tell_ready();
            if let Err(EngineGone) = done {
                return;
            }
        }
    }

    async fn renew(&self, config: &mut Config, parts: &Parts) -> Result<(), EngineGone> {
        let Some(file) = &self.file else {
            tracing::warn!(
                "told to read the config anew, and there is none: this coordinator runs by its flags alone"
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
                    "told to read the config anew, and it is refused; the coordinator goes on with the one before: {}",
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

    async fn apply(&self, config: &Config, parts: &Parts) -> Result<(), EngineGone> {
        config
            .api_token
            .iter()
            .for_each(|token| parts.api.renew_token(token));
        parts
            .issuance
            .advertise(config.advertised(&parts.own_address));
        let keep = Keep {
            records: config.retention,
            bounds: config.settings.bounds,
        };
        parts.engine.keep(keep).await
    }
}

fn tell(changes: &ReloadReport) {
    match &changes.applied[..] {
        [] => tracing::info!("config read anew: nothing that takes effect now has changed"),
        taken => tracing::info!(changed = taken.join(","), "config read anew"),
    }
    for kept in &changes.deferred {
        tracing::warn!("{kept}");
    }
}
