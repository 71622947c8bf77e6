//! Shared types of all Sluice programs: ids, amounts, steps with their states and reasons, host inventories, and the
//! messages between coordinator, agent and supervisor.
//!
//! The crate is `no_std`, so nothing here does I/O, reads a clock or draws randomness. Types for users (`request`,
//! `api`) use self-describing formats that evolve easily. Types for messages between programs (`wire`, `supervision`)
//! use a compact encoding that cannot skip fields.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod access;
pub mod allocation;
pub mod amount;
pub mod api;
pub mod array;
pub mod attempt_dir;
pub mod carving;
pub mod cluster;
pub mod config;
pub mod container;
pub mod credential;
pub mod dependency;
pub mod device;
pub mod directory_refusal;
pub mod document;
mod document_text;
pub mod environment;
pub mod epoch;
pub mod error_chain;
pub mod error_code;
pub mod exec;
pub mod facts;
mod field_error;
pub mod gpu_state;
pub mod helper;
pub mod hex;
pub mod host_health;
pub mod id;
pub mod image;
pub mod inputs;
pub mod inventory;
pub mod join;
pub mod keep;
pub mod label;
pub mod lease;
pub mod limit;
pub mod metric;
pub mod mig;
pub mod nearest;
pub mod output;
pub mod platform;
pub mod pool;
pub mod pool_rules;
pub mod port;
pub mod priority_preemption;
pub mod probe;
pub mod processors;
pub mod quantity;
pub mod reason;
pub mod request;
pub mod selector;
pub mod service;
pub mod shared;
pub mod state;
pub mod step;
pub mod step_names;
pub mod streams;
pub mod submitter;
pub mod supervision;
pub mod supervisor_config;
pub mod template;
pub mod time;
pub mod topology;
pub mod uid_range;
pub mod usage;
pub mod validation;
pub mod warrant;
pub mod websocket;
pub mod wire;
