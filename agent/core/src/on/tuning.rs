//! Applies changed settings while the core runs. The agent, which drives the core, decides which may change, and when.
//!
//! Work in progress keeps its settings, except that a wait is shortened to the new limit.

use alloc::vec::Vec;

use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;

use crate::core::Core;
use crate::input::{ReloadedSettings, TimerKey};
use crate::stop::later;

impl Core {
    pub(crate) fn on_tuned(&mut self, tuning: ReloadedSettings) {
        let ReloadedSettings {
            path,
            gpu_release_timeout,
            respect_foreign,
            suspend_limit,
        } = tuning;
        self.settings.path = path;
        self.settings.suspend_limit = suspend_limit;
        self.settings.gpu_release_timeout = gpu_release_timeout;
        self.shorten_releases(later(self.clock, gpu_release_timeout));
        self.settings.respect_foreign = respect_foreign;
        self.gpus.respect_foreign(respect_foreign);
        self.report_gpus();
    }

    fn shorten_releases(&mut self, latest: BootMillis) {
        let late = self.releases.iter_mut().filter(|(_, r)| r.until > latest);
        let shortened = late.map(|(id, release)| {
            release.until = latest;
            id.clone()
        });
        for id in shortened.collect::<Vec<AttemptId>>() {
            self.wake(TimerKey::Release(id), latest);
        }
    }
}
