//! SIGHUP has the agent read its config anew. One with a mistake is refused as a whole, and the agent goes on with what
//! it has; of one without, what may change counts from now on, and what may not is named. `main` starts it; what may
//! change is [`crate::config`]'s to say.

use std::path::PathBuf;

use agent_core::Input;
use sluice_common::config::ReloadReport;
use sluice_common::error_chain::error_chain;
use sluice_log::Log;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::config::{Config, ConfigError, Overrides, RawConfig};
use crate::engine::Event;
use crate::notify;

/// What is needed to read the config again as it was read at the start.
pub(crate) struct Reload {
    pub(crate) file: PathBuf,
    pub(crate) overrides: Overrides,
    pub(crate) log: Log,
}

/// The loop has ended.
struct Over;

impl Reload {
    /// Listens for the signal, whose default is to end the process. `config` is what the agent runs with.
    ///
    /// # Errors
    /// Where signals cannot be listened for.
    pub(crate) fn listen(self, config: Config) -> std::io::Result<Listening> {
        Ok(Listening {
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
pub(crate) struct Listening {
    hangup: Signal,
    reload: Reload,
    config: Config,
}

impl Listening {
    /// Until the loop is gone.
    pub(crate) async fn run(mut self, events: mpsc::Sender<Event>) {
        while self.hangup.recv().await.is_some() {
            notify::tell_reloading();
            let done = self.renew(&events).await;
            notify::tell_ready();
            if let Err(Over) = done {
                return;
            }
        }
    }

    async fn renew(&mut self, events: &mpsc::Sender<Event>) -> Result<(), Over> {
        let written = match self.reload.read() {
            Ok(written) => written,
            Err(error) => {
                let file = self.reload.file.display();
                warn!(%file, "told to read the config anew, and it is refused; the agent goes on with the one before: {}", error_chain(&error));
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
            events.send(event).await.map_err(|_| Over)?;
        }
        Ok(())
    }
}

fn tell(changes: &ReloadReport) {
    match &changes.applied[..] {
        [] => info!("config read anew: nothing that takes effect now has changed"),
        taken => info!(changed = taken.join(","), "config read anew"),
    }
    for kept in &changes.deferred {
        warn!("{kept}");
    }
}
