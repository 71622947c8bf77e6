//! What came of changes of terms: each with what was there before and is after.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::super::{PoolDefaults, PoolMaxima};
use super::{PreemptedView, UseView};
use crate::access::{BindingTerms, RoleTerms};
use crate::amount::Key;
use crate::cluster::{DefaultPool, SubjectTerms};
use crate::id::{PlatformName, Subject, ValidationName};
use crate::inventory::Capability;
use crate::platform::terms::{HardwareSelector, PlatformTerms, UnmatchedPlatform};
use crate::step::OnPreempt;
use crate::template::Template;
use crate::validation::Assertion;

/// What changes of terms mean; made, or only looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Applied")
)]
pub struct ApplyView {
    /// Whether nothing was changed, and this is what it would mean.
    pub dry_run: bool,
    /// What came of each change: those to put first, then those to delete, in the order of the call.
    pub changes: Vec<TermsChangeView>,
    /// Who uses what they take away. Where it is not empty they are made by force alone.
    pub in_use: Vec<UseView>,
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
pub struct TermsChangeView {
    /// What kind of thing it is.
    pub kind: TermsKind,
    /// The pool; `None` where it is the cluster or a template.
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
    pub before: Option<TermsView>,
    /// What is there.
    pub after: Option<TermsView>,
}

/// Kinds of things that have terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TermsKind {
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

/// Terms of a pool or of a subject in it; those of the other kind are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Terms")
)]
pub struct TermsView {
    /// Of a pool: for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Of a pool: capacity by key, where it is declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<BTreeMap<Key, u64>>,
    /// Of a pool: for how long after its start a run is spared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_runtime: Option<String>,
    /// Of a pool: capabilities that its nodes must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require: Option<BTreeSet<Capability>>,
    /// Of a pool: what whoever submits to it is told while it takes no new steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<String>,
    /// Of a pool: what holds for its steps where they say nothing themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<PoolDefaults>,
    /// Of a pool: what its steps may say at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<PoolMaxima>,
    /// Of a pool: what may happen to its steps when they must give way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_preempt_allowed: Option<BTreeSet<OnPreempt>>,
    /// Of a pool or a platform: the documents of assertions that its steps must keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validations: Option<Vec<ValidationName>>,
    /// Of a document: what it asserts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assertions: Option<Vec<Assertion>>,
    /// Of a pool: templates that lie under its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub templates: Option<Vec<String>>,
    /// Of a template: what it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Box<Template>>,
    /// Of the cluster: where steps go that name no pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_pool: Option<DefaultPool>,
    /// Of the cluster: where the steps of a subject go that name no pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects: Option<BTreeMap<Subject, SubjectTerms>>,
    /// Of a pool: the platform of its steps that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_platform: Option<PlatformName>,
    /// Of a pool: what becomes of a request for a platform that it declares and of which it has no host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmatched_platform: Option<UnmatchedPlatform>,
    /// Of a pool: the platforms that it declares, where the change lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platforms: Option<BTreeMap<PlatformName, PlatformTerms>>,
    /// Of a platform: which GPUs and hosts are of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<HardwareSelector>,
    /// Of a platform: what goes over the templates of its pool.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Box<Template>>,
    /// Of a policy: higher is preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u64>,
    /// Of a policy: what is kept for the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<BTreeMap<Key, u64>>,
    /// Of a policy: what it may use at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<BTreeMap<Key, u64>>,
    /// Of a role: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleTerms>,
    /// Of a binding: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingTerms>,
}
