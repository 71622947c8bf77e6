//! Finds the hosts on which a request could run: those that are large enough, those that have room, and the best of
//! these.

pub(crate) mod feasibility;
mod nearness;
mod own_gpus;
mod place;
pub(crate) mod request_in_pool;
