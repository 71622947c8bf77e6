//! Allocations: steps without a program, which hold resources while somebody else works with them.

use alloc::string::String;
use core::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;
use crate::time::{Span, Time};

/// Shortest lease of an allocation.
pub const MIN_LEASE: Span = Span::from_secs(5);

/// Longest lease of an allocation.
pub const MAX_LEASE: Span = Span::from_secs(7 * 24 * 3600);

/// Lease of an allocation that sets none.
pub const DEFAULT_LEASE: Span = Span::from_secs(120);

/// State of the work for which an allocation is held, as its holder reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HolderState {
    /// The work was submitted to whatever runs it.
    Submitted,
    /// The work runs.
    Running,
    /// Nothing runs at the moment.
    Idle,
}

impl HolderState {
    /// All states, in display order.
    pub const ALL: [Self; 3] = [Self::Submitted, Self::Running, Self::Idle];

    /// The word as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Running => "running",
            Self::Idle => "idle",
        }
    }
}

impl fmt::Display for HolderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Terms on which an allocation may be taken back from its holder. The names are those of ZenML's resource requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReclaimTolerance {
    /// Not preemptible by any step.
    None,
    /// Preemptible: its holder is told, and has the grace period to release it.
    Coordinated,
    /// Preemptible without any grace period.
    Any,
}

/// Lease of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lease {
    /// Time at which the allocation ends unless its holder renews it before.
    pub until: Time,
    /// Time for which the last renewal holds.
    pub span: Span,
    /// State of the holder's work, as last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderState>,
}

impl Lease {
    /// The lease of an allocation that is submitted now.
    pub fn new(now: Time, lease: Span) -> Self {
        Self {
            until: now + lease,
            span: lease,
            holder: None,
        }
    }
}

/// State of an allocation, by that of the step that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AllocationState {
    /// Waiting for its resources, or for its hosts to set them aside.
    Queued,
    /// Resources are set aside for it on its hosts.
    Allocated,
    /// Giving way to another step or to a drain: its holder has until the deadline to release it.
    Preempting,
    /// Taken back for another step or a drain.
    Preempted,
    /// Released, and its resources are not seen free yet.
    Releasing,
    /// Released by its holder.
    Released,
    /// Not renewed in time, or ended because it waited or lasted for longer than it allows.
    Expired,
    /// Never granted, as its reason says.
    Rejected,
    /// Ended without its holder, such as with a lost host.
    Lost,
}

impl AllocationState {
    /// All states, in display order.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Allocated,
        Self::Preempting,
        Self::Preempted,
        Self::Releasing,
        Self::Released,
        Self::Expired,
        Self::Rejected,
        Self::Lost,
    ];

    /// The word as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Allocated => "allocated",
            Self::Preempting => "preempting",
            Self::Preempted => "preempted",
            Self::Releasing => "releasing",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for AllocationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The parts of a step that belong to an allocation alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Allocation")
)]
pub struct AllocationView {
    /// State of the allocation.
    pub state: AllocationState,
    /// Time for which a renewal holds, such as `2m`, unless it says otherwise.
    pub lease: String,
    /// Time at which it ends unless it is renewed before; absent if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// State of its holder's work, as last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderState>,
    /// Time until which its holder may release it by itself, if it is being preempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_by: Option<Timestamp>,
}

/// Request body of a renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RenewalRequest {
    /// State of the holder's work. If absent, the last report stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<HolderState>,
    /// Time until the next renewal must come, such as `5m`; the allocation's own `lease` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

/// Parses the lease of an allocation.
///
/// # Errors
/// If it is no duration, or too short or too long.
pub fn check_lease(text: &str) -> Result<Span, FieldError> {
    let wrong = |e: &dyn fmt::Display| FieldError::new(ErrorCode::InvalidDuration, "lease", e);
    let span: Span = text.parse().map_err(|e| wrong(&e))?;
    if span < MIN_LEASE || span > MAX_LEASE {
        let why = alloc::format!("{span} is not between {MIN_LEASE} and {MAX_LEASE}");
        return Err(wrong(&why));
    }
    Ok(span)
}
