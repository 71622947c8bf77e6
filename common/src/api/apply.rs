//! Changes of the terms of pools and of subjects in them: how they are asked for, and what is told of them.

mod impact;
mod outcome;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::access::{BindingSpec, RoleSpec};
use crate::cluster::ClusterSpec;
use crate::document::{ClusterObjectId, PolicyId, PoolObjectId, SingletonId, SpecDocument};
use crate::platform::spec::PlatformSpec;
use crate::pool::{PolicySpec, PoolSpec};
use crate::template::Template;
use crate::validation::ValidationSpec;

pub use impact::{InUseView, PreemptedView};
pub use outcome::{ApplyView, ChangeOutcome, DocumentKind, SpecChangeView, SpecView};

/// Changes that are made together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ApplyRequest {
    /// What is to be there, on these terms and no others. Their order does not matter.
    pub put: Vec<PutDocument>,
    /// What is to be there no longer.
    pub delete: Vec<DeleteDocument>,
}

/// A pool, a policy, a template or the cluster as somebody writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PutDocument {
    /// A pool.
    Pool(SpecDocument<ClusterObjectId, Box<PoolSpec>>),
    /// The cluster as a whole.
    Cluster(SpecDocument<SingletonId, ClusterSpec>),
    /// A platform of a pool.
    Platform(SpecDocument<PoolObjectId, PlatformSpec>),
    /// The binding of a subject to a pool.
    Policy(SpecDocument<PolicyId, PolicySpec>),
    /// A document of assertions over what is submitted.
    Validation(SpecDocument<ClusterObjectId, ValidationSpec>),
    /// A template.
    Template {
        /// Its name.
        name: String,
        /// What it says.
        template: Box<Template>,
        /// The version that it must have; 0 is that it must not be there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// What somebody may do.
    Role(SpecDocument<ClusterObjectId, RoleSpec>),
    /// Who has which roles.
    Binding(SpecDocument<ClusterObjectId, BindingSpec>),
}

impl PutDocument {
    /// A pool.
    pub fn pool(name: impl Into<String>, spec: PoolSpec) -> Self {
        Self::Pool(SpecDocument::new(
            ClusterObjectId { name: name.into() },
            Box::new(spec),
        ))
    }

    /// A template.
    pub fn template(name: impl Into<String>, template: Template) -> Self {
        Self::Template {
            name: name.into(),
            template: Box::new(template),
            version: None,
        }
    }

    /// The cluster.
    pub fn cluster(terms: ClusterSpec) -> Self {
        Self::Cluster(SpecDocument::new(SingletonId {}, terms))
    }

    /// A document of assertions.
    pub fn validation(name: impl Into<String>, terms: ValidationSpec) -> Self {
        Self::Validation(SpecDocument::new(
            ClusterObjectId { name: name.into() },
            terms,
        ))
    }

    /// A platform.
    pub fn platform(pool: impl Into<String>, name: impl Into<String>, spec: PlatformSpec) -> Self {
        let names = PoolObjectId {
            pool: pool.into(),
            name: name.into(),
        };
        Self::Platform(SpecDocument::new(names, spec))
    }

    /// A policy.
    pub fn policy(pool: impl Into<String>, subject: impl Into<String>, spec: PolicySpec) -> Self {
        let names = PolicyId {
            pool: pool.into(),
            subject: subject.into(),
        };
        Self::Policy(SpecDocument::new(names, spec))
    }

    /// A role.
    pub fn role(name: impl Into<String>, terms: RoleSpec) -> Self {
        Self::Role(SpecDocument::new(
            ClusterObjectId { name: name.into() },
            terms,
        ))
    }

    /// A binding.
    pub fn binding(name: impl Into<String>, terms: BindingSpec) -> Self {
        Self::Binding(SpecDocument::new(
            ClusterObjectId { name: name.into() },
            terms,
        ))
    }
}

/// What is to be there no longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum DeleteDocument {
    /// A pool, with its policies. It must have no nodes.
    Pool {
        /// Its name.
        name: String,
    },
    /// The binding of a subject to a pool.
    Policy {
        /// The pool.
        pool: String,
        /// Who.
        subject: String,
    },
    /// A document of assertions. No pool may name it.
    Validation {
        /// Its name.
        name: String,
    },
    /// A platform that a pool declares.
    Platform {
        /// The pool.
        pool: String,
        /// Its name.
        name: String,
    },
    /// A template. No pool may name it.
    Template {
        /// Its name.
        name: String,
    },
    /// A role that nobody has.
    Role {
        /// Its name.
        name: String,
    },
    /// A binding.
    Binding {
        /// Its name.
        name: String,
    },
}
