//! Reloads the config on SIGHUP. An invalid config is rejected as a whole, and the agent continues with the
//! old one. Of a valid one, values that can change take effect, and the log names the others.
//! [`crate::config`] decides which can change.

use std::path::PathBuf;

use agent_core::Input;
use sluice_common::config::ReloadReport;
use sluice_common::error_chain::error_chain;
use sluice_log::Log;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::config::{Config, ConfigError, Overrides, RawConfig};
use crate::event::Event;
use crate::notify;

/// Parameters for reading the config again.
pub(crate) struct Reload {
    pub(crate) file: PathBuf,
    pub(crate) overrides: Overrides,
    pub(crate) log: Log,
}

/// The engine has ended.
struct ReloadEnded;

impl Reload {
    /// Starts to listen for the signal. `config` is the current config.
    ///
    /// # Errors
    /// If the signal handler cannot be installed.
    pub(crate) fn listen(self, config: Config) -> std::io::Result<ReloadListener> {
        Ok(ReloadListener {
            hangup: signal(SignalKind::hangup())?,
            reload: self,
            config,
        })
    }

    fn read(&self) -> Result<Config, ConfigError> {
        RawConfig::read(&self.file)?.check(self.overrides.clone())
    }
}

/// Waits for the signal.
pub(crate) struct ReloadListener {
    hangup: Signal,
    reload: Reload,
    config: Config,
}

impl ReloadListener {
    /// Runs until the engine is gone.
    pub(crate) async fn run(mut self, events: mpsc::Sender<Event>) {
        while self.hangup.recv().await.is_some() {
            notify::notify_reloading();
            let done = self.renew(&events).await;
            notify::notify_ready();
            if let Err(ReloadEnded) = done {
                return;
            }
        }
    }

    async fn renew(&mut self, events: &mpsc::Sender<Event>) -> Result<(), ReloadEnded> {
        let written = match self.reload.read() {
            Ok(written) => written,
            Err(error) => {
                let file = self.reload.file.display();
                warn!(%file, "the config cannot be reloaded, so the agent keeps the one before: {}", error_chain(&error));
                return Ok(());
            }
        };
        let changes = self.config.renew(written);
        self.reload.log.set_filter(&self.config.log_filter);
        tell(&changes);
        if changes.applied.is_empty() {
            return Ok(());
        }
        let labels = Event::Labels(self.config.labels.clone());
        let tuned = Event::Core(Input::Tuned(self.config.tuning()));
        for event in [labels, tuned] {
            events.send(event).await.map_err(|_| ReloadEnded)?;
        }
        Ok(())
    }
}

fn tell(changes: &ReloadReport) {
    match &changes.applied[..] {
        [] => info!("config reloaded: nothing that takes effect now has changed"),
        taken => info!(changed = taken.join(","), "config reloaded"),
    }
    for kept in &changes.deferred {
        warn!("{kept}");
    }
}
