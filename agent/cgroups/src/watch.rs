//! Notifications from the kernel that a group of version 2 became empty or frozen, with one inotify
//! descriptor for all groups.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use sluice_common::id::AttemptId;

/// The watched groups, by attempt.
#[derive(Debug)]
pub struct GroupWatch {
    inotify: Inotify,
    by_descriptor: BTreeMap<WatchDescriptor, AttemptId>,
    by_attempt: BTreeMap<AttemptId, WatchDescriptor>,
}

impl GroupWatch {
    /// A watch without groups.
    ///
    /// # Errors
    /// If this user has no inotify instance left.
    pub fn new() -> nix::Result<Self> {
        Ok(Self {
            inotify: Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?,
            by_descriptor: BTreeMap::new(),
            by_attempt: BTreeMap::new(),
        })
    }

    /// Watches the group of an attempt. If that fails, the attempt's end is noticed when one of its processes
    /// is reaped.
    pub fn add(&mut self, attempt: &AttemptId, group: &Path) {
        let events = group.join("cgroup.events");
        match self.inotify.add_watch(&events, AddWatchFlags::IN_MODIFY) {
            Ok(descriptor) => {
                self.by_descriptor.insert(descriptor, attempt.clone());
                self.by_attempt.insert(attempt.clone(), descriptor);
            }
            Err(e) => {
                tracing::warn!(group = %group.display(), "a control group cannot be watched for kills by the kernel: {}", e.desc())
            }
        }
    }

    /// Stops watching the group of an attempt.
    pub fn remove(&mut self, attempt: &AttemptId) {
        if let Some(descriptor) = self.by_attempt.remove(attempt) {
            self.by_descriptor.remove(&descriptor);
            // The kernel drops the watch by itself if the group was removed.
            let _ = self.inotify.rm_watch(descriptor);
        }
    }

    /// The attempts whose groups have changed since the last call; all of them if the kernel's queue has
    /// overflowed.
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

impl AsFd for GroupWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
