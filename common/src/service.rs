//! Services: steps that the cluster keeps running in a number of replicas. [`crate::request`] defines the form in which
//! they are applied.

use core::fmt;

use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};

use crate::id::{NameError, ServiceName, StepId};
use crate::metric::MetricName;
use crate::pool::HostPlacement;
use crate::step::{StepSpec, serialize_without_env_values};
use crate::time::Span;

/// Most services of one subject: each has versions and counters in the store.
pub const MAX_SERVICES: usize = 1_000;

/// Most replicas of one service. Each is a step, and a change looks at all of them.
pub const MAX_REPLICAS: u32 = 1_000;

/// Longest name of a service, in bytes: its replicas have the ids `NAME-NUMBER`, which are names of at most 63 bytes.
pub const MAX_SERVICE_NAME_BYTES: usize = 50;

/// Longest `drain_timeout` of a service.
pub const MAX_DRAIN_TIMEOUT: Span = Span::from_secs(24 * 3600);

/// Longest `autoscaling.down_after` of a service.
pub const MAX_DOWN_AFTER: Span = Span::from_secs(24 * 3600);

/// `autoscaling.down_after` of a service that sets none.
pub const DEFAULT_DOWN_AFTER: Span = Span::from_secs(300);

/// Largest reported value of a metric.
pub const MAX_LOAD: f64 = 1_000_000_000.0;

/// [`MAX_LOAD`] in thousandths.
pub const MAX_LOAD_MILLI: u64 = 1_000_000_000_000;

/// Longest `progress_deadline` of a service.
pub const MAX_PROGRESS_DEADLINE: Span = Span::from_secs(7 * 24 * 3600);

/// Spec of a service: the step of its replicas, and how many there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServiceSpec {
    /// Number of replicas.
    pub scale: ScaleSpec,
    /// Terms of a change to another version.
    pub rollout: RolloutSpec,
    /// Whether its replicas are spread over hosts, which is the default, or placed as all steps of the pool.
    #[serde(
        default = "HostPlacement::of_services",
        skip_serializing_if = "HostPlacement::is_spread"
    )]
    pub placement: HostPlacement,
    /// The step of each replica. The values of its variables are stored apart.
    #[serde(serialize_with = "serialize_without_env_values")]
    pub replica: StepSpec,
}

/// The number of replicas of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScaleSpec {
    /// Fewest replicas. 0 lets the service sleep.
    pub min: u32,
    /// Most replicas that it may have.
    pub max: u32,
    /// Whether `max_replicas` names no limit, so that `max` is the limit of any service.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub unlimited: bool,
    /// Whether the number is fixed by `replicas`, so that `min` and `max` are equal.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub fixed: bool,
    /// Measured value that decides about the number between the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<ScaleMetric>,
    /// Target of the metric for each replica, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_milli: Option<u64>,
    /// Most requests that one replica is given at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u64>,
    /// Time for which fewer replicas must be enough before there are fewer.
    #[serde(default = "default_down_after")]
    pub down_after: Span,
}

fn default_down_after() -> Span {
    DEFAULT_DOWN_AFTER
}

impl ScaleSpec {
    /// A fixed number of replicas.
    pub const fn fixed(replicas: u32) -> Self {
        Self {
            min: replicas,
            max: replicas,
            unlimited: false,
            fixed: true,
            metric: None,
            target_milli: None,
            max_concurrency: None,
            down_after: DEFAULT_DOWN_AFTER,
        }
    }

    /// Number of replicas of a service that has `count` of them, or is new.
    pub fn count(&self, count: Option<u32>) -> u32 {
        let first = if self.fixed {
            self.min
        } else {
            self.min.max(1)
        };
        count
            .filter(|_| !self.fixed)
            .unwrap_or(first)
            .clamp(self.min, self.max)
    }
}

/// Measured value by which the number of replicas is decided. The first four have the names of ZenML's
/// `ResourceSettings`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ScaleMetric {
    /// Used CPU time, in percent of what a replica asks for.
    Cpu,
    /// Used memory, in percent of what a replica asks for.
    Memory,
    /// Requests under way.
    Concurrency,
    /// Requests per second.
    Rps,
    /// Time in which GPUs are busy, in percent of all GPUs of a replica.
    Gpu,
    /// The metric of this name, which replicas serve themselves.
    Named(MetricName),
}

/// Requests that a reporter counts for a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLoad {
    /// Requests under way or waiting, in thousandths.
    pub concurrency_milli: u64,
    /// Requests per second, in thousandths.
    pub rps_milli: u64,
}

impl ScaleMetric {
    /// The metrics of ZenML, in display order.
    pub const OF_ZENML: [Self; 4] = [Self::Cpu, Self::Memory, Self::Concurrency, Self::Rps];

    /// The word as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Concurrency => "concurrency",
            Self::Rps => "rps",
            Self::Gpu => "gpu",
            Self::Named(name) => name.as_str(),
        }
    }

    /// Reads a metric of ZenML.
    ///
    /// # Errors
    /// The text is not one of the four.
    pub fn of_zenml(text: &str) -> Result<Self, ScaleMetricError> {
        let mut known = Self::OF_ZENML.into_iter();
        let known = known.find(|metric| metric.as_str() == text);
        known.ok_or_else(|| ScaleMetricError {
            text: text.escape_default().to_string(),
        })
    }
}

impl fmt::Display for ScaleMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Error for a text that is not a metric of ZenML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a metric of ZenML: write cpu, memory, concurrency or rps, or name `gpu` or a metric of the replica in `autoscaling.metric`"
)]
pub struct ScaleMetricError {
    /// The rejected text, escaped.
    pub text: String,
}

/// Terms of a change of a service to another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RolloutSpec {
    /// Most replicas beyond the number that the service is to have.
    pub max_surge: u32,
    /// Most replicas that are missing from that number.
    pub max_unavailable: u32,
    /// Time between the removal of a replica from the endpoints and its stop.
    pub drain_timeout: Span,
    /// Time within which another replica must be ready. If none is, the change is rolled back.
    pub progress_deadline: Span,
}

impl Default for RolloutSpec {
    fn default() -> Self {
        Self {
            max_surge: 1,
            max_unavailable: 0,
            drain_timeout: Span::from_secs(30),
            progress_deadline: Span::from_secs(600),
        }
    }
}

/// State of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// All replicas are ready.
    Ready,
    /// Fewer replicas than wanted are ready.
    Starting,
    /// Replicas of another version take the places of the old ones.
    Rolling,
    /// Replicas end again and again, and are started with growing pauses.
    CrashLoop,
    /// No replica became ready within `progress_deadline`, and there is no version to go back to.
    Stalled,
    /// The service has no replica, because none is wanted.
    Sleeping,
    /// The service was deleted, and its replicas are stopping.
    Deleting,
}

impl ServiceState {
    /// All states, in display order.
    pub const ALL: [Self; 7] = [
        Self::Ready,
        Self::Starting,
        Self::Rolling,
        Self::CrashLoop,
        Self::Stalled,
        Self::Sleeping,
        Self::Deleting,
    ];

    /// The word as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Starting => "starting",
            Self::Rolling => "rolling",
            Self::CrashLoop => "crash_loop",
            Self::Stalled => "stalled",
            Self::Sleeping => "sleeping",
            Self::Deleting => "deleting",
        }
    }
}

impl fmt::Display for ServiceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The id of a replica.
///
/// # Errors
/// The name of the service is longer than [`MAX_SERVICE_NAME_BYTES`], which no service has.
pub fn replica_id(service: &ServiceName, number: u32) -> Result<StepId, NameError> {
    StepId::new(alloc::format!("{service}-{number}"))
}
