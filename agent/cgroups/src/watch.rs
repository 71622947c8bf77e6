//! Hears from the kernel that a group of version 2 has become empty, or has frozen. One descriptor for all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use sluice_common::id::AttemptId;

/// The watches of all groups.
#[derive(Debug)]
pub struct Watch {
    inotify: Inotify,
    by_descriptor: BTreeMap<WatchDescriptor, AttemptId>,
    by_attempt: BTreeMap<AttemptId, WatchDescriptor>,
}

impl Watch {
    /// Watches nothing.
    ///
    /// # Errors
    /// Where the kernel has no more of them for this user.
    pub fn new() -> nix::Result<Self> {
        Ok(Self {
            inotify: Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?,
            by_descriptor: BTreeMap::new(),
            by_attempt: BTreeMap::new(),
        })
    }

    /// Watches the group of an attempt. Where that cannot be had, its end is seen when one of its processes is reaped.
    pub fn add(&mut self, attempt: &AttemptId, group: &Path) {
        let events = group.join("cgroup.events");
        match self.inotify.add_watch(&events, AddWatchFlags::IN_MODIFY) {
            Ok(descriptor) => {
                self.by_descriptor.insert(descriptor, attempt.clone());
                self.by_attempt.insert(attempt.clone(), descriptor);
            }
            Err(e) => tracing::warn!(group = %group.display(), "not watched: {}", e.desc()),
        }
    }

    /// Watches the group of an attempt no more.
    pub fn remove(&mut self, attempt: &AttemptId) {
        if let Some(descriptor) = self.by_attempt.remove(attempt) {
            self.by_descriptor.remove(&descriptor);
            // The kernel may have dropped it already, with the group.
            let _ = self.inotify.rm_watch(descriptor);
        }
    }

    /// The attempts whose groups have changed since the last call. Where the kernel's queue has overflowed, all.
    pub fn read(&mut self) -> BTreeSet<AttemptId> {
        let mut changed = BTreeSet::new();
        while let Ok(events) = self.inotify.read_events() {
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    changed.extend(self.by_attempt.keys().cloned());
                }
                changed.extend(self.by_descriptor.get(&event.wd).cloned());
            }
        }
        changed
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
