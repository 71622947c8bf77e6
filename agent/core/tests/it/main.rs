//! Tests of the agent's core through its public API: tables of events and outputs, and a model test that
//! plays coordinator, supervisor and steps at random.

mod carving;
mod endpoints;
mod harness;
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
