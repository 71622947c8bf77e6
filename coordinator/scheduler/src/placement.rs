//! Where a request could run: which hosts are large enough, which are free for it, and which of these it takes.

pub(crate) mod feasibility;
mod own_gpus;
mod place;
pub(crate) mod request_in_pool;
