//! The limit on processes and threads of a group.

use std::path::Path;

use crate::file;
use crate::setting::{GroupLimits, Setting};

/// The setting for a group of either version.
pub(crate) fn setting(bounds: &GroupLimits) -> Setting {
    Setting::new("pids.max", bounds.pids_max)
}

/// Default limit: 15 % of the processes that the host can have, which is systemd's default for a unit
/// (`TasksMax=` in systemd.resource-control(5)), so that one step with too many processes does not stop the
/// others.
pub fn default_max() -> u32 {
    let limit = |name| file::number(&Path::new("/proc/sys/kernel").join(name));
    let most = limit("pid_max")
        .into_iter()
        .chain(limit("threads-max"))
        .min();
    share_of(most.unwrap_or(32_768))
}

fn share_of(most: u64) -> u32 {
    u32::try_from(most.saturating_mul(15) / 100).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_share_of_what_the_host_can_have() {
        assert_eq!(share_of(32_768), 4_915);
        assert_eq!(share_of(u64::MAX), u32::MAX);
    }
}
