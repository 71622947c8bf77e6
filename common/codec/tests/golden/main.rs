//! Golden bytes of every message between programs.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod notation;
mod supervision;
mod wire;
