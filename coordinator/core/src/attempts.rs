//! The life of attempts: orders to hosts, progress, end, and suspension.

pub(crate) mod checkpoint;
pub(crate) mod endpoint;
pub(crate) mod gpu_assignment;
mod gpu_locality;
pub(crate) mod hostless;
pub(crate) mod launch;
pub(crate) mod leases;
pub(crate) mod live;
pub(crate) mod orders;
pub(crate) mod progress;
pub(crate) mod queue_timeout;
pub(crate) mod retry_policy;
pub(crate) mod strays;
pub(crate) mod suspension;
