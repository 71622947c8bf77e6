//! Golden bytes: how every message that programs send each other is written, byte for byte.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod notation;
mod supervision;
mod wire;
