//! Stored data types. Records carry them and the state keeps them; they depend on neither.

pub(crate) mod access;
pub(crate) mod admission;
pub(crate) mod array;
pub(crate) mod carving;
pub(crate) mod cluster;
pub(crate) mod join;
pub(crate) mod node;
pub(crate) mod placement;
pub(crate) mod pool;
pub(crate) mod recovery;
pub(crate) mod service;
pub(crate) mod step;
pub(crate) mod template;
pub(crate) mod topology;
pub(crate) mod validation;
