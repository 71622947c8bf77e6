//! Result of applying changes: each object's spec before and after. Readers take the specs as fields of any name.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::{CarvePlanView, InUseView, PreemptedView};
use crate::access::{BindingSpec, RoleSpec};
use crate::amount::table;
use crate::cluster::{DefaultPool, SubjectSpec};
use crate::id::Subject;
use crate::platform::spec::{PlatformSpec, PlatformSpecs};
use crate::pool::{PolicySpec, PoolSpec, ResourceTable};
use crate::template::Template;
use crate::topology::TopologyLevel;
use crate::validation::Assertion;

/// Result of applying changes, or of a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Applied")
)]
pub struct ApplyView<T = SpecView> {
    /// Whether this is a dry run that changed nothing.
    pub dry_run: bool,
    /// Result of each change: those of `put` first, then those of `delete`, in request order.
    pub changes: Vec<SpecChangeView<T>>,
    /// Users of what the changes remove. If not empty, the changes need `force`.
    pub in_use: Vec<InUseView>,
    /// Running steps that become preemptible by others through the changes.
    pub exposed: Vec<String>,
    /// Steps that are preempted at once.
    pub preempted: Vec<PreemptedView>,
    /// Queued steps that can never start after the changes.
    pub rejected: Vec<String>,
    /// Effects on GPUs that platforms want to be cut into slices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carvings: Vec<CarvePlanView>,
}

/// Result of one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Change")
)]
pub struct SpecChangeView<T = SpecView> {
    /// Kind of the object.
    pub kind: DocumentKind,
    /// The pool; `null` for the cluster, roles and bindings.
    pub pool: Option<String>,
    /// The subject, for a policy.
    pub subject: Option<String>,
    /// Name of an object that belongs to no pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of a platform.
    #[serde(default)]
    pub platform: Option<String>,
    /// Effect of the change.
    pub outcome: ChangeOutcome,
    /// Spec before the change.
    pub before: Option<T>,
    /// Spec after the change.
    pub after: Option<T>,
}

/// Kinds of objects that documents describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "TermsKind"))]
#[serde(rename_all = "snake_case")]
pub enum DocumentKind {
    /// A pool of hosts.
    Pool,
    /// A subject's policy in a pool.
    Policy,
    /// The cluster as a whole.
    Cluster,
    /// The topology of the cluster.
    Topology,
    /// A set of validation rules.
    Validation,
    /// A platform of a pool.
    Platform,
    /// A template for steps.
    Template,
    /// A role: a set of access rules.
    Role,
    /// A binding of members to roles.
    Binding,
}

/// Effect of a change on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeOutcome {
    /// The object did not exist before.
    Created,
    /// The object was modified.
    Changed,
    /// The object was already as requested.
    Unchanged,
    /// The object was deleted.
    Deleted,
}

/// An object's spec before or after a change: the fields of its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Terms")
)]
#[serde(untagged)]
pub enum SpecView {
    /// Spec of a pool.
    Pool {
        /// Declared capacity by key.
        #[serde(with = "table")]
        #[cfg_attr(
            feature = "schema",
            schemars(with = "BTreeMap<String, table::DocumentAmount>")
        )]
        capacity: ResourceTable,
        /// Declared platforms, if the change lists them.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        platforms: PlatformSpecs,
        /// The remaining fields.
        #[serde(flatten)]
        spec: Box<PoolSpec>,
    },
    /// Spec of a platform.
    Platform {
        /// Free text for people.
        description: String,
        /// The remaining fields.
        #[serde(flatten)]
        spec: PlatformSpec,
    },
    /// Spec of a validation.
    Validation {
        /// Free text for people.
        description: String,
        /// Assertions of the validation.
        assertions: Vec<Assertion>,
    },
    /// Spec of a template.
    Template {
        /// Fields of the template.
        template: Box<Template>,
    },
    /// Settings of the cluster.
    Cluster {
        /// Pools of steps that name no pool.
        default_pool: DefaultPool,
        /// Per-subject overrides of `default_pool`.
        subjects: BTreeMap<Subject, SubjectSpec>,
    },
    /// Topology of the cluster.
    Topology {
        /// Levels, the widest first.
        levels: Vec<TopologyLevel>,
    },
    /// Spec of a policy.
    Policy(PolicySpec),
    /// Spec of a role.
    Role {
        /// All fields of the role.
        role: RoleSpec,
    },
    /// Spec of a binding.
    Binding {
        /// All fields of the binding.
        binding: BindingSpec,
    },
}
