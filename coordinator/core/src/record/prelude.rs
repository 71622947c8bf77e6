//! Imports that all record types share.

pub(super) use alloc::boxed::Box;
pub(super) use alloc::collections::BTreeSet;
pub(super) use alloc::string::String;
pub(super) use alloc::vec::Vec;

pub(super) use serde::{Deserialize, Serialize};
pub(super) use sluice_common::access::AuditEntry;
pub(super) use sluice_common::carving::CarveOrder;
pub(super) use sluice_common::cluster::ClusterSpec;
pub(super) use sluice_common::credential::Generation;
pub(super) use sluice_common::gpu_state::GpuStates;
pub(super) use sluice_common::id::{
    AttemptId, Epoch, JoinTokenId, NodeName, PlatformName, PoolName, ServiceName, StepId, Subject,
    TemplateName, ValidationName,
};
pub(super) use sluice_common::template::Template;
pub(super) use sluice_common::time::{Span, Time};
pub(super) use sluice_common::topology::TopologySpec;
pub(super) use sluice_common::validation::ValidationSpec;

pub(super) use crate::model::access::AccessChange;
pub(super) use crate::model::recovery::{LogPoint, RecoveryCause, RecoveryEnd};
pub(super) use sluice_reasons::Cause;
pub(super) use sluice_scheduler::Nomination;
