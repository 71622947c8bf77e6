//! What scheduling sees: pools with their accounts and hosts, what waits, what runs, what is promised. Facts and their
//! indexes; which move follows from them is not said here.

pub(crate) mod account;
pub(crate) mod fragmentation;
pub(crate) mod frozen;
pub(crate) mod guard;
pub(crate) mod host;
pub(crate) mod kind;
pub(crate) mod matching;
mod nominated;
pub(crate) mod nomination;
pub(crate) mod pool;
pub(crate) mod queue;
pub(crate) mod queue_order;
pub(crate) mod ranks;
pub(crate) mod request;
pub(crate) mod reservations;
pub(crate) mod scheduler;
pub(crate) mod units;
