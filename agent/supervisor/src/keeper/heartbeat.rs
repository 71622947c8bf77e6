//! Heartbeats of keepers: each check of the deadlines writes one, to a file for each kind of keeper. The file
//! is overwritten in a fixed length, so a full disk does not prevent it.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sluice_common::id::BootId;
use sluice_common::limit::KEEPER_LIMIT;
use sluice_common::supervision::BootMillis;

use super::group_roots::DIRECTORY;
use crate::atomic_file::open_in_place;
use crate::clock;
use crate::process::{self, ProcessStat};

/// Mode of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperKind {
    KeeperLoop,
    /// Periodically, by the init system's timer.
    Timer,
}

/// A keeper's heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    boot_id: String,
    at: BootMillis,
    pid: u32,
    start_ticks: u64,
}

impl Heartbeat {
    /// Writes one for this process.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn leave(
        state_dir: &Path,
        kind: KeeperKind,
        boot_id: &BootId,
        now: BootMillis,
    ) -> io::Result<()> {
        let me = process::stat(std::process::id()).ok_or(io::ErrorKind::NotFound)?;
        let line = format!(
            "{boot_id} {:020} {:010} {:020}\n",
            now.0, me.pid, me.start_ticks
        );
        let file = open_in_place(&path(state_dir, kind))?;
        file.write_all_at(line.as_bytes(), 0)
    }

    /// The last heartbeat of a keeper of this kind.
    pub fn last(state_dir: &Path, kind: KeeperKind) -> Option<Self> {
        let text = fs::read_to_string(path(state_dir, kind)).ok()?;
        let mut words = text.lines().next()?.split(' ');
        let boot_id = words.next()?.to_owned();
        Some(Self {
            boot_id,
            at: BootMillis(words.next()?.parse().ok()?),
            pid: words.next()?.parse().ok()?,
            start_ticks: words.next()?.parse().ok()?,
        })
    }

    /// Whether the heartbeat is fresh: it is valid for [`KEEPER_LIMIT`], in its own boot.
    pub fn counts(&self, boot_id: &BootId, now: BootMillis) -> bool {
        let fresh = self.at <= now && now <= clock::after(self.at, KEEPER_LIMIT);
        fresh && self.boot_id == boot_id.as_str()
    }

    /// The process that wrote the heartbeat, if it lives.
    pub fn process(&self, boot_id: &BootId) -> Option<ProcessStat> {
        let found = process::stat(self.pid).filter(|p| p.start_ticks == self.start_ticks)?;
        (found.is_alive() && self.boot_id == boot_id.as_str()).then_some(found)
    }
}

/// Whether any keeper of a state directory works. A permanent keeper must also be alive, because its last
/// heartbeat may be recent.
pub fn is_kept(state_dir: &Path, boot_id: &BootId, now: BootMillis) -> bool {
    let counts =
        |kind| Heartbeat::last(state_dir, kind).filter(|heartbeat| heartbeat.counts(boot_id, now));
    counts(KeeperKind::KeeperLoop).is_some_and(|heartbeat| heartbeat.process(boot_id).is_some())
        || counts(KeeperKind::Timer).is_some()
}

fn path(state_dir: &Path, kind: KeeperKind) -> PathBuf {
    let name = match kind {
        KeeperKind::KeeperLoop => "beat",
        KeeperKind::Timer => "beat.timer",
    };
    state_dir.join(DIRECTORY).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::group_roots::make_directory;
    use sluice_common::time::Span;

    #[test]
    fn a_sign_of_life_counts_for_a_while_in_its_boot_and_while_its_keeper_lives() {
        let dir = tempfile::tempdir().unwrap();
        let (boot, other) = (BootId::new("a").unwrap(), BootId::new("b").unwrap());
        make_directory(dir.path()).unwrap();
        let at = BootMillis(50_000);
        let later = |millis| clock::after(at, Span::from_millis(millis));
        assert!(!is_kept(dir.path(), &boot, at), "nobody was there yet");
        Heartbeat::leave(dir.path(), KeeperKind::KeeperLoop, &boot, at).unwrap();
        let limit = KEEPER_LIMIT.millis();
        assert!(is_kept(dir.path(), &boot, later(limit)));
        assert!(!is_kept(dir.path(), &boot, later(limit + 1)));
        assert!(
            !is_kept(dir.path(), &boot, BootMillis(1)),
            "from the future"
        );
        assert!(!is_kept(dir.path(), &other, at));

        let mine = Heartbeat::last(dir.path(), KeeperKind::KeeperLoop).unwrap();
        let text = fs::read_to_string(path(dir.path(), KeeperKind::KeeperLoop)).unwrap();
        let dead = text.replace(&format!("{:020}", mine.start_ticks), &"0".repeat(20));
        fs::write(path(dir.path(), KeeperKind::KeeperLoop), &dead).unwrap();
        assert!(
            !is_kept(dir.path(), &boot, at),
            "its number is another's now"
        );
        fs::write(path(dir.path(), KeeperKind::Timer), &dead).unwrap();
        assert!(
            is_kept(dir.path(), &boot, at),
            "that kind is gone after each look"
        );
        for damaged in ["", "a", "a 1 2", "a x 2 3\n"] {
            fs::write(path(dir.path(), KeeperKind::Timer), damaged).unwrap();
            assert!(!is_kept(dir.path(), &boot, at), "{damaged}");
        }
    }
}
