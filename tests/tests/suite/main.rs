//! Every test that needs more than one crate, in one binary: linking is what costs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admin;
mod apply;
mod bad_input;
mod cli;
mod crash;
mod escapes;
mod exec;
mod explain;
mod fencing;
mod followed;
mod gpus;
mod guide;
mod hooks;
mod hostile;
mod hosts;
mod join;
mod logging;
mod metrics;
mod moves;
mod nodes;
mod nvml;
mod openapi;
mod output;
mod packages;
mod partition;
mod recovery;
mod rehearsal;
mod rejections;
mod release;
mod replay;
mod road;
mod rules;
mod scenarios;
mod secrets;
mod sim;
mod simulate;
mod stopping;
mod supervision;
mod survival;
mod suspend;
mod templates;
mod tidy;
mod units;
