//! The terminal of this process while a program elsewhere uses it: raw mode and its end, the size, and the keys that leave.
//!
//! `main` restores the terminal on every way out that runs code; [`crate::signals`] does on those that do not come back.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};
use sluice_common::exec::WindowSize;

/// Settings from before the raw mode; `None` if the mode is not raw.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Size that is told if the terminal does not know its own.
const DEFAULT_SIZE: WindowSize = WindowSize {
    rows: 24,
    columns: 80,
};

/// Type of the terminal if `TERM` is not set.
const DEFAULT_TERM: &str = "xterm";

/// Error of a caller without a terminal.
pub(crate) const NO_TERMINAL: &str = "-it (--terminal) is for terminals, and standard input or output is none: leave it out; \
     pipes and files are passed on without it";

/// Whether standard input and output are a terminal.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Passes keys on as they are typed, until [`restore`].
pub(crate) fn enter_raw() -> io::Result<()> {
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if before.is_some() {
        return Ok(());
    }
    let settings = tcgetattr(io::stdin())?;
    let mut raw = settings.clone();
    cfmakeraw(&mut raw);
    tcsetattr(io::stdin(), SetArg::TCSANOW, &raw)?;
    *before = Some(settings);
    Ok(())
}

/// Ends the raw mode, if there is one.
pub(crate) fn restore() {
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(settings) = before.take() {
        // What a lost program has switched on: another screen, a hidden cursor, reports of the mouse and of pastes.
        let _the_terminal_has_gone = io::Write::write_all(&mut io::stdout(), RESET);
        let _the_terminal_has_gone = io::Write::flush(&mut io::stdout());
        let _the_terminal_has_gone = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &settings);
    }
}

/// Sequences without effect on a terminal that a program has left in order.
const RESET: &[u8] = b"\x1b[?25h\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1006l\x1b[?1l\x1b[0m";

/// Whether lines need a carriage return.
pub(crate) fn is_raw() -> bool {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    before.is_some()
}

/// Size of the terminal.
pub(crate) fn size() -> WindowSize {
    terminal_size::terminal_size_of(io::stdout()).map_or(DEFAULT_SIZE, |(width, height)| {
        WindowSize {
            rows: height.0,
            columns: width.0,
        }
    })
}

/// Type of the terminal.
pub(crate) fn term() -> String {
    let set = std::env::var("TERM").ok().filter(|it| !it.is_empty());
    set.unwrap_or_else(|| DEFAULT_TERM.to_owned())
}

/// Whether this process may read from its terminal: a background job that does is stopped.
pub(crate) fn is_in_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == getpgrp())
}

/// Finds the keys that leave, as in `ssh`: `~.` at the start of a line; `~~` there is one `~`.
#[derive(Debug, Default)]
pub(crate) struct KeyScanner {
    state: KeyState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KeyState {
    #[default]
    LineStart,
    Tilde,
    InLine,
}

impl KeyScanner {
    /// Returns the keys for the program, and whether the user leaves.
    pub(crate) fn pass(&mut self, keys: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(keys.len());
        for key in keys {
            self.state = match (self.state, key) {
                (KeyState::LineStart, b'~') => KeyState::Tilde,
                (KeyState::Tilde, b'.') => return (passed, true),
                (KeyState::Tilde, b'~') => {
                    passed.push(b'~');
                    KeyState::InLine
                }
                (before, key) => {
                    passed.extend((before == KeyState::Tilde).then_some(b'~'));
                    passed.push(*key);
                    match key {
                        b'\r' | b'\n' => KeyState::LineStart,
                        _ => KeyState::InLine,
                    }
                }
            };
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tilde_and_a_dot_at_the_start_of_a_line_leave() {
        for (keys, passed, leaves) in [
            ("ls\r", "ls\r", false),
            ("~.", "", true),
            ("ls\r~.rest", "ls\r", true),
            ("cd ~.\r", "cd ~.\r", false),
            ("~~.\r", "~.\r", false),
            ("~/bin\r", "~/bin\r", false),
            ("\r~x", "\r~x", false),
        ] {
            for cut in 0..=keys.len() {
                let mut scanner = KeyScanner::default();
                let (first, left) = scanner.pass(&keys.as_bytes()[..cut]);
                let mut all = first;
                let mut found = left;
                if !found {
                    let (rest, left) = scanner.pass(&keys.as_bytes()[cut..]);
                    all.extend(rest);
                    found = left;
                }
                assert_eq!(
                    (String::from_utf8(all).unwrap().as_str(), found),
                    (passed, leaves),
                    "{keys:?} cut at {cut}"
                );
            }
        }
    }
}
