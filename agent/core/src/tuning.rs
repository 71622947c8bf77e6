//! What of the settings may be other ones while the core runs, and what follows from that. It hooks into
//! [`crate::core`]; who may change them, and when, is the driver's business.
//!
//! What is under way keeps the terms on which it began, but for a wait that would be longer than any that begins now.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;

use crate::core::Core;
use crate::input::TimerKey;
use crate::stop::later;

/// The part of [`crate::Settings`] that may change, each as there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// `PATH` of steps that bring none of their own.
    pub path: String,
    /// How long an attempt's GPUs may take to come free once nothing of it is left.
    pub gpu_release_timeout: Span,
    /// Whether a GPU is kept back while processes use it that are no step's.
    pub respect_foreign: bool,
    /// How long moving what an attempt holds on GPUs may take before it is frozen, and bringing it back.
    pub suspend_limit: Span,
}

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
