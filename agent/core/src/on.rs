//! Handlers of inputs, one file for each source. [`crate::core`] has the state and the common actions.

mod carving;
mod endpoint;
mod gpus;
mod inputs;
mod link;
mod order;
mod pinning;
mod supervisor;
mod suspension;
mod tuning;
