//! A thread that ends the process if one input never ends, so that the input is not lost.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::corpus;

/// Longest wall-clock time of an input, on machines that build meanwhile.
const LONGEST: Duration = Duration::from_secs(60);

/// The present input, and its start.
type Current = Arc<Mutex<Option<(Instant, Vec<u8>)>>>;

/// Watches until it is dropped.
pub(crate) struct Watchdog {
    current: Current,
    _end: Sender<()>,
}

impl Watchdog {
    pub(crate) fn start(failures: PathBuf) -> Self {
        let current = Current::default();
        let (end, ended) = mpsc::channel::<()>();
        let watched = current.clone();
        std::thread::spawn(move || {
            while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                look(&watched, &failures);
            }
        });
        Self { current, _end: end }
    }

    pub(crate) fn begin(&self, input: &[u8]) {
        self.set(Some((Instant::now(), input.to_vec())));
    }

    pub(crate) fn end(&self) {
        self.set(None);
    }

    fn set(&self, to: Option<(Instant, Vec<u8>)>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }
}

#[expect(clippy::print_stderr, reason = "the process is about to abort")]
fn look(watched: &Current, failures: &std::path::Path) {
    let current = watched.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((since, input)) = current
        .as_ref()
        .filter(|(since, _)| since.elapsed() > LONGEST)
    {
        let kept = corpus::keep(failures, input);
        eprintln!(
            "an input takes {:?} and does not end: it is kept as {kept:?}",
            since.elapsed()
        );
        std::process::abort();
    }
}
