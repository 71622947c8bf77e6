//! Cutting of whole GPUs into slices (MIG instances), which a platform asks for: layouts, orders and failures.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::amount::MGPU_A_GPU;
use crate::inventory::Gpu;
use crate::mig::{MigProfile, MigProfileError};

/// Most slices of one GPU: NVIDIA's models have at most seven.
pub const MAX_SLICES_PER_GPU: usize = 7;

/// Most GPUs of a host that are cut at a time; each further one waits.
pub const MAX_CARVINGS: usize = 64;

/// Slices that one whole GPU is cut into, as a platform lists them; none if it is to stay or become whole. Their order does
/// not matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(with = "Vec<MigProfile>")
)]
#[serde(try_from = "Vec<MigProfile>", into = "Vec<MigProfile>")]
pub struct MigLayout(Vec<MigProfile>);

/// Error for profiles that no GPU can have together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigLayoutError {
    /// The list has too many slices, or they are larger than a GPU.
    #[error(
        "these slices are more than one GPU has: list those of one GPU, such as `[3g.40gb, 3g.40gb]`"
    )]
    TooLarge,
    /// A profile is only a part of an instance.
    #[error("`{0}` shares its instance with others: list whole instances, such as `3g.40gb`")]
    Part(MigProfile),
}

impl MigLayout {
    /// The layout in the order in which equal layouts are equal.
    pub fn sorted(&self) -> GpuLayout {
        match self.0.is_empty() {
            true => GpuLayout::Whole,
            false => GpuLayout::slices(self.0.clone()),
        }
    }
}

impl TryFrom<Vec<MigProfile>> for MigLayout {
    type Error = MigLayoutError;

    fn try_from(profiles: Vec<MigProfile>) -> Result<Self, MigLayoutError> {
        let is_small = profiles.len() <= MAX_SLICES_PER_GPU;
        if !is_small || profiles.iter().map(MigProfile::mgpu).sum::<u64>() > MGPU_A_GPU {
            return Err(MigLayoutError::TooLarge);
        }
        match profiles.iter().find(|profile| !profile.is_instance()) {
            Some(part) => Err(MigLayoutError::Part(part.clone())),
            None => Ok(Self(profiles)),
        }
    }
}

impl From<MigLayout> for Vec<MigProfile> {
    fn from(layout: MigLayout) -> Self {
        layout.0
    }
}

/// Way in which a GPU is cut, or not. Equal layouts list equal slices in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GpuLayout {
    /// MIG is off.
    Whole,
    /// MIG is on, with instances of these profiles, sorted; none if empty.
    Slices(Vec<MigProfile>),
}

impl GpuLayout {
    /// MIG instances of these profiles.
    pub fn slices(mut profiles: Vec<MigProfile>) -> Self {
        profiles.sort_unstable();
        Self::Slices(profiles)
    }

    /// The layout of a GPU by its units, which are the GPU itself or its instances.
    pub fn of_units<'a>(units: impl Iterator<Item = &'a Gpu>) -> Self {
        let mut profiles = Vec::new();
        for unit in units {
            match &unit.mig {
                None => return Self::Whole,
                Some(mig) => profiles.push(MigProfile::detected(&mig.profile)),
            }
        }
        Self::slices(profiles)
    }

    /// The change to this layout as a clause: `made whole`, or such as `cut into 2 x 3g.40gb`.
    pub fn change(&self) -> String {
        match self {
            Self::Whole => "made whole".to_owned(),
            Self::Slices(_) => format!("cut into {self}"),
        }
    }

    /// Whether a host can make it: its slices are whole instances of well-formed profiles, and no more than one GPU
    /// has.
    pub fn can_be_made(&self) -> bool {
        match self {
            Self::Whole => true,
            Self::Slices(profiles) => {
                let can = |profile: &MigProfile| profile.is_well_formed() && profile.is_instance();
                profiles.len() <= MAX_SLICES_PER_GPU && profiles.iter().all(can)
            }
        }
    }
}

/// Shows `a whole GPU`, `no slices` or such as `1g.10gb + 2 x 3g.40gb`.
impl fmt::Display for GpuLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profiles = match self {
            Self::Whole => return f.write_str("a whole GPU"),
            Self::Slices(profiles) if profiles.is_empty() => return f.write_str("no slices"),
            Self::Slices(profiles) => profiles,
        };
        let groups = profiles.chunk_by(|one, other| one == other);
        for (place, alike) in groups.enumerate() {
            let joint = if place > 0 { " + " } else { "" };
            write!(f, "{joint}{} x {}", alike.len(), alike[0])?;
        }
        Ok(())
    }
}

/// Word of the helper's command line for [`GpuLayout::Whole`].
const WHOLE: &str = "whole";

/// Word of the helper's command line for no slices.
const NO_SLICES: &str = "none";

impl GpuLayout {
    /// The layout as an argument of the helper: `whole`, `none` or `1g.10gb,3g.40gb`.
    pub fn to_argument(&self) -> String {
        match self {
            Self::Whole => WHOLE.to_owned(),
            Self::Slices(profiles) if profiles.is_empty() => NO_SLICES.to_owned(),
            Self::Slices(profiles) => {
                let texts: Vec<&str> = profiles.iter().map(MigProfile::as_str).collect();
                texts.join(",")
            }
        }
    }
}

/// Reads an argument of the helper.
impl FromStr for GpuLayout {
    type Err = MigProfileError;

    fn from_str(text: &str) -> Result<Self, MigProfileError> {
        match text {
            WHOLE => Ok(Self::Whole),
            NO_SLICES => Ok(Self::Slices(Vec::new())),
            text => {
                let profiles = text.split(',').map(str::parse);
                Ok(Self::slices(profiles.collect::<Result<_, _>>()?))
            }
        }
    }
}

/// Order to cut a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CarveOrder {
    /// UUID of the whole GPU.
    pub gpu: String,
    /// Layout to make.
    pub layout: GpuLayout,
    /// Layout to restore if that fails.
    pub before: GpuLayout,
}

/// Result of a [`CarveOrder`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CarveOutcome {
    /// The GPU has the layout.
    Done,
    /// The GPU could not be cut.
    Failed {
        /// Reason of the failure.
        why: CarveFailure,
        /// Whether the GPU is as it was before. If not, its host reports it as quarantined.
        is_restored: bool,
    },
}

/// Reason why a GPU was not cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CarveFailure {
    /// The config of the host does not allow it.
    NotAllowed,
    /// The GPU is in use, by what the text says.
    InUse(String),
    /// The driver changes the MIG mode at the next reset of the GPU.
    NeedsReset,
    /// The GPU does not offer a profile.
    NotOffered(MigProfile),
    /// The slices do not fit together.
    NoRoom,
    /// The driver refused a call, as explained.
    Refused(String),
    /// The driver did not answer within the time limit.
    TimedOut,
    /// The driver shows other slices afterwards.
    OthersSeen(GpuLayout),
}

impl fmt::Display for CarveFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed => f.write_str(
                "the host does not allow it: set carve_gpus = true in supervisor.toml and reload the supervisor",
            ),
            Self::InUse(by) => write!(f, "the GPU is in use by {by}: stop that, or wait until it has ended"),
            Self::NeedsReset => f.write_str(
                "the driver changes the MIG mode only when the GPU is reset: cordon the GPU, stop the agent and \
                 monitoring on the host, run `nvidia-smi -mig 1` and `nvidia-smi --gpu-reset` for the GPU, and start \
                 the agent again; or reboot the host after `nvidia-smi -mig 1`",
            ),
            Self::NotOffered(profile) => write!(
                f,
                "the GPU does not offer `{profile}`: `sluice describe node` lists the profiles that it offers"
            ),
            Self::NoRoom => f.write_str(
                "the slices do not fit on one GPU together: list fewer or smaller ones in `mig` of the platform",
            ),
            Self::Refused(why) => write!(f, "{why}: look at the kernel's log of the host"),
            Self::TimedOut => f.write_str(
                "the driver did not answer in time: look at the kernel's log of the host",
            ),
            Self::OthersSeen(layout) => write!(
                f,
                "the driver shows {layout} afterwards: keep others, such as nvidia-mig-manager, from cutting it"
            ),
        }
    }
}

/// Longest UUID of a GPU, in bytes: NVIDIA's have 40.
const MAX_UUID_BYTES: usize = 64;

/// Whether a text has the form of a whole GPU's UUID: no other is passed to a program.
pub fn is_gpu_uuid(text: &str) -> bool {
    let known = |b: u8| b.is_ascii_hexdigit() || b == b'-';
    let digits = text.strip_prefix("GPU-");
    digits.is_some_and(|digits| {
        text.len() <= MAX_UUID_BYTES && !digits.is_empty() && digits.bytes().all(known)
    })
}

/// The offered profiles in words, for a message.
pub fn offer_text<'a>(offered: impl Iterator<Item = &'a String>) -> String {
    let offered: Vec<&str> = offered.map(String::as_str).collect();
    match offered.is_empty() {
        true => "no slices".to_string(),
        false => format!("only {}", offered.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::MigInstance;
    use alloc::vec;

    fn read(text: &str) -> Result<MigLayout, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_layout_is_of_one_gpu_and_its_order_does_not_matter() {
        let text = r#"["3g.40gb","1g.10gb","1g.10gb"]"#;
        let layout = read(text).unwrap();
        assert_eq!(serde_json::to_string(&layout).unwrap(), text);
        let other = read(r#"["1g.10gb","3g.40gb","1g.10gb"]"#).unwrap();
        assert!(layout != other && layout.sorted() == other.sorted());
        let shown = layout.sorted().to_string();
        assert_eq!(shown, "2 x 1g.10gb + 1 x 3g.40gb");
        assert_eq!(read("[]").unwrap().sorted(), GpuLayout::Whole);
        for (text, words) in [
            (
                r#"["3g.40gb","3g.40gb","1g.20gb","1g.20gb"]"#,
                "more than one GPU has",
            ),
            (r#"["7g.80gb","1g.10gb"]"#, "more than one GPU has"),
            (r#"["1c.3g.40gb"]"#, "list whole instances"),
            (r#"["3g"]"#, "is not a MIG profile"),
        ] {
            let refused = read(text).unwrap_err().to_string();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }

    #[test]
    fn a_layout_is_read_off_the_units_of_a_gpu_and_off_an_argument() {
        let slice = |profile: &str| Gpu {
            mig: Some(MigInstance {
                profile: profile.into(),
                parent: "GPU-1".into(),
            }),
            ..Gpu::default()
        };
        let units = [slice("3g.40gb"), slice("1g.10gb")];
        let cut = GpuLayout::of_units(units.iter());
        assert_eq!(cut.to_argument(), "1g.10gb,3g.40gb");
        assert_eq!(
            GpuLayout::of_units([Gpu::default()].iter()),
            GpuLayout::Whole
        );
        assert_eq!(GpuLayout::of_units([].iter()), GpuLayout::Slices(vec![]));
        for layout in [cut, GpuLayout::Whole, GpuLayout::Slices(vec![])] {
            assert_eq!(layout.to_argument().parse(), Ok(layout));
        }
        let odd = GpuLayout::of_units([slice("unknown")].iter());
        assert!(!odd.can_be_made());
        let many = GpuLayout::slices(vec!["1g.10gb".parse().unwrap(); MAX_SLICES_PER_GPU + 1]);
        assert!(!many.can_be_made());
    }

    #[test]
    fn only_a_uuid_is_taken_for_a_gpu() {
        assert!(is_gpu_uuid("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"));
        for text in ["GPU-", "MIG-1", "0", "--help", "GPU-1 2", "GPU-../x"] {
            assert!(!is_gpu_uuid(text), "{text}");
        }
        assert!(!is_gpu_uuid(&("GPU-".to_owned() + &"1".repeat(99))));
    }
}
