//! The words that facts are made of, from the rooms that own them: [`super::Record`] is long enough without this list.

pub(super) use alloc::boxed::Box;
pub(super) use alloc::collections::{BTreeMap, BTreeSet};
pub(super) use alloc::string::String;
pub(super) use alloc::vec::Vec;

pub(super) use serde::{Deserialize, Serialize};
pub(super) use sluice_common::access::AuditEntry;
pub(super) use sluice_common::cluster::ClusterTerms;
pub(super) use sluice_common::gpu_state::GpuStates;
pub(super) use sluice_common::id::{
    AttemptId, BootId, Epoch, JoinTokenId, NodeName, PlatformName, PoolName, StepId, Subject,
    TemplateName, ValidationName,
};
pub(super) use sluice_common::inventory::{Capability, Inventory};
pub(super) use sluice_common::label::{LabelKey, LabelValue};
pub(super) use sluice_common::platform::terms::PlatformTerms;
pub(super) use sluice_common::proof::{Fingerprint, Generation};
pub(super) use sluice_common::reason::Reason;
pub(super) use sluice_common::rules::PoolRules;
pub(super) use sluice_common::state::StepState;
pub(super) use sluice_common::step::StepSpec;
pub(super) use sluice_common::step::without_values;
pub(super) use sluice_common::template::Template;
pub(super) use sluice_common::time::{Span, Time};
pub(super) use sluice_common::validation::ValidationTerms;
pub(super) use sluice_common::wire::{AttemptEnd, Started, StopWhy, SuspendFailure};

pub(super) use crate::model::access::AccessChange;
pub(super) use crate::model::cluster::Home;
pub(super) use crate::model::recovery::{
    FrozenOnHost, LogPoint, RecoveryEnd, RecoveryWhy, Warrant,
};
pub(super) use crate::model::template::Grounds;
pub(super) use sluice_scheduler::{Nomination, Policy, Table};
