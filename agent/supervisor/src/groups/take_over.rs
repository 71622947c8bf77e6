//! Adopts the control groups that an earlier supervisor has made, and removes those of unknown attempts.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sluice_cgroups::file;
use sluice_common::id::AttemptId;
use tracing::warn;

use super::{Groups, attempt_in, directory};

/// Time that the start waits for killed processes to die. They die at once, unless a device or disk blocks
/// them.
const DEATH_LIMIT: Duration = Duration::from_secs(1);

impl Groups {
    /// Adopts the groups of attempts that an earlier supervisor has made. Groups of attempts that are not
    /// `known` are killed and removed.
    pub fn take_over(&mut self, known: impl Fn(&AttemptId) -> bool) {
        let names = self
            .unified
            .iter()
            .flat_map(|unified| file::children(unified.root()));
        let names: BTreeSet<String> = names
            .chain(self.legacy.names())
            .chain(self.cpusets.names())
            .collect();
        for id in names.iter().filter_map(|name| attempt_in(name)) {
            if known(&id) {
                self.watch_again(&id);
                self.grouped.insert(id);
            } else {
                warn!(step = %id.step, attempt = id.number, "the control group of an unknown attempt: killed and removed");
                self.leaving.insert(id);
            }
        }
        self.await_removal();
    }

    /// Waits for killed processes to die: an attempt that never began may start again at once, so its groups
    /// must be gone. What takes longer is removed on later ticks.
    fn await_removal(&mut self) {
        let deadline = Instant::now() + DEATH_LIMIT;
        while self.remove_leaving() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn watch_again(&mut self, attempt: &AttemptId) {
        let name = directory(attempt);
        if let (Some(unified), Some(watch)) = (&self.unified, &mut self.watch) {
            watch.add(attempt, &unified.group(&name));
        }
    }
}
