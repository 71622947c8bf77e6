//! The life of hosts: connections, reports, drains.

pub(crate) mod access;
pub(crate) mod carving;
pub(crate) mod changes;
pub(crate) mod drain;
pub(crate) mod forget;
pub(crate) mod gpus;
pub(crate) mod health;
pub(crate) mod labels;
pub(crate) mod link;
pub(crate) mod name_conflict;
pub(crate) mod refusal;
pub(crate) mod report;
pub(crate) mod statuses;
