//! Finds out how much time passed while no coordinator ran. The wall clock alone does not show it: it may have been set
//! meanwhile, or be wrong since the machine was started.
//!
//! - Within one boot, the kernel's boot clock shows it, which cannot be set. Each start writes both clocks to the data
//!   directory.
//! - After a boot, or on another machine, the wall clock is trusted once systemd-timesyncd has set it from the network.
//! - Otherwise nothing shows it.

use std::io;
use std::path::Path;
use std::{env, fs};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sluice_common::time::{Span, Time};
use sluice_transport::files::write_private;

use super::TOLD_FROM;

/// Boot id of the machine, for units in which `/proc/sys` is hidden.
const BOOT_VARIABLE: &str = "SLUICE_BOOT_ID";
const BOOT_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// File that systemd-timesyncd makes when it has set the clock for the first time since boot
/// (systemd-timesyncd.service(8)).
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";

/// Both clocks at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClockReading {
    boot_id: String,
    /// Milliseconds since boot, including sleep.
    boot_millis: u64,
    /// Time of the coordinator's clock.
    at: Time,
}

/// Returns how much of the time from the last record until `now` nothing proves to have passed, and writes both clocks
/// for the next start. Less than a minute counts as passed, because clocks are corrected by that much.
pub(crate) fn jump(data_dir: &Path, last_record: Time, now: Time) -> Span {
    let file = data_dir.join("clock");
    let Some(moment) = moment(now) else {
        return unknown(last_record, None, is_synchronized(), now);
    };
    let before = read(&file).unwrap_or_else(|error| {
        tracing::warn!(
            "{} cannot be read, so it is not known how long no coordinator ran: {error}",
            file.display()
        );
        None
    });
    let since = before.and_then(|before| passed(&before, &moment));
    if let Err(error) = note(&file, &moment) {
        tracing::warn!("the next start will not know how long no coordinator ran: {error}");
    }
    unknown(last_record, since, is_synchronized(), now)
}

/// Returns the coordinator's time now by the boot clock; `None` if the machine was booted meanwhile.
fn passed(before: &ClockReading, now: &ClockReading) -> Option<Time> {
    let millis = now.boot_millis.checked_sub(before.boot_millis);
    let same = before.boot_id == now.boot_id;
    Some(before.at + Span::from_millis(millis.filter(|_| same)?))
}

fn unknown(
    last_record: Time,
    by_boot_clock: Option<Time>,
    is_synchronized: bool,
    now: Time,
) -> Span {
    let known = match by_boot_clock {
        Some(at) => at.max(last_record),
        None if is_synchronized => now,
        None => last_record,
    };
    let is_first = last_record == Time::default();
    let unknown = now.since(known);
    if is_first || u128::from(unknown.millis()) < TOLD_FROM.as_millis() {
        return Span::ZERO;
    }
    unknown
}

fn is_synchronized() -> bool {
    Path::new(SYNCHRONIZED).exists()
}

fn moment(at: Time) -> Option<ClockReading> {
    let from_variable = env::var(BOOT_VARIABLE).ok();
    let boot_id = from_variable.or_else(|| fs::read_to_string(BOOT_FILE).ok())?;
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    let millis = u64::try_from(time.tv_nsec()).ok()? / 1_000_000;
    Some(ClockReading {
        // systemd writes it without the kernel's dashes.
        boot_id: boot_id.trim().replace('-', ""),
        boot_millis: seconds * 1000 + millis,
        at,
    })
}

fn read(file: &Path) -> io::Result<Option<ClockReading>> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn note(file: &Path, moment: &ClockReading) -> anyhow::Result<()> {
    Ok(write_private(file, &serde_json::to_string(moment)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Span = Span::from_secs(3600);
    const BEGAN: Time = Time::from_unix_millis(1_800_000_000_000);

    fn moment(boot_id: &str, since_boot: Span, at: Time) -> ClockReading {
        ClockReading {
            boot_id: boot_id.to_owned(),
            boot_millis: since_boot.millis(),
            at,
        }
    }

    /// Starts at `now`, `later` by the boot clock than an earlier start at [`BEGAN`]; the last record is 10 min after
    /// that.
    fn jumped(boot_id: &str, later: Span, is_synchronized: bool, now: Time) -> Span {
        let before = moment("a", HOUR, BEGAN);
        let by_boot_clock = passed(&before, &moment(boot_id, HOUR + later, now));
        unknown(
            BEGAN + Span::from_secs(600),
            by_boot_clock,
            is_synchronized,
            now,
        )
    }

    #[test]
    fn an_outage_within_one_boot_counts_whole() {
        assert_eq!(
            jumped("a", HOUR + HOUR, false, BEGAN + HOUR + HOUR),
            Span::ZERO
        );
    }

    #[test]
    fn what_the_clock_was_set_ahead_by_within_one_boot_is_a_jump_whoever_set_it() {
        let later = Span::from_secs(1200);
        for is_synchronized in [false, true] {
            assert_eq!(
                jumped("a", later, is_synchronized, BEGAN + later + HOUR),
                HOUR
            );
        }
        let little = Span::from_secs(59);
        assert_eq!(
            jumped("a", later, false, BEGAN + later + little),
            Span::ZERO
        );
    }

    #[test]
    fn after_a_boot_only_a_clock_set_by_the_network_s_shows_what_passed() {
        let now = BEGAN + HOUR;
        assert_eq!(jumped("b", HOUR, true, now), Span::ZERO);
        assert_eq!(jumped("b", HOUR, false, now), Span::from_secs(3000));
        // A boot clock earlier than the stored one is of another boot, whatever its id.
        assert_eq!(unknown(BEGAN, None, false, now), HOUR);
        let (early, late) = (moment("a", Span::ZERO, now), moment("a", HOUR, BEGAN));
        assert_eq!(passed(&late, &early), None);
    }

    #[test]
    fn the_first_start_and_a_clock_that_was_set_back_are_no_jumps() {
        assert_eq!(unknown(Time::default(), None, false, BEGAN), Span::ZERO);
        assert_eq!(jumped("a", HOUR, false, BEGAN), Span::ZERO);
    }

    #[test]
    fn each_start_notes_the_clocks_for_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let now = super::super::wall();
        let last = Time::from_unix_millis(now.unix_millis() - HOUR.millis());
        let after_an_unknown_time = jump(dir.path(), last, now);
        assert!(after_an_unknown_time == HOUR || is_synchronized());
        // The last record has the time of that start, and the clock is an hour ahead of it a moment later.
        let ahead = jump(dir.path(), now, now + HOUR);
        assert!(ahead <= HOUR && ahead > Span::from_secs(3500), "{ahead}");
        fs::write(dir.path().join("clock"), "{").unwrap();
        assert!(jump(dir.path(), last, now) == HOUR || is_synchronized());
        assert!(read(&dir.path().join("clock")).unwrap().is_some());
    }
}
