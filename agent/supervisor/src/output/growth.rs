//! Whose output grows. Those that were just written to are looked at from time to time; the others are left to the
//! kernel, which tells of their next byte, so that a host of silent steps is a host that sleeps. `cap` drives it.
//!
//! Where the kernel gives no watch (a user may have too few), an attempt stays among those that are looked at.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use sluice_common::id::AttemptId;
use sluice_common::output::STREAMS;

/// Attempts that may write.
#[derive(Debug)]
pub(super) struct Growth {
    kernel: Option<Inotify>,
    /// With what they had written at the last look; `None` before the first.
    growing: BTreeMap<AttemptId, Option<u64>>,
    silent: BTreeMap<WatchDescriptor, AttemptId>,
}

impl Growth {
    pub(super) fn new() -> Self {
        Self {
            kernel: Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok(),
            growing: BTreeMap::new(),
            silent: BTreeMap::new(),
        }
    }

    /// An attempt may write from now on.
    pub(super) fn add(&mut self, id: &AttemptId) {
        self.growing.entry(id.clone()).or_default();
    }

    /// It will not any more.
    pub(super) fn remove(&mut self, id: &AttemptId) {
        self.growing.remove(id);
        self.unwatch(|of| of == id);
    }

    /// Those to look at, in order.
    pub(super) fn growing(&self) -> impl DoubleEndedIterator<Item = &AttemptId> + Clone {
        self.growing.keys()
    }

    /// It was looked at, in this directory, and had written so much. `again` looks once more where the kernel is asked
    /// to tell from now on: what came before it was asked it does not tell.
    pub(super) fn on_looked(
        &mut self,
        id: &AttemptId,
        written: u64,
        dir: &Path,
        again: impl Fn() -> u64,
    ) {
        let last = self.growing.insert(id.clone(), Some(written)).flatten();
        if last != Some(written) || !self.watch(id, dir) {
            return;
        }
        if again() == written {
            self.growing.remove(id);
        } else {
            self.unwatch(|of| of == id);
        }
    }

    fn watch(&mut self, id: &AttemptId, dir: &Path) -> bool {
        let Some(kernel) = &self.kernel else {
            return false;
        };
        let flags =
            AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ONESHOT | AddWatchFlags::IN_DONT_FOLLOW;
        let watched = STREAMS.map(|stream| kernel.add_watch(&dir.join(stream.file_name()), flags));
        let given = watched.iter().filter_map(|watch| watch.as_ref().ok());
        self.silent.extend(given.map(|watch| (*watch, id.clone())));
        watched.iter().all(Result::is_ok)
    }

    fn unwatch(&mut self, whose: impl Fn(&AttemptId) -> bool) {
        let kernel = self.kernel.as_ref();
        self.silent.retain(|watch, id| {
            let goes = whose(id);
            if let Some(kernel) = kernel.filter(|_| goes) {
                // It fails where the file is gone, and then so is the watch.
                let _ = kernel.rm_watch(*watch);
            }
            !goes
        });
    }

    /// Becomes readable when a silent one has written.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.kernel.as_ref().map(AsFd::as_fd)
    }

    /// Takes in what the kernel tells.
    pub(super) fn on_ready(&mut self) {
        let Some(kernel) = &self.kernel else { return };
        match kernel.read_events() {
            Ok(events) => {
                for id in events
                    .iter()
                    .filter_map(|event| self.silent.remove(&event.wd))
                {
                    self.growing.entry(id).or_default();
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // It cannot tell any more: everybody is looked at.
            Err(_) => {
                self.kernel = None;
                let silent = std::mem::take(&mut self.silent);
                self.growing
                    .extend(silent.into_values().map(|id| (id, None)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    #[test]
    fn one_that_falls_silent_is_left_alone_until_it_writes_again() {
        let dir = tempfile::tempdir().unwrap();
        let id: AttemptId = "a.1".parse().unwrap();
        let mut growth = Growth::new();
        growth.add(&id);
        let look = |growth: &mut Growth, before: u64, now: u64| {
            growth.on_looked(&id, before, dir.path(), || now);
            growth.growing().count()
        };
        assert_eq!(look(&mut growth, 0, 0), 1, "one look tells nothing");
        assert_eq!(
            look(&mut growth, 0, 0),
            1,
            "without files there is no watch"
        );
        for stream in STREAMS {
            fs::write(dir.path().join(stream.file_name()), "").unwrap();
        }
        assert_eq!(look(&mut growth, 0, 5), 1, "it wrote just then");
        assert_eq!(look(&mut growth, 5, 5), 1);
        assert_eq!(look(&mut growth, 5, 5), 0);
        growth.on_ready();
        assert_eq!(growth.growing().count(), 0);
        let mut options = OpenOptions::new();
        let mut file = options
            .append(true)
            .open(dir.path().join("stderr"))
            .unwrap();
        file.write_all(b"x").unwrap();
        growth.on_ready();
        assert_eq!(growth.growing().count(), 1);
        assert_eq!(look(&mut growth, 6, 6), 1);
        assert_eq!(look(&mut growth, 6, 6), 0);
        growth.remove(&id);
        assert!(growth.silent.is_empty());
    }
}
