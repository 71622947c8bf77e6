//! Real links over the loopback interface: admission, refusals and their messages, and streams.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod join;
mod refusals;
mod site;
mod streams;
