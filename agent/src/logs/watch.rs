//! Notifies of growing files, by one inotify instance for the whole agent, because a user may have only 128.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The instance and its task, which ends when this is dropped.
pub(crate) struct FileWatcher {
    shared: Arc<WatcherState>,
    task: JoinHandle<()>,
}

struct WatcherState {
    inotify: AsyncFd<InotifyFd>,
    files: Mutex<HashMap<WatchDescriptor, WatchedFile>>,
}

/// A watched file; the kernel returns the same descriptor to all who watch it.
struct WatchedFile {
    grown: Arc<Notify>,
    watchers: usize,
}

struct InotifyFd(Inotify);

impl AsRawFd for InotifyFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Watches a file until this is dropped.
pub(crate) struct FileWatch {
    shared: Arc<WatcherState>,
    descriptor: WatchDescriptor,
    grown: Arc<Notify>,
}

impl FileWatcher {
    /// Must be called on a runtime.
    pub(crate) fn start() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types whose descriptor may change; ours owns its one"
        )]
        let inotify = AsyncFd::new(InotifyFd(inotify))?;
        let shared = Arc::new(WatcherState {
            inotify,
            files: Mutex::default(),
        });
        let task = tokio::spawn(pump(Arc::clone(&shared)));
        Ok(Self { shared, task })
    }

    pub(crate) fn watch(&self, path: &Path) -> io::Result<FileWatch> {
        let mut files = self.shared.lock();
        let descriptor = self
            .shared
            .inotify
            .get_ref()
            .0
            .add_watch(path, AddWatchFlags::IN_MODIFY)?;
        let watched = files.entry(descriptor).or_insert_with(|| WatchedFile {
            grown: Arc::default(),
            watchers: 0,
        });
        watched.watchers += 1;
        Ok(FileWatch {
            shared: Arc::clone(&self.shared),
            descriptor,
            grown: Arc::clone(&watched.grown),
        })
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FileWatch {
    /// Resolves when the file grows after this call, not after its first poll.
    pub(crate) fn grown(&self) -> impl Future<Output = ()> {
        self.grown.notified()
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        let mut files = self.shared.lock();
        let Some(watched) = files.get_mut(&self.descriptor) else {
            return;
        };
        watched.watchers -= 1;
        if watched.watchers == 0 {
            files.remove(&self.descriptor);
            // Fails if the file is gone, and with it the watch.
            let _ = self.shared.inotify.get_ref().0.rm_watch(self.descriptor);
        }
    }
}

impl WatcherState {
    fn lock(&self) -> MutexGuard<'_, HashMap<WatchDescriptor, WatchedFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) -> Result<(), Errno> {
        let events = self.inotify.get_ref().0.read_events()?;
        let files = self.lock();
        for event in events {
            if let Some(watched) = files.get(&event.wd) {
                watched.grown.notify_waiters();
            }
        }
        Ok(())
    }
}

/// Ends only if the inotify descriptor fails; followers then poll.
async fn pump(shared: Arc<WatcherState>) {
    loop {
        let Ok(mut ready) = shared.inotify.readable().await else {
            return;
        };
        match shared.ring() {
            Ok(()) | Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => ready.clear_ready(),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;

    #[tokio::test]
    async fn growth_wakes_every_watch_of_a_file_and_none_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("a"), dir.path().join("b")];
        let mut files = paths
            .clone()
            .map(|path| std::fs::File::create(path).unwrap());
        let watcher = FileWatcher::start().unwrap();
        let (first, second, other) = (
            watcher.watch(&paths[0]).unwrap(),
            watcher.watch(&paths[0]).unwrap(),
            watcher.watch(&paths[1]).unwrap(),
        );
        let (one, two, three) = (first.grown(), second.grown(), other.grown());
        files[0].write_all(b"x").unwrap();
        tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(one, two) })
            .await
            .unwrap();
        let woken = tokio::time::timeout(Duration::from_millis(20), three).await;
        assert!(woken.is_err(), "the other file has not grown");

        drop(first);
        let again = second.grown();
        files[0].write_all(b"y").unwrap();
        tokio::time::timeout(Duration::from_secs(10), again)
            .await
            .unwrap();
    }
}
