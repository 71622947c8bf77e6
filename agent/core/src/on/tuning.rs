//! The config was read anew: which settings change while the core runs, and what follows from that. Who may change them,
//! and when, is the driver's business.
//!
//! What is under way keeps the terms on which it began, but for a wait that would be longer than any that begins now.

use alloc::vec::Vec;

use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;

use crate::core::Core;
use crate::input::{TimerKey, Tuning};
use crate::stop::later;

impl Core {
    pub(crate) fn on_tuned(&mut self, tuning: Tuning) {
        let Tuning {
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
        self.tell_gpus();
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
