//! The core of the coordinator: the state of pools, queues, nodes and steps, and every decision about them.
//!
//! # How it is driven
//! The core does no I/O, reads no clock and draws nothing at random. Its driver
//! 1. restores it with [`Core::recover`] and starts its epoch with [`Core::start`],
//! 2. feeds it one [`Input`] at a time through [`Core::handle`], with a time that never goes back,
//! 3. drains [`Core::outputs`] and acts on them in the order in which they come, which is always: **commit the records
//!    (all of one drain together), then send, then reply, then arm timers**. Several inputs may be handled before one
//!    drain (group commit); a reply never goes out before the records that were drained with it are durable.
//!
//! # How it changes
//! `handle` decides and emits [`Record`]s; only [`State::apply`] changes the [`State`], by a record. The state is the
//! fold of its records, and a restart is `apply` over a snapshot and the records after it.
//!
//! # What it does not own
//! Sockets of sessions, durability, the JSON of the API and the bytes of the log belong to the coordinator.
#![no_std]
#![allow(
    missing_docs,
    reason = "fields and variants alone may lack docs, if their names say enough: tidy checks the rest"
)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod arrays;
mod attempts;
mod contact;
mod context;
mod core;
mod dependencies;
mod explain;
mod guard;
mod handlers;
mod hosts;
mod input;
mod inside;
mod invariant;
mod model;
mod output;
pub mod record;
mod recovery;
mod schedule;
mod services;
pub mod spec;
mod state;
mod submit;
mod terms;
#[cfg(test)]
mod tests;
mod unenforced;

pub use crate::core::Core;
pub use explain::{
    AwaitedRun, Explanation, HeldResources, NominationDetails, PastAttempt, PoolWait, RemedySearch,
};
pub use hosts::report::HELD_BACK;
pub use input::{
    Bounds, Desired, DesiredPool, Input, MoveTarget, NewJoinToken, NewStep, NodeChange, ReplyId,
    ServiceChange, ServiceReport, SessionId, Settings, StepAction, TermsChange, TimerKey,
};
pub use invariant::{Violation, check, check_record};
pub use model::access::{Access, AccessChange, StoredToken, Versioned};
pub use model::admission::{
    Admission, JoinToken, MAX_JOIN_TOKENS, NodeAccess, TokenStatus, TokenUse,
};
pub use model::array::{Array, ArrayPart, PartEnds};
pub use model::carving::{CarveRequest, Carving, FailedCarving};
pub use model::cluster::{Cluster, Route};
pub use model::join::{JoinApplication, Joined};
pub use model::node::{Cordon, Drain, GpuCordon, Node, PoolMove};
pub use model::placement::Placement;
pub use model::pool::{BoundPolicy, DeclaredPlatform, Pool};
pub use model::recovery::{FrozenOnHost, LogPoint, Recovery, RecoveryCause, RecoveryEnd, Warrant};
pub use model::service::{
    EndedService, FailedVersion, Replica, ReplicaBackoff, ReplicaEnd, ReplicaFailure, ReplicaPhase,
    Revision, Rollout, RolloutPhase, Service, environment_key,
};
pub use model::step::{
    Attempt, Endpoint, Finished, MAX_ATTEMPTS_KEPT, Part, PartPhase, Step, Suspension,
    SuspensionPhase,
};
pub use model::template::{Provenance, StoredTemplate};
pub use model::validation::Validation;
pub use output::preview::{CheckLine, CheckStatus, Preview, Previewed, Stage, StageReport};
pub use output::{
    Answer, Applied, AppliedChange, CarvePlan, CurrentTerms, JoinRefusal, Output, QueueBound,
    QueueFull, Refusal, Refused, Submitted, Use,
};
pub use record::{ClockJump, JoinTokenMade, LogEntry, Record, RecordSubject};
pub use services::{
    autoscale::{LoadHistory, ScaleDecision, ScaleInput},
    current_revisions,
    load::LoadSummary,
};
pub use state::access_snapshot::AccessSnapshot;
pub use state::carving::{CarveState, CarveStatus};
pub use state::{ApplyError, ListedStep, Mismatch, State, StepKind, StepRow, Steps, StoredState};
pub use submit::default_amounts::uncounted;
pub use submit::effective_spec::EffectiveStep;
pub use unenforced::Enforcement;

/// Whether hosts count a resource key, so that a pool has as much of it as its hosts report.
pub fn counted_by_hosts(key: &str) -> bool {
    sluice_scheduler::HOST_KEYS.contains(&key)
}
