//! Changes of the terms of pools and of subjects in them: how they are asked for, and what is told of them.

mod outcome;
mod touched;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::access::{BindingTerms, RoleTerms};
use crate::beside::{Beside, ByName, InPool, OfSubject, TheOne};
use crate::cluster::ClusterTerms;
use crate::platform::terms::PlatformSpec;
use crate::pool::{PolicySpec, PoolSpec};
use crate::template::Template;
use crate::validation::ValidationTerms;

pub use outcome::{ApplyView, ChangeOutcome, TermsChangeView, TermsKind, TermsView};
pub use touched::{PreemptedView, UseView};

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
    Pool(Beside<ByName, Box<PoolSpec>>),
    /// The cluster as a whole.
    Cluster(Beside<TheOne, ClusterTerms>),
    /// A platform of a pool.
    Platform(Beside<InPool, PlatformSpec>),
    /// The binding of a subject to a pool.
    Policy(Beside<OfSubject, PolicySpec>),
    /// A document of assertions over what is submitted.
    Validation(Beside<ByName, ValidationTerms>),
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
    Role(Beside<ByName, RoleTerms>),
    /// Who has which roles.
    Binding(Beside<ByName, BindingTerms>),
}

impl PutDocument {
    /// A pool.
    pub fn pool(name: impl Into<String>, spec: PoolSpec) -> Self {
        Self::Pool(Beside::new(ByName { name: name.into() }, Box::new(spec)))
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
    pub fn cluster(terms: ClusterTerms) -> Self {
        Self::Cluster(Beside::new(TheOne {}, terms))
    }

    /// A document of assertions.
    pub fn validation(name: impl Into<String>, terms: ValidationTerms) -> Self {
        Self::Validation(Beside::new(ByName { name: name.into() }, terms))
    }

    /// A platform.
    pub fn platform(pool: impl Into<String>, name: impl Into<String>, spec: PlatformSpec) -> Self {
        let names = InPool {
            pool: pool.into(),
            name: name.into(),
        };
        Self::Platform(Beside::new(names, spec))
    }

    /// A policy.
    pub fn policy(pool: impl Into<String>, subject: impl Into<String>, spec: PolicySpec) -> Self {
        let names = OfSubject {
            pool: pool.into(),
            subject: subject.into(),
        };
        Self::Policy(Beside::new(names, spec))
    }

    /// A role.
    pub fn role(name: impl Into<String>, terms: RoleTerms) -> Self {
        Self::Role(Beside::new(ByName { name: name.into() }, terms))
    }

    /// A binding.
    pub fn binding(name: impl Into<String>, terms: BindingTerms) -> Self {
        Self::Binding(Beside::new(ByName { name: name.into() }, terms))
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
