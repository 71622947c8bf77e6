//! The agent's core through its public face: event by event with a table of what comes of each, and as a model test
//! that plays coordinator, supervisor and steps against it at random.

mod bench;
mod leases;
mod links;
mod model;
mod moves;
mod orders;
mod pinned;
mod releases;
mod stopping;
mod supervision;
mod world;
