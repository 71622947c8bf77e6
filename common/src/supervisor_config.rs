//! What `supervisor.toml` says, and whom it means on a host. `sluice-helper` finds it out and the supervisor obeys it; both are of one installation, so
//! nothing here is kept for an older one.
//!
//! What the helper has understood is checked again by the supervisor where a promise hangs on it.

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

/// Most bytes of an answer of the helper: thousands of users, each with the longest name.
pub const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The file, understood.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorConfig {
    /// Whose agent may connect, beside root and the supervisor's own user.
    pub agent: Option<UserRef>,
    /// How the log is written.
    pub log_format: Option<String>,
    /// Which lines are written, as the file has it: what goes before it is the command line's to know.
    pub log_filter: Option<String>,
    /// The control group in which each step gets one of its own, as `--cgroup` says it.
    pub cgroup: Option<String>,
    /// The most processes of one step.
    pub pids_max: Option<u32>,
    /// How steps are kept from GPUs that they were not granted.
    pub device_filter: DeviceFilterChoice,
    /// Nodes of devices that are GPUs beside those of the driver.
    pub gpu_devices: Vec<String>,
    /// Replaces the loader's choice of the driver's library.
    pub cuda_library: Option<String>,
    /// Replaces the search for `cuda-checkpoint`.
    pub cuda_checkpoint: Option<String>,
    /// What is kept of output.
    pub output: OutputRetention,
    /// Whose leases count, and for how long.
    pub leases: LeaseRules,
    /// Who steps run as, and within what.
    pub steps: StepRules,
    /// What runs around attempts.
    pub hooks: HostHooks,
}

/// A user as an admin names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserRef {
    /// By name.
    Name(String),
    /// By number.
    Uid(u32),
}

impl UserRef {
    /// The number, if it is one.
    pub fn uid(&self) -> Option<u32> {
        match self {
            UserRef::Name(_) => None,
            UserRef::Uid(uid) => Some(*uid),
        }
    }

    /// As messages show it.
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

/// What steps may do on this host, whatever the agent says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRules {
    /// The file that says so; none where none was named.
    pub file: Option<String>,
    /// Who steps run as whose subject is not among `users`.
    pub default_user: Option<UserRef>,
    /// Who the steps of a subject run as.
    pub users: BTreeMap<Subject, UserRef>,
    /// The users that steps of several subjects may run as.
    pub shared_users: Vec<UserRef>,
    /// The users whose own steps run as them; `None` if it does not matter who submitted a step.
    pub as_submitter: Option<SubmitterUsers>,
    /// Which user ids are given to attempts for which no user is named.
    pub uid_range: UidRangeSetting,
    /// Whether any of these may be root.
    pub allow_root: bool,
    /// Where steps may work, beside their own directories; `None` is wherever their user may go.
    pub workdirs: Option<Vec<String>>,
    /// What new files are not allowed to others; `None` is as the supervisor was started.
    pub umask: Option<u32>,
    /// Limits of each process, by key; `u64::MAX` is no limit.
    pub limits: Vec<(String, u64)>,
    /// Whether steps are kept from changing which project a file is counted to. No key: the file system decides.
    pub keep_projects: bool,
}

impl StepRules {
    /// The file, as messages call it.
    pub fn shown_file(&self) -> String {
        let file = self.file.as_deref();
        file.unwrap_or("the file that --config names").to_string()
    }
}

/// The users whose own steps run as them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitterUsers {
    /// The host's user for each submitter.
    pub users: BTreeMap<UserName, UserRef>,
    /// What becomes of the steps of all others.
    pub others: OtherSubmitters,
}

/// What becomes of a step whose submitter is not listed, or not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherSubmitters {
    /// It is refused.
    #[default]
    Refuse,
    /// It runs as if there were no list.
    AsUsual,
}

/// Which user ids are given to attempts, each to one at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UidRangeSetting {
    /// The range that is set aside for it where the file says nothing.
    #[default]
    Default,
    /// From the first to the last.
    Given([u32; 2]),
    /// None: then every subject needs a user.
    Nothing,
}

impl UidRangeSetting {
    /// The range; `None` where no attempt gets a user id of its own.
    ///
    /// # Errors
    /// Where the bounds are no range.
    pub fn uids(self) -> Result<Option<UidRange>, UidRangeError> {
        match self {
            UidRangeSetting::Default => Ok(Some(UidRange::DEFAULT)),
            UidRangeSetting::Given([first, last]) => UidRange::new(first, last).map(Some),
            UidRangeSetting::Nothing => Ok(None),
        }
    }
}

/// The mechanism of device filters that the file wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceFilterChoice {
    /// The best that can be had.
    #[default]
    Auto,
    /// A program on the group of version 2, or none.
    Cgroup2,
    /// The devices controller of version 1, or none.
    Cgroup1,
    /// None: every step can open every GPU.
    None,
}

impl DeviceFilterChoice {
    /// Whether a mechanism may be used.
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

/// What is kept of the output of attempts, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRetention {
    /// How much of each stream of an attempt is kept, in bytes: the newest.
    pub max_bytes: u64,
    /// How long an attempt's directory is kept after the attempt was forgotten.
    pub keep_for: Span,
    /// How much all attempts' directories together may take before the oldest of forgotten ones go.
    pub total_bytes: u64,
    /// How long an attempt's working directory is kept after its end; zero is not at all.
    pub keep_work: Span,
    /// What the file system keeps free, in bytes, if not as by default.
    pub min_free: Option<u64>,
}

impl Default for OutputRetention {
    fn default() -> Self {
        Self {
            // Enough for every log that a person reads, and little beside the disk of a GPU host.
            max_bytes: 1 << 30,
            // Who looks for the cause of a failure looks within a week.
            keep_for: Span::from_secs(7 * 24 * 3600),
            // Of the outputs of many finished steps, little beside the disk of a GPU host.
            total_bytes: 64 << 30,
            keep_work: Span::ZERO,
            min_free: None,
        }
    }
}

/// Whose leases count, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRules {
    /// The cluster's key, if it is set by hand.
    pub key: Option<LeaseKey>,
    /// The longest that a lease may last, whoever gives it.
    pub longest: Span,
}

impl Default for LeaseRules {
    fn default() -> Self {
        Self {
            key: None,
            // Longer than any partition that a cluster is meant to bear.
            longest: Span::from_secs(24 * 3600),
        }
    }
}

/// Programs of the admin that run around attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostHooks {
    /// Before the step's program; where it fails, the step does not start here.
    pub prolog: Option<String>,
    /// After the last process of an attempt has ended.
    pub epilog: Option<String>,
    /// How long each may take.
    pub timeout: Span,
    /// Failed prologs in a row that are the host's failure and no longer only the step's.
    pub failures_max: u32,
    /// What says whether the host is fit.
    pub health_check: Option<HealthCheck>,
}

impl Default for HostHooks {
    fn default() -> Self {
        Self {
            prolog: None,
            epilog: None,
            // Enough to look at a GPU or to mount a file system.
            timeout: Span::from_secs(60),
            // One may be the step's bad luck, three in a row are the host's.
            failures_max: 3,
            health_check: None,
        }
    }
}

/// A check of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// What is run.
    pub program: String,
    /// How long it may take.
    pub timeout: Span,
    /// From the beginning of one to that of the next.
    pub interval: Span,
    /// Failures in a row by which the host is unfit.
    pub failures_max: u32,
}

/// Asks the helper who steps run as on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserLookup {
    /// Whom the file names.
    pub rules: StepRules,
    /// Whose agent may connect.
    pub agent_uid: Option<u32>,
    /// The supervisor's own user and groups, without variables.
    pub own: StepUser,
}

/// Who steps run as on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepUsers {
    /// Of subjects that are not listed.
    pub default: Option<StepUser>,
    /// By subject.
    pub by_subject: BTreeMap<Subject, StepUser>,
    /// By submitter, if it matters who submitted a step; `None` for a user whom the host does not have.
    pub by_submitter: Option<BTreeMap<UserName, Option<StepUser>>>,
    /// The ids that are given to attempts of whom nothing is said.
    pub own_range: Option<UidRange>,
    /// What is wrong with the first submitter whom the host lacks: a start goes on without.
    pub missing: Option<String>,
    /// What an admin should know that is no mistake.
    pub warnings: Vec<String>,
}

/// A user and the groups that steps run as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepUser {
    /// Who.
    pub uid: u32,
    /// The first of its groups.
    pub gid: u32,
    /// The others.
    pub groups: Vec<u32>,
    /// `HOME` and the like, as far as the database knows them. What a step brings itself goes before.
    pub variables: Vec<(String, String)>,
}

/// What is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ConfigFileError {
    /// The file is no text, or its disk fails.
    #[error("{0}")]
    Unreadable(String),
    /// A line is not understood.
    #[error("line {line}: {message}")]
    Line {
        /// Where, counted from 1.
        line: u64,
        /// Why.
        message: String,
    },
    /// A value means nothing.
    #[error("{key}: {message}")]
    Value {
        /// Of what.
        key: String,
        /// Why.
        message: String,
    },
}

impl ConfigFileError {
    /// What is wrong with the value of a key.
    pub fn value(key: &str, message: impl AsRef<str>) -> Self {
        Self::Value {
            key: escape_controls(key),
            message: escape_controls(message.as_ref()),
        }
    }
}

/// What the helper is to print for whoever checks a config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedConfig {
    /// What the file comes to, with what the command line and the environment say.
    pub config: SupervisorConfig,
    /// What an admin should know that is no mistake.
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
