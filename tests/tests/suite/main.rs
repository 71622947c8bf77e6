//! Every test that needs more than one crate, in one binary: linking is what costs.

mod bad_input;
mod crash;
mod road;
mod sim;
mod tidy;
