//! Contents of `supervisor.toml`, and the users that it refers to. `sluice-helper` parses the file and the supervisor
//! uses the result; both belong to one installation, so no compatibility is kept.
//!
//! The supervisor validates again whatever its guarantees depend on.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::config::escape_controls;
use crate::id::{Subject, UserName};
use crate::inventory::Mechanism;
use crate::lease::LeaseKey;
use crate::time::Span;
use crate::uid_range::{UidRange, UidRangeError};

/// Largest answer of the helper in bytes: thousands of users, each with the longest name.
pub const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Parsed config of the supervisor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorConfig {
    /// User whose agent may connect, besides root and the supervisor's own user.
    pub agent: Option<UserRef>,
    /// Format of the log.
    pub log_format: Option<String>,
    /// Log filter in the file; environment and flags override it.
    pub log_filter: Option<String>,
    /// Parent control group of the steps' groups, as for `--cgroup`.
    pub cgroup: Option<String>,
    /// Most processes per step.
    pub pids_max: Option<u32>,
    /// Mechanism that restricts steps to their granted GPUs.
    pub device_filter: DeviceFilterChoice,
    /// Device nodes of additional GPUs, besides those of the driver.
    pub gpu_devices: Vec<String>,
    /// Path of the CUDA driver library, instead of the loader's choice.
    pub cuda_library: Option<String>,
    /// Path of `cuda-checkpoint`, instead of a search.
    pub cuda_checkpoint: Option<String>,
    /// Rules for cutting GPUs into slices.
    pub carving: CarveRules,
    /// Retention of output.
    pub output: OutputRetention,
    /// Rules for leases.
    pub leases: LeaseRules,
    /// Users and restrictions of steps.
    pub steps: StepRules,
    /// Hooks that run for every attempt.
    pub hooks: HostHooks,
}

/// Reference to a user in the config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserRef {
    /// Name of the user.
    Name(String),
    /// Id of the user.
    Uid(u32),
}

impl UserRef {
    /// The user id, unless given by name.
    pub fn uid(&self) -> Option<u32> {
        match self {
            UserRef::Name(_) => None,
            UserRef::Uid(uid) => Some(*uid),
        }
    }

    /// Escaped text for messages.
    pub fn shown(&self) -> String {
        self.to_string().escape_debug().to_string()
    }
}

impl fmt::Display for UserRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UserRef::Name(name) => f.write_str(name),
            UserRef::Uid(uid) => write!(f, "{uid}"),
        }
    }
}

/// Restrictions on steps on this host, regardless of what the agent says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRules {
    /// The config file; `None` if none was given.
    pub file: Option<String>,
    /// User of steps whose subject is not in `users`.
    pub default_user: Option<UserRef>,
    /// Users by subject.
    pub users: BTreeMap<Subject, UserRef>,
    /// Users that steps of several subjects may share.
    pub shared_users: Vec<UserRef>,
    /// Users whose own steps run as them; `None` if the submitter does not matter.
    pub as_submitter: Option<SubmitterUsers>,
    /// Range of user ids for attempts without a configured user.
    pub uid_range: UidRangeSetting,
    /// Whether steps may run as root.
    pub allow_root: bool,
    /// Directories that steps may work in, besides their own; `None` for any that their user can access.
    pub workdirs: Option<Vec<String>>,
    /// Umask of steps; `None` for the supervisor's own.
    pub umask: Option<u32>,
    /// Limits of each process by key; `u64::MAX` is unlimited.
    pub limits: Vec<(String, u64)>,
    /// Whether steps are prevented from changing the project of a file. Not a config key: depends on the file system.
    pub keep_projects: bool,
}

impl StepRules {
    /// Path of the file for messages.
    pub fn shown_file(&self) -> String {
        let file = self.file.as_deref();
        file.unwrap_or("the file that --config names").to_string()
    }
}

/// Users whose own steps run as them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitterUsers {
    /// Host user for each submitter.
    pub users: BTreeMap<UserName, UserRef>,
    /// Treatment of all other submitters.
    pub others: OtherSubmitters,
}

/// Treatment of a step whose submitter is unknown or not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherSubmitters {
    /// The step is refused.
    #[default]
    Refuse,
    /// The step runs as without `as_submitter`.
    AsUsual,
}

/// User ids assigned to attempts, each to one attempt at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UidRangeSetting {
    /// The default range.
    #[default]
    Default,
    /// The range from the first to the last id.
    Given([u32; 2]),
    /// No range: every subject needs a configured user.
    Nothing,
}

impl UidRangeSetting {
    /// The range; `None` if attempts get no ids of their own.
    ///
    /// # Errors
    /// If the bounds are not a valid range.
    pub fn uids(self) -> Result<Option<UidRange>, UidRangeError> {
        match self {
            UidRangeSetting::Default => Ok(Some(UidRange::DEFAULT)),
            UidRangeSetting::Given([first, last]) => UidRange::new(first, last).map(Some),
            UidRangeSetting::Nothing => Ok(None),
        }
    }
}

/// Device filter mechanism in the config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceFilterChoice {
    /// The best available mechanism.
    #[default]
    Auto,
    /// A BPF program on the control group version 2.
    Cgroup2,
    /// The devices controller of version 1.
    Cgroup1,
    /// No filter: every step can open every GPU.
    None,
}

impl DeviceFilterChoice {
    /// Whether the config permits a mechanism.
    pub fn allows(self, mechanism: Mechanism) -> bool {
        match (self, mechanism) {
            (DeviceFilterChoice::Auto, Mechanism::Cgroup2 | Mechanism::Cgroup1)
            | (DeviceFilterChoice::Cgroup2, Mechanism::Cgroup2)
            | (DeviceFilterChoice::Cgroup1, Mechanism::Cgroup1) => true,
            (_, Mechanism::ProcessGroup | Mechanism::None)
            | (DeviceFilterChoice::Cgroup2, Mechanism::Cgroup1)
            | (DeviceFilterChoice::Cgroup1, Mechanism::Cgroup2)
            | (DeviceFilterChoice::None, _) => false,
        }
    }
}

/// Retention of the output of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRetention {
    /// Newest output kept per stream of an attempt, in bytes.
    pub max_bytes: u64,
    /// Time that a forgotten attempt's directory is kept.
    pub keep_for: Span,
    /// Space that all attempts' directories may take before the oldest forgotten ones are deleted, in bytes.
    pub total_bytes: u64,
    /// Most bytes of an attempt's own directory that are kept at the request of the step.
    pub kept_bytes: u64,
    /// Time that an attempt's working directory is kept after its end; zero deletes it at once.
    pub keep_work: Span,
    /// Free space to keep in the file system, in bytes; `None` for the default.
    pub min_free: Option<u64>,
}

impl Default for OutputRetention {
    fn default() -> Self {
        Self {
            // Enough for any log that a person reads, and small for the disk of a GPU host.
            max_bytes: 1 << 30,
            // Failures are usually investigated within a week.
            keep_for: Span::from_secs(7 * 24 * 3600),
            // Enough for many finished steps, and small for the disk of a GPU host.
            total_bytes: 64 << 30,
            // Results of many steps, and small for the disk of a GPU host.
            kept_bytes: 1 << 30,
            keep_work: Span::ZERO,
            min_free: None,
        }
    }
}

/// Rules for leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRules {
    /// Lease key of the cluster, if pinned in the config.
    pub key: Option<LeaseKey>,
    /// Longest lease that the host accepts.
    pub longest: Span,
}

impl Default for LeaseRules {
    fn default() -> Self {
        Self {
            key: None,
            // Longer than any network partition that a cluster should survive.
            longest: Span::from_secs(24 * 3600),
        }
    }
}

/// Rules for cutting GPUs into slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarveRules {
    /// Whether GPUs may be cut.
    pub is_allowed: bool,
    /// Path of NVIDIA's management library, instead of the loader's choice.
    pub library: Option<String>,
    /// Time limit for cutting one GPU.
    pub limit: Span,
}

impl Default for CarveRules {
    fn default() -> Self {
        Self {
            is_allowed: false,
            library: None,
            // A driver takes a few seconds to change the mode of a GPU and to make its instances.
            limit: Span::from_secs(60),
        }
    }
}

/// Hooks of the admin that run for every attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostHooks {
    /// Program run before the step's program; if it fails, the step does not start on this host.
    pub prolog: Option<String>,
    /// Program run after the last process of an attempt has ended.
    pub epilog: Option<String>,
    /// Time limit of each hook.
    pub timeout: Span,
    /// Consecutive prolog failures after which the host, not the step, is at fault.
    pub failures_max: u32,
    /// Check that determines whether the host is healthy.
    pub health_check: Option<HealthCheck>,
}

impl Default for HostHooks {
    fn default() -> Self {
        Self {
            prolog: None,
            epilog: None,
            // Enough to check a GPU or to mount a file system.
            timeout: Span::from_secs(60),
            // One failure may be the step's, three in a row are the host's.
            failures_max: 3,
            health_check: None,
        }
    }
}

/// Periodic health check of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// Program to run.
    pub program: String,
    /// Time limit of one check.
    pub timeout: Span,
    /// Time between the starts of two checks.
    pub interval: Span,
    /// Consecutive failures after which the host is unhealthy.
    pub failures_max: u32,
}

/// Request to the helper to resolve the users of steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserLookup {
    /// Rules with the user references to resolve.
    pub rules: StepRules,
    /// User id of the agent that may connect.
    pub agent_uid: Option<u32>,
    /// The supervisor's own user and groups, without variables.
    pub own: StepUser,
}

/// Resolved users of steps on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepUsers {
    /// User of subjects that are not listed.
    pub default: Option<StepUser>,
    /// Users by subject.
    pub by_subject: BTreeMap<Subject, StepUser>,
    /// Users by submitter, if submitters matter; `None` for a user that the host does not have.
    pub by_submitter: Option<BTreeMap<UserName, Option<StepUser>>>,
    /// Range of user ids for attempts without a configured user.
    pub own_range: Option<UidRange>,
    /// Message about the first submitter that the host lacks; not fatal.
    pub missing: Option<String>,
    /// Warnings for the admin.
    pub warnings: Vec<String>,
}

/// User and groups that a step runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepUser {
    /// Id of the user.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids.
    pub groups: Vec<u32>,
    /// Environment variables such as `HOME` from the user database. The step's own variables override them.
    pub variables: Vec<(String, String)>,
}

/// Error in the config file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ConfigFileError {
    /// The file cannot be read or is not text.
    #[error("{0}")]
    Unreadable(String),
    /// A line cannot be parsed.
    #[error("line {line}: {message}")]
    Line {
        /// Line number, starting at 1.
        line: u64,
        /// Message of the parser.
        message: String,
    },
    /// The value of a key is invalid.
    #[error("{key}: {message}")]
    Value {
        /// Name of the key.
        key: String,
        /// Why the value is invalid.
        message: String,
    },
}

impl ConfigFileError {
    /// Makes an error about the value of a key.
    pub fn value(key: &str, message: impl AsRef<str>) -> Self {
        Self::Value {
            key: escape_controls(key),
            message: escape_controls(message.as_ref()),
        }
    }
}

/// Result of a config check, printed by the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedConfig {
    /// The effective config, including command line and environment.
    pub config: SupervisorConfig,
    /// Warnings for the admin.
    pub warnings: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_says_which_mechanisms_may_be_used() {
        use Mechanism::{Cgroup1, Cgroup2, None, ProcessGroup};
        for (filter, admitted) in [
            (DeviceFilterChoice::Auto, &[Cgroup2, Cgroup1][..]),
            (DeviceFilterChoice::Cgroup2, &[Cgroup2]),
            (DeviceFilterChoice::Cgroup1, &[Cgroup1]),
            (DeviceFilterChoice::None, &[]),
        ] {
            for mechanism in [Cgroup2, Cgroup1, ProcessGroup, None] {
                let expected = admitted.contains(&mechanism);
                assert_eq!(filter.allows(mechanism), expected, "{filter:?} {mechanism}");
            }
        }
    }
}
