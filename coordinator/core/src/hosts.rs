//! The life of hosts: their links, what they report of themselves and of attempts, and how they are emptied.

pub(crate) mod access;
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
