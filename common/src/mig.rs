//! Slices of GPUs (MIG instances): their profiles, and requests for them. A request is for whole GPUs or for slices of
//! one profile, never for both.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::amount::MGPU_A_GPU;

/// Longest profile, in bytes.
const MAX_PROFILE_BYTES: usize = 32;

/// Compute slices of a GPU, by which profiles are counted.
const MAX_SLICES: u64 = 7;

/// Profiles of models whose GPUs have four compute slices: A30 and RTX PRO 6000 Blackwell. `1g.24gb` is a profile of
/// theirs and of GPUs with seven; it counts as one of seven.
const OF_FOUR: [&str; 5] = ["1g.6gb", "2g.12gb", "4g.24gb", "2g.48gb", "4g.96gb"];

/// Profile of a MIG instance as NVIDIA writes it: `3g.40gb`, `1g.10gb+me`, or with a part of an instance's compute
/// slices `1c.3g.40gb`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(with = "String")
)]
#[serde(try_from = "String", into = "String")]
pub struct MigProfile(String);

/// Error for a text that is not a MIG profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a MIG profile: write one such as `3g.40gb`, as `sluice get nodes` shows it"
)]
pub struct MigProfileError {
    /// The rejected text, escaped.
    pub text: String,
}

impl MigProfile {
    /// A profile as a driver reports it, whatever its form. No request names one that is not well-formed.
    pub fn detected(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The profile as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Thousandths of a GPU that a slice counts for: its part of the GPU's compute slices, rounded down. One seventh if
    /// the profile does not tell.
    pub fn mgpu(&self) -> u64 {
        let slices = Self::compute_slices(&self.0).unwrap_or(1);
        let plain = self.0.split('+').next().unwrap_or_default();
        let all = match OF_FOUR.iter().any(|profile| plain.ends_with(profile)) {
            true => 4,
            false => MAX_SLICES,
        };
        (slices * MGPU_A_GPU / all).min(MGPU_A_GPU)
    }

    /// Whether a document may name the profile.
    pub fn is_well_formed(&self) -> bool {
        self.0.parse::<Self>().is_ok()
    }

    /// Whether it is a whole instance, and not a part of the compute slices of one.
    pub fn is_instance(&self) -> bool {
        !self.0.contains("c.")
    }

    /// Compute slices of an instance; `None` if the profile does not tell.
    fn compute_slices(text: &str) -> Option<u64> {
        let plain = text.split('+').next()?;
        let mut parts = plain.rsplit('.');
        let memory = parts.next()?.strip_suffix("gb")?;
        let slices = number(parts.next()?.strip_suffix('g')?)?;
        let part = parts.next().map(|part| number(part.strip_suffix('c')?));
        let is_whole = parts.next().is_none();
        let slices = match part {
            None => slices,
            Some(part) => part.filter(|part| *part <= slices)?,
        };
        let is_known = (1..=MAX_SLICES).contains(&slices) && number(memory)? > 0;
        (is_known && is_whole).then_some(slices)
    }
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

impl FromStr for MigProfile {
    type Err = MigProfileError;

    fn from_str(text: &str) -> Result<Self, MigProfileError> {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".+-".contains(&b);
        let is_short = text.len() <= MAX_PROFILE_BYTES && text.bytes().all(known);
        match is_short && Self::compute_slices(text).is_some() {
            true => Ok(Self(text.to_owned())),
            false => Err(MigProfileError {
                text: text.escape_default().to_string(),
            }),
        }
    }
}

impl TryFrom<String> for MigProfile {
    type Error = MigProfileError;
    fn try_from(text: String) -> Result<Self, MigProfileError> {
        text.parse()
    }
}

impl From<MigProfile> for String {
    fn from(profile: MigProfile) -> String {
        profile.0
    }
}

impl fmt::Display for MigProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Cuts slices, their number given by profile, from as few GPUs as they fill in this order: each slice with the number of
/// its GPU, from 0.
pub fn cut_in_order(
    slices: &BTreeMap<MigProfile, u64>,
) -> impl Iterator<Item = (u64, &MigProfile)> {
    let (mut gpus, mut left) = (0, 0);
    let each = slices.iter();
    let each = each.flat_map(|(profile, count)| (0..*count).map(move |_| profile));
    each.map(move |profile| {
        if left < profile.mgpu() {
            (gpus, left) = (gpus + 1, MGPU_A_GPU);
        }
        left -= profile.mgpu();
        (gpus - 1, profile)
    })
}

/// Class of the GPUs that a step may be granted: whole ones, or slices of one profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuClass {
    /// GPUs that are not cut into slices.
    #[default]
    Whole,
    /// MIG instances of a profile.
    Slice(MigProfile),
}

impl GpuClass {
    /// Profile of slices of the class; `None` for whole GPUs.
    pub const fn profile(&self) -> Option<&MigProfile> {
        match self {
            Self::Whole => None,
            Self::Slice(profile) => Some(profile),
        }
    }

    /// Thousandths of a GPU that one of the class counts for; never 0.
    pub fn mgpu(&self) -> u64 {
        match self {
            Self::Whole => MGPU_A_GPU,
            Self::Slice(profile) => profile.mgpu(),
        }
    }
}

/// Request for slices of GPUs on each host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MigRequest {
    /// Profile of the slices, such as `3g.40gb`.
    pub profile: MigProfile,
    /// Number of slices per host; 1 if absent. A process that uses CUDA sees one of them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
}

const fn one() -> u64 {
    1
}

fn is_one(count: &u64) -> bool {
    *count == one()
}

/// Reads texts such as `3g.40gb` and `3g.40gb:2`.
impl FromStr for MigRequest {
    type Err = MigRequestError;

    fn from_str(text: &str) -> Result<Self, MigRequestError> {
        let (profile, count) = text.split_once(':').unwrap_or((text, "1"));
        let count = number(count).filter(|count| *count > 0);
        Ok(Self {
            profile: profile.parse()?,
            count: count.ok_or_else(|| MigRequestError::Count {
                text: text.escape_default().to_string(),
            })?,
        })
    }
}

/// Error for a text that is not a request for slices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigRequestError {
    /// The profile is not well-formed.
    #[error(transparent)]
    Profile(#[from] MigProfileError),
    /// The text behind the `:` is not a count.
    #[error("`{text}` has no number of slices behind `:`: write `3g.40gb` for one, or `3g.40gb:2`")]
    Count {
        /// The rejected text, escaped.
        text: String,
    },
}

impl fmt::Display for MigRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile, count } = self;
        match count {
            1 => write!(f, "{profile}"),
            count => write!(f, "{profile}:{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_as_nvidia_writes_them() {
        for (text, slices) in [
            ("1g.10gb", 1),
            ("3g.40gb", 3),
            ("7g.80gb", 7),
            ("1g.10gb+me", 1),
            ("1g.24gb+me.all", 1),
            ("1c.3g.40gb", 1),
            ("2c.4g.20gb", 2),
        ] {
            assert_eq!(text.parse::<MigProfile>().unwrap().as_str(), text);
            assert_eq!(MigProfile::compute_slices(text), Some(slices), "{text}");
        }
        for text in [
            "",
            "3g",
            "40gb",
            "3g.40",
            "3g.gb",
            "0g.5gb",
            "8g.80gb",
            "3G.40GB",
            "4c.3g.40gb",
            "1x.1c.3g.40gb",
            "unknown",
            "3g.40gb\n",
            "+3g.40gb",
            "3g.0gb",
        ] {
            let refused = text.parse::<MigProfile>().unwrap_err().to_string();
            assert!(refused.contains("is not a MIG profile"), "{text}");
        }
    }

    #[test]
    fn a_slice_counts_for_its_part_of_the_compute_slices() {
        for (profile, mgpu) in [
            ("1g.10gb", 142),
            ("1g.20gb", 142),
            ("1g.10gb+me", 142),
            ("2g.20gb", 285),
            ("3g.40gb", 428),
            ("4g.40gb", 571),
            ("7g.80gb", 1000),
            ("1c.3g.40gb", 142),
            ("2g.12gb", 500),
            ("2g.12gb+me", 500),
            ("1g.12gb", 142),
            ("4g.96gb", 1000),
            ("unknown", 142),
        ] {
            assert_eq!(MigProfile::detected(profile).mgpu(), mgpu, "{profile}");
        }
        assert_eq!(GpuClass::Whole.mgpu(), 1000);
    }

    #[test]
    fn a_request_names_a_profile_and_may_name_a_count() {
        for (text, count) in [("3g.40gb", 1), ("3g.40gb:2", 2), ("1g.10gb+me:12", 12)] {
            let request: MigRequest = text.parse().unwrap();
            assert_eq!(
                (request.count, request.to_string()),
                (count, text.to_owned())
            );
        }
        for text in [
            "3g.40gb:",
            "3g.40gb:0",
            "3g.40gb:two",
            "3g.40gb:-1",
            "h100:1",
        ] {
            assert!(text.parse::<MigRequest>().is_err(), "{text}");
        }
        let written = r#"{"profile":"3g.40gb"}"#;
        let request: MigRequest = serde_json::from_str(written).unwrap();
        assert_eq!(request.count, 1);
        assert_eq!(serde_json::to_string(&request).unwrap(), written);
    }
}
