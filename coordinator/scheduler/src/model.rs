//! The scheduler's model: pools with their accounts and hosts, queued requests, runs and nominations, with indexes.
//! Decisions are made elsewhere.

pub(crate) mod account;
pub(crate) mod cached;
pub(crate) mod class_group;
mod domain;
pub(crate) mod entitlement;
pub(crate) mod eviction;
pub(crate) mod fair_share;
pub(crate) mod fragmentation;
pub(crate) mod frozen;
pub(crate) mod guard;
pub(crate) mod held_run;
pub(crate) mod host;
pub(crate) mod host_ranking;
pub(crate) mod loss_budget;
pub(crate) mod matching;
mod nominated_use;
pub(crate) mod nomination;
pub(crate) mod pool;
pub(crate) mod queue;
pub(crate) mod queue_order;
pub(crate) mod replicas;
pub(crate) mod request;
pub(crate) mod request_kind;
pub(crate) mod reservations;
pub(crate) mod resources;
pub(crate) mod scheduler;
