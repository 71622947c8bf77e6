//! Sends the standard input of `run` to the step. One thread reads it into a window of bounded size; another one sends
//! what the step's host has not taken, by one connection after the other: each begins with the number of bytes that were
//! taken, so no byte is lost or repeated. While the step reads nothing, nothing is read here.
//!
//! A later attempt of the step gets its input again if the window still has the whole of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::unistd::{Whence, lseek};
use signal_hook::consts::SIGWINCH;
use sluice_common::error_code::ErrorCode;
use sluice_common::exec::MAX_FRAME_BYTES;
use sluice_common::websocket::{CallerMessage, Empty, ServerMessage};

use super::RunEvent;
use crate::client::{ApiError, Backoff, Client, ExecConnection, MessageReader, StreamMessage};
use crate::signals;
use crate::terminal::{self, KeyScanner};

/// Bytes that are kept: those on their way, and as many of those before as have room.
const WINDOW_BYTES: usize = 1024 * 1024;

/// Time that the last keys of a user who leaves may take to arrive.
const LEAVING: Duration = Duration::from_secs(1);

/// Whether a step should get this process's standard input: not if nothing can come from it, and not from the terminal of
/// a background job, which would be stopped.
pub(super) fn is_given() -> bool {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return terminal::is_in_foreground();
    }
    let Ok(file) = stdin.as_fd().try_clone_to_owned().map(File::from) else {
        return false;
    };
    let Ok(found) = file.metadata() else {
        return false;
    };
    if found.is_file() {
        let at = lseek(&file, 0, Whence::SeekCur).unwrap_or_default();
        return u64::try_from(at).is_ok_and(|at| at < found.size());
    }
    // A device without data, such as /dev/null, is ready at once with none.
    !found.file_type().is_char_device() && !found.is_dir()
}

/// Why no more input is sent.
#[derive(Debug)]
pub(super) enum InputStop {
    /// A later attempt needs bytes that are not kept.
    NotRepeatable,
    /// Another caller sends it.
    TakenOver,
    /// The cluster refuses it.
    Refused(ApiError),
    /// The user has typed the keys that leave.
    Left,
}

#[derive(Debug, Default)]
struct InputWindow {
    /// Offset of the first byte that is kept.
    start: u64,
    bytes: VecDeque<u8>,
    /// Number of bytes that the host has taken.
    taken: u64,
    /// Whether standard input has ended.
    ended: bool,
    /// Latest attempt that runs.
    attempt: u32,
    /// Whether the connection has ended, and how.
    over: Option<SessionEnd>,
    /// Whether the terminal has a new size.
    resized: bool,
    /// Whether a first connection has been made.
    has_begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionEnd {
    /// The connection broke.
    Lost,
    /// The program takes no more.
    Complete,
    TakenOver,
}

impl InputWindow {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Makes room for a piece by dropping bytes that were taken; returns whether there is room.
    fn make_room(&mut self, length: usize) -> bool {
        let excess = (self.bytes.len() + length).saturating_sub(WINDOW_BYTES);
        let taken = usize::try_from(self.taken.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let dropped = excess.min(taken).min(self.bytes.len());
        self.bytes.drain(..dropped);
        self.start += dropped as u64;
        dropped == excess
    }

    /// Moves to the number of bytes that the host has taken; returns whether the rest is here.
    fn continue_at(&mut self, taken: u64, is_terminal: bool) -> bool {
        let is_kept = (self.start..=self.end()).contains(&taken);
        // What was read before the first connection follows what other callers have sent. Keys for a program that has
        // ended are not for the next one.
        if !self.has_begun || (is_terminal && !is_kept) {
            self.start = taken;
        }
        if self.has_begun && is_terminal && !is_kept {
            self.bytes.clear();
        }
        self.has_begun = true;
        self.taken = taken;
        (self.start..=self.end()).contains(&taken)
    }

    /// Bytes from an offset on, at most those of a frame.
    fn piece(&self, from: u64) -> Vec<u8> {
        let skipped = usize::try_from(from - self.start).unwrap_or(usize::MAX);
        let piece = self.bytes.iter().skip(skipped).take(MAX_FRAME_BYTES);
        piece.copied().collect()
    }
}

/// State shared by the threads.
#[derive(Debug, Default)]
struct Shared {
    window: Mutex<InputWindow>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, InputWindow> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut InputWindow) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }

    /// Waits until the window is in some state, for at most this time.
    fn wait_a_while(&self, limit: Duration, is_so: impl Fn(&InputWindow) -> bool) {
        let guard = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(guard, limit, |window| !is_so(window));
        drop(waited);
    }

    /// Waits until the window is in some state.
    fn wait(&self, is_so: impl Fn(&mut InputWindow) -> bool) -> MutexGuard<'_, InputWindow> {
        let guard = self.lock();
        self.changed
            .wait_while(guard, |window| !is_so(window))
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads that send input. They end with the process.
#[derive(Debug)]
pub(super) struct InputHandle {
    shared: Arc<Shared>,
}

impl InputHandle {
    /// Starts to send standard input, as a file or as keys, once an attempt runs.
    pub(super) fn start(
        client: &Client,
        step: &str,
        is_terminal: bool,
        send: &Sender<RunEvent>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        if is_terminal {
            let of_signals = Arc::clone(&shared);
            signals::forward(&[SIGWINCH], move |_| {
                of_signals.change(|window| window.resized = true);
                true
            })?;
        } else {
            spawn_reader(&shared, false, send);
        }
        let sender = InputSender {
            client: client.clone(),
            step: step.to_owned(),
            is_terminal,
            shared: Arc::clone(&shared),
            send: send.clone(),
        };
        thread::spawn(move || sender.run());
        Ok(Self { shared })
    }

    /// Notes that an attempt runs.
    pub(super) fn on_attempt(&self, number: u32) {
        self.shared.change(|window| window.attempt = number);
    }
}

/// Reads standard input into the window, as far as there is room.
fn spawn_reader(shared: &Arc<Shared>, is_terminal: bool, send: &Sender<RunEvent>) {
    let (shared, send) = (Arc::clone(shared), send.clone());
    thread::spawn(move || {
        let mut bytes = vec![0; MAX_FRAME_BYTES];
        let mut keys = KeyScanner::default();
        let mut stdin = io::stdin().lock();
        loop {
            let count = match stdin.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A standard input that cannot be read has ended.
                read => read.unwrap_or(0),
            };
            let (piece, leaves) = match is_terminal {
                true => keys.pass(&bytes[..count]),
                false => (bytes[..count].to_vec(), false),
            };
            drop(shared.wait(|window| window.make_room(piece.len())));
            shared.change(|window| {
                window.bytes.extend(&piece);
                window.ended = count == 0;
            });
            if leaves {
                shared.wait_a_while(LEAVING, |window| window.taken >= window.end());
                let _ = send.send(RunEvent::InputStopped(InputStop::Left));
            }
            if leaves || count == 0 {
                return;
            }
        }
    });
}

struct InputSender {
    client: Client,
    step: String,
    is_terminal: bool,
    shared: Arc<Shared>,
    send: Sender<RunEvent>,
}

impl InputSender {
    /// Sends the input of one attempt after the other.
    fn run(&self) {
        let mut served = 0;
        let mut reads_keys = false;
        loop {
            let attempt = self.shared.wait(|window| window.attempt > served).attempt;
            if self.is_terminal {
                let _it_stays_as_it_is = terminal::enter_raw();
                if !reads_keys {
                    spawn_reader(&self.shared, true, &self.send);
                }
                reads_keys = true;
            }
            if let Err(why) = self.serve(attempt) {
                let _ = self.send.send(RunEvent::InputStopped(why));
                return;
            }
            served = attempt;
        }
    }

    /// Sends input until the program takes no more, by as many connections as that needs.
    fn serve(&self, attempt: u32) -> Result<(), InputStop> {
        let mut backoff = Backoff::for_calls();
        loop {
            let end = match self.client.input(&self.step) {
                Ok(connection) => {
                    backoff.reset();
                    self.session(connection)?
                }
                // Until the next view says otherwise the attempt may run.
                Err(error) if may_run(&error) => SessionEnd::Lost,
                Err(error) => return Err(InputStop::Refused(error)),
            };
            match end {
                SessionEnd::Complete => return Ok(()),
                SessionEnd::TakenOver => return Err(InputStop::TakenOver),
                SessionEnd::Lost if self.shared.lock().attempt > attempt => return Ok(()),
                SessionEnd::Lost => thread::sleep(backoff.next().min(Duration::from_secs(2))),
            }
        }
    }

    /// Sends by one connection until it ends.
    fn session(&self, connection: ExecConnection) -> Result<SessionEnd, InputStop> {
        let ExecConnection {
            first,
            reader,
            writer,
        } = connection;
        let mut sent = match first {
            ServerMessage::Taken(number) => number,
            ServerMessage::InputEnded(_) => return Ok(SessionEnd::Complete),
            _ => return Ok(SessionEnd::Lost),
        };
        let is_here = self.shared.change(|window| {
            window.over = None;
            window.resized = self.is_terminal;
            window.continue_at(sent, self.is_terminal)
        });
        if !is_here {
            return Err(InputStop::NotRepeatable);
        }
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || hear(reader, &shared));
        let mut ended = false;
        loop {
            let mut window = self.shared.wait(|window| {
                window.over.is_some()
                    || window.resized
                    || window.end() > sent
                    || (window.ended && !ended)
            });
            if let Some(end) = window.over {
                return Ok(end);
            }
            let resized = std::mem::take(&mut window.resized);
            let piece = window.piece(sent);
            let at_end = window.ended && piece.is_empty();
            drop(window);
            let written = match resized {
                true => writer.send(&CallerMessage::Resize(terminal::size())),
                false if at_end => writer.send(&CallerMessage::EndInput(Empty {})),
                false => writer.send_input(&piece),
            };
            if written.is_err() {
                // The other thread says how it ended.
                writer.close();
                return Ok(self
                    .shared
                    .wait(|window| window.over.is_some())
                    .over
                    .unwrap_or(SessionEnd::Lost));
            }
            if !resized {
                sent += piece.len() as u64;
                ended = at_end;
            }
        }
    }
}

/// Whether a call failed that may succeed later: the input was not refused for good.
fn may_run(error: &ApiError) -> bool {
    let is_refusal = matches!(error, ApiError::Refused { error, .. } if error.code == ErrorCode::InputRefused.as_str());
    !is_refusal && (error.is_passing() || error.status() == Some(409))
}

/// Hears what the host has taken, to the end of the connection.
fn hear(mut reader: MessageReader, shared: &Shared) {
    let end = loop {
        let Ok(StreamMessage::Control(message)) = reader.next() else {
            break SessionEnd::Lost;
        };
        match message {
            ServerMessage::Taken(taken) => {
                shared.change(|window| window.taken = taken.min(window.end()).max(window.taken));
            }
            ServerMessage::InputEnded(_) => break SessionEnd::Complete,
            ServerMessage::TakenOver(_) => break SessionEnd::TakenOver,
            ServerMessage::Error(_)
            | ServerMessage::Started(_)
            | ServerMessage::Connected(_)
            | ServerMessage::OutputEnded(_)
            | ServerMessage::Exit(_) => {
                break SessionEnd::Lost;
            }
        }
    };
    shared.change(|window| window.over = Some(end));
    reader.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str) -> InputWindow {
        InputWindow {
            bytes: text.bytes().collect(),
            ..InputWindow::default()
        }
    }

    #[test]
    fn a_connection_continues_where_the_host_is() {
        let mut window = window("abcdef");
        assert!(window.continue_at(0, false));
        assert_eq!(window.piece(0), b"abcdef");
        assert!(window.continue_at(4, false));
        assert_eq!(window.piece(4), b"ef");
        // The next attempt begins again.
        assert!(window.continue_at(0, false));
        assert!(!window.continue_at(7, false), "nobody here has sent it");
    }

    #[test]
    fn only_what_was_taken_is_dropped_and_then_it_cannot_be_repeated() {
        let mut window = InputWindow::default();
        window.continue_at(0, false);
        window.bytes.extend(vec![1; WINDOW_BYTES]);
        assert!(!window.make_room(10), "nothing was taken");
        window.taken = 25;
        assert!(window.make_room(10));
        assert_eq!((window.start, window.bytes.len()), (10, WINDOW_BYTES - 10));
        assert!(window.continue_at(25, false));
        assert!(!window.continue_at(0, false), "the first bytes are gone");
    }

    #[test]
    fn keys_are_for_the_program_that_runs() {
        let mut window = window("ls");
        assert!(
            window.continue_at(1000, true),
            "an attached terminal begins now"
        );
        assert_eq!(window.piece(1000), b"ls", "keys typed ahead");
        window.bytes.extend(b"abc");
        assert!(window.continue_at(1003, true));
        assert_eq!(window.piece(1003), b"bc");
        assert!(window.continue_at(0, true), "the next attempt");
        assert!(window.bytes.is_empty());
    }
}
