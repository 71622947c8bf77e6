//! Real links over the loopback interface: who is let in, who is not and what they are told, and what streams carry.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod join;
mod refusals;
mod site;
mod streams;
