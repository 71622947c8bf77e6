//! What came of changes of terms: each with what was there before and is after. Who reads them takes the terms as fields
//! of whatever name.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::{InUseView, PreemptedView};
use crate::access::{BindingSpec, RoleSpec};
use crate::cluster::{DefaultPool, SubjectSpec};
use crate::id::Subject;
use crate::platform::spec::{PlatformSpec, PlatformSpecs};
use crate::pool::{PolicySpec, PoolSpec, ResourceTable};
use crate::template::Template;
use crate::validation::Assertion;

/// What changes of terms mean; made, or only looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Applied")
)]
pub struct ApplyView<T = SpecView> {
    /// Whether nothing was changed, and this is what it would mean.
    pub dry_run: bool,
    /// What came of each change: those to put first, then those to delete, in the order of the call.
    pub changes: Vec<SpecChangeView<T>>,
    /// Who uses what they take away. Where it is not empty they are made by force alone.
    pub in_use: Vec<InUseView>,
    /// Steps that run and that others may make give way now, and could not before.
    pub exposed: Vec<String>,
    /// Steps that give way at once.
    pub preempted: Vec<PreemptedView>,
    /// Steps that waited and could never start any more.
    pub rejected: Vec<String>,
}

/// What came of one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Change")
)]
pub struct SpecChangeView<T = SpecView> {
    /// What kind of thing it is.
    pub kind: DocumentKind,
    /// The pool; `None` where it is the cluster, a role or a binding.
    pub pool: Option<String>,
    /// Who, where it is a policy.
    pub subject: Option<String>,
    /// Its name, where it is of no pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its name, where it is a platform.
    #[serde(default)]
    pub platform: Option<String>,
    /// What came of it.
    pub outcome: ChangeOutcome,
    /// What was there.
    pub before: Option<T>,
    /// What is there.
    pub after: Option<T>,
}

/// Kinds of things that have terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "TermsKind"))]
#[serde(rename_all = "snake_case")]
pub enum DocumentKind {
    /// A pool.
    Pool,
    /// The binding of a subject to a pool.
    Policy,
    /// The cluster as a whole.
    Cluster,
    /// A document of assertions.
    Validation,
    /// A platform of a pool.
    Platform,
    /// A template.
    Template,
    /// What somebody may do.
    Role,
    /// Who has which roles.
    Binding,
}

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeOutcome {
    /// It was not there.
    Created,
    /// It is other than it was.
    Changed,
    /// It was so already.
    Unchanged,
    /// It is there no longer.
    Deleted,
}

/// Terms as a change found or left them: the fields of one kind of thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Terms")
)]
#[serde(untagged)]
pub enum SpecView {
    /// Of a pool.
    Pool {
        /// Capacity by key, where it is declared.
        capacity: ResourceTable,
        /// The platforms that it declares, where the change lists them.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        platforms: PlatformSpecs,
        /// The rest.
        #[serde(flatten)]
        spec: Box<PoolSpec>,
    },
    /// Of a platform.
    Platform {
        /// For people.
        description: String,
        /// The rest.
        #[serde(flatten)]
        spec: PlatformSpec,
    },
    /// Of a document of assertions.
    Validation {
        /// For people.
        description: String,
        /// What it asserts.
        assertions: Vec<Assertion>,
    },
    /// Of a template.
    Template {
        /// What it says.
        template: Box<Template>,
    },
    /// Of the cluster.
    Cluster {
        /// Where steps go that name no pool.
        default_pool: DefaultPool,
        /// Where the steps of a subject go that name no pool.
        subjects: BTreeMap<Subject, SubjectSpec>,
    },
    /// Of a policy.
    Policy(PolicySpec),
    /// Of a role.
    Role {
        /// All of it.
        role: RoleSpec,
    },
    /// Of a binding.
    Binding {
        /// All of it.
        binding: BindingSpec,
    },
}
