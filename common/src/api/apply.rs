//! Changes of pools, policies, platforms, templates, roles and bindings: the request and its documents.

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
use crate::topology::TopologySpec;
use crate::validation::ValidationSpec;

pub use impact::{CarvePlanView, InUseView, PreemptedView};
pub use outcome::{ApplyView, ChangeOutcome, DocumentKind, SpecChangeView, SpecView};

/// Changes that are applied together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ApplyRequest {
    /// Documents to create or replace, in any order. Fields that a document omits are reset.
    pub put: Vec<PutDocument>,
    /// Objects to delete.
    pub delete: Vec<DeleteDocument>,
}

/// A document that describes one object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PutDocument {
    /// Creates or replaces a pool.
    Pool(SpecDocument<ClusterObjectId, Box<PoolSpec>>),
    /// Replaces the settings of the cluster.
    Cluster(SpecDocument<SingletonId, ClusterSpec>),
    /// Replaces the topology of the cluster.
    Topology(SpecDocument<SingletonId, TopologySpec>),
    /// Creates or replaces a platform of a pool.
    Platform(SpecDocument<PoolObjectId, PlatformSpec>),
    /// Creates or replaces a subject's policy in a pool.
    Policy(SpecDocument<PolicyId, PolicySpec>),
    /// Creates or replaces a set of validation rules.
    Validation(SpecDocument<ClusterObjectId, ValidationSpec>),
    /// Creates or replaces a template.
    Template {
        /// Template name, unique in the cluster.
        name: String,
        /// The template's fields.
        template: Box<Template>,
        /// Version that the template must have; 0 requires that it does not exist.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// Creates or replaces a role.
    Role(SpecDocument<ClusterObjectId, RoleSpec>),
    /// Creates or replaces a binding.
    Binding(SpecDocument<ClusterObjectId, BindingSpec>),
}

impl PutDocument {
    /// Makes the document of a pool.
    pub fn pool(name: impl Into<String>, spec: PoolSpec) -> Self {
        Self::Pool(SpecDocument::new(
            ClusterObjectId { name: name.into() },
            Box::new(spec),
        ))
    }

    /// Makes the document of a template.
    pub fn template(name: impl Into<String>, template: Template) -> Self {
        Self::Template {
            name: name.into(),
            template: Box::new(template),
            version: None,
        }
    }

    /// Makes the document of the cluster.
    pub fn cluster(terms: ClusterSpec) -> Self {
        Self::Cluster(SpecDocument::new(SingletonId {}, terms))
    }

    /// Makes the document of the topology.
    pub fn topology(terms: TopologySpec) -> Self {
        Self::Topology(SpecDocument::new(SingletonId {}, terms))
    }

    /// Makes the document of a validation.
    pub fn validation(name: impl Into<String>, terms: ValidationSpec) -> Self {
        Self::Validation(SpecDocument::new(
            ClusterObjectId { name: name.into() },
            terms,
        ))
    }

    /// Makes the document of a platform.
    pub fn platform(pool: impl Into<String>, name: impl Into<String>, spec: PlatformSpec) -> Self {
        let names = PoolObjectId {
            pool: pool.into(),
            name: name.into(),
        };
        Self::Platform(SpecDocument::new(names, spec))
    }

    /// Makes the document of a policy.
    pub fn policy(pool: impl Into<String>, subject: impl Into<String>, spec: PolicySpec) -> Self {
        let names = PolicyId {
            pool: pool.into(),
            subject: subject.into(),
        };
        Self::Policy(SpecDocument::new(names, spec))
    }

    /// Makes the document of a role.
    pub fn role(name: impl Into<String>, terms: RoleSpec) -> Self {
        Self::Role(SpecDocument::new(
            ClusterObjectId { name: name.into() },
            terms,
        ))
    }

    /// Makes the document of a binding.
    pub fn binding(name: impl Into<String>, terms: BindingSpec) -> Self {
        Self::Binding(SpecDocument::new(
            ClusterObjectId { name: name.into() },
            terms,
        ))
    }
}

/// Names an object to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum DeleteDocument {
    /// A pool with its policies. The pool must have no nodes.
    Pool {
        /// Name of the pool.
        name: String,
    },
    /// A subject's policy in a pool.
    Policy {
        /// Name of the pool.
        pool: String,
        /// The subject that the policy applies to.
        subject: String,
    },
    /// A validation. No pool may reference it.
    Validation {
        /// Name of the validation.
        name: String,
    },
    /// A platform declared by a pool.
    Platform {
        /// Name of the pool.
        pool: String,
        /// Name of the platform.
        name: String,
    },
    /// A template. No pool may reference it.
    Template {
        /// Name of the template.
        name: String,
    },
    /// A role that no binding or token uses.
    Role {
        /// Name of the role.
        name: String,
    },
    /// A binding, by name.
    Binding {
        /// Name of the binding.
        name: String,
    },
}
