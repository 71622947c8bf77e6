//! Changes of the terms of pools and of subjects in them: how they are asked for, and what is told of them.

mod access;
mod outcome;
mod touched;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::{NamedPlatform, PolicyRequest, PoolDefaults, PoolMaxima, PoolRequest};
use crate::access::{Member, Pattern, Rule};
use crate::amount::Key;
use crate::cluster::{ClusterTerms, DefaultPool, SubjectTerms};
use crate::id::{PlatformName, RoleName, Subject, ValidationName};
use crate::platform::terms::{HardwareSelector, PlatformTerms, UnmatchedPlatform};
use crate::step::OnPreempt;
use crate::template::Template;
use crate::validation::{Assertion, ValidationTerms};

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
    Pool {
        /// Its name.
        name: String,
        /// For people.
        #[serde(default)]
        description: String,
        /// Capacity by key, where it is declared; what is not is what its nodes report.
        #[serde(default)]
        capacity: BTreeMap<Key, u64>,
        /// For how long after its start a run is spared by others' priority and reclaim, such as `10m`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_runtime: Option<String>,
        /// Capabilities that its nodes must have, such as `kill` or `devices`; one that lacks any gets no new work.
        #[serde(default)]
        require: Vec<String>,
        /// What whoever submits to it is told while it takes no new steps; it takes them where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        maintenance: Option<String>,
        /// What holds for its steps where they say nothing themselves.
        #[serde(default, skip_serializing_if = "PoolDefaults::is_empty")]
        defaults: PoolDefaults,
        /// What its steps may say at most.
        #[serde(default, skip_serializing_if = "PoolMaxima::is_empty")]
        max: PoolMaxima,
        /// What may happen to its steps when they must give way; anything where it is empty.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        on_preempt_allowed: BTreeSet<OnPreempt>,
        /// The documents of assertions that its steps must keep.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        validations: Vec<ValidationName>,
        /// The platform of its steps that name none; any where it is absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default_platform: Option<PlatformName>,
        /// What becomes of a request for a platform that it declares and of which it has no host: `reject`, or `wait`.
        #[serde(default, skip_serializing_if = "super::is_reject")]
        unmatched_platform: UnmatchedPlatform,
        /// The platforms that it declares, and no others. Where they are absent it declares those alone that documents
        /// of their own declare in the same call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        platforms: Option<Vec<NamedPlatform>>,
        /// Templates that lie under its steps, the lowest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        templates: Vec<String>,
        /// The version that it must have; 0 is that it must not be there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// The cluster as a whole.
    Cluster {
        /// Where steps go that name no pool.
        #[serde(default, skip_serializing_if = "DefaultPool::is_empty")]
        default_pool: DefaultPool,
        /// Where those of a subject go instead.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        subjects: BTreeMap<Subject, SubjectTerms>,
        /// The version that it must have; 0 is that nobody has set any terms.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// A platform of a pool.
    Platform {
        /// The pool.
        pool: String,
        /// Its name.
        name: String,
        /// For people.
        #[serde(default)]
        description: String,
        /// Which GPUs and hosts are of it; all of the pool where it says nothing.
        #[serde(default)]
        selector: HardwareSelector,
        /// What goes over the templates of its pool where a step is granted hardware of it.
        #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
        overrides: Option<Box<Template>>,
        /// The documents of assertions that steps must keep which may be granted hardware of it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        validations: Vec<ValidationName>,
        /// The version that it must have; 0 is that it must not be there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// The binding of a subject to a pool.
    Policy {
        /// The pool.
        pool: String,
        /// Who.
        subject: String,
        /// Higher is preferred.
        #[serde(default)]
        priority: u64,
        /// What is kept for the subject, by key.
        #[serde(default)]
        reserved: BTreeMap<Key, u64>,
        /// What it may use at most, by key; a key that is not named is bounded by the pool alone.
        #[serde(default)]
        limit: BTreeMap<Key, u64>,
        /// The version that it must have; 0 is that it must not be there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// A document of assertions over what is submitted.
    Validation {
        /// Its name.
        name: String,
        /// For people.
        #[serde(default)]
        description: String,
        /// Each of which a step must keep.
        assertions: Vec<Assertion>,
        /// The version that it must have; 0 is that it must not be there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
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
    Role {
        /// Its name.
        name: String,
        /// For people.
        #[serde(default)]
        description: String,
        /// Its rules. Their order does not matter: one that denies wins.
        #[serde(default)]
        rules: Vec<Rule>,
        /// The version that it must have; 0 is that it must not be there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// Who has which roles.
    Binding {
        /// Its name.
        name: String,
        /// For people.
        #[serde(default)]
        description: String,
        /// The roles.
        #[serde(default)]
        roles: Vec<RoleName>,
        /// In these pools alone; in any where it is empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pools: Vec<Pattern>,
        /// For these subjects alone; for any where it is empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        subjects: Vec<Pattern>,
        /// To whom they are given.
        #[serde(default)]
        members: Vec<Member>,
        /// The version that it must have; 0 is that it must not be there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
}

impl PutDocument {
    /// A pool.
    pub fn pool(name: impl Into<String>, request: PoolRequest) -> Self {
        let PoolRequest {
            description,
            capacity,
            min_runtime,
            require,
            maintenance,
            defaults,
            max,
            on_preempt_allowed,
            validations,
            default_platform,
            unmatched_platform,
            platforms,
            templates,
        } = request;
        Self::Pool {
            name: name.into(),
            description,
            capacity,
            min_runtime,
            require,
            maintenance,
            defaults,
            max,
            on_preempt_allowed,
            validations,
            default_platform,
            unmatched_platform,
            platforms,
            templates,
            version: None,
        }
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
        let ClusterTerms {
            default_pool,
            subjects,
        } = terms;
        Self::Cluster {
            default_pool,
            subjects,
            version: None,
        }
    }

    /// A document of assertions.
    pub fn validation(name: impl Into<String>, terms: ValidationTerms) -> Self {
        let ValidationTerms {
            description,
            assertions,
        } = terms;
        Self::Validation {
            name: name.into(),
            description,
            assertions,
            version: None,
        }
    }

    /// A platform.
    pub fn platform(
        pool: impl Into<String>,
        name: impl Into<String>,
        terms: PlatformTerms,
    ) -> Self {
        let PlatformTerms {
            description,
            selector,
            overrides,
            validations,
        } = terms;
        Self::Platform {
            pool: pool.into(),
            name: name.into(),
            description,
            selector,
            overrides,
            validations,
            version: None,
        }
    }

    /// A policy.
    pub fn policy(
        pool: impl Into<String>,
        subject: impl Into<String>,
        request: PolicyRequest,
    ) -> Self {
        let PolicyRequest {
            priority,
            reserved,
            limit,
        } = request;
        Self::Policy {
            pool: pool.into(),
            subject: subject.into(),
            priority,
            reserved,
            limit,
            version: None,
        }
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
