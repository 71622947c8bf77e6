//! Platforms declared by admins: selectors of GPUs and hosts by detected properties and labels. `platform.rs` defines
//! the platforms that exist without a declaration.

use core::fmt;
use core::str::FromStr;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::range::{Bytes, Range, Version};
use super::{cpu, of_gpu};
use crate::carving::MigLayout;
use crate::facts::{self, HostLabels};
use crate::id::{PlatformName, ValidationName};
use crate::inventory::Gpu;
use crate::selector::Selector;
use crate::template::Template;

/// Most platforms that a pool declares: more than there are kinds of hardware, and few enough to match against every
/// GPU.
pub const MAX_PLATFORMS: usize = 64;

/// Most names in a list.
const MAX_WORDS: usize = 64;

/// Names separated by `,`, any of which may match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct NameList(Vec<String>);

/// Error for a text that is not a list of names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameListError {
    /// A name is empty.
    #[error("a word of it is empty: write words with `,` between them, such as `a100, h100`")]
    Empty,
    /// The list has too many names.
    #[error("it has more than {MAX_WORDS} words")]
    TooLong,
}

impl NameList {
    /// The names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl FromStr for NameList {
    type Err = NameListError;

    fn from_str(text: &str) -> Result<Self, NameListError> {
        let words: Vec<String> = text
            .split(',')
            .map(|word| word.trim().to_string())
            .collect();
        if words.iter().any(String::is_empty) {
            return Err(NameListError::Empty);
        }
        if words.len() > MAX_WORDS {
            return Err(NameListError::TooLong);
        }
        Ok(Self(words))
    }
}

impl TryFrom<String> for NameList {
    type Error = NameListError;
    fn try_from(text: String) -> Result<Self, NameListError> {
        text.parse()
    }
}

impl fmt::Display for NameList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.join(", "))
    }
}

impl From<NameList> for String {
    fn from(words: NameList) -> String {
        words.to_string()
    }
}

/// Selects the GPUs and hosts of a platform. All given conditions must hold; without conditions everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PlatformSelector")
)]
#[serde(default, deny_unknown_fields)]
pub struct HardwareSelector {
    /// Condition on a GPU: model by short name such as `a100` or in full; several separated by `,`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<NameList>,
    /// Condition on a GPU: memory, such as `>=80GB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub gpu_memory: Option<Range<Bytes>>,
    /// Condition on a MIG instance: profile, such as `1g.10gb`; several separated by `,`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig_profile: Option<NameList>,
    /// Condition on a GPU: CUDA compute capability, such as `>=8.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub compute_capability: Option<Range<Version>>,
    /// Condition on a GPU: whether NVLink connects it to another GPU of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink: Option<bool>,
    /// Condition on a host: version of the NVIDIA driver, such as `>=550, <580`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub driver: Option<Range<Version>>,
    /// Condition on a host: processor architecture, such as `x86_64`; several separated by `,`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<NameList>,
    /// Condition on labels, including facts, such as `zone=a,sluice/cuda!=12.4`.
    #[serde(skip_serializing_if = "Selector::is_empty")]
    pub labels: Selector,
}

/// Maps alternative names of architectures.
fn arch(name: &str) -> &str {
    match name {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        name => name,
    }
}

/// Whether a version is in a range, if there is a range. One that is unknown is in none.
fn holds(range: Option<&Range<Version>>, version: Option<&str>) -> bool {
    range.is_none_or(|range| {
        let version = version.and_then(Version::parse_prefix);
        version.is_some_and(|version| range.holds(&version))
    })
}

impl HardwareSelector {
    /// Whether the selector matches a GPU of a host, or with `None` a host without GPUs.
    pub fn matches(&self, host: &HostLabels<'_>, gpu: Option<&Gpu>) -> bool {
        self.matches_host(host)
            && match gpu {
                Some(gpu) => self.matches_gpu(gpu),
                None => !self.is_about_gpus(),
            }
            && (self.labels.is_empty()
                || facts::selector_matches(&self.labels, &host.labels_with(gpu)))
    }

    /// Whether the selector distinguishes GPUs, and not only hosts.
    pub fn is_about_gpus(&self) -> bool {
        let Self {
            gpu_model,
            gpu_memory,
            mig_profile,
            compute_capability,
            nvlink,
            driver: _,
            arch: _,
            labels: _,
        } = self;
        gpu_model.is_some()
            || gpu_memory.is_some()
            || mig_profile.is_some()
            || compute_capability.is_some()
            || nvlink.is_some()
    }

    /// The first condition of which a GPU that is cut into slices no longer tells whether it was met before, by its
    /// key. Without one, the selector matches a GPU in the same way however it is cut.
    pub fn condition_on_layout(&self) -> Option<&str> {
        let of_gpus = [
            ("gpu_memory", self.gpu_memory.is_some()),
            ("mig_profile", self.mig_profile.is_some()),
            ("nvlink", self.nvlink.is_some()),
        ];
        let of_gpus = of_gpus.into_iter().filter(|(_, is_given)| *is_given);
        let labels = self.labels.requirements().iter();
        let labels = labels.map(|it| it.key.as_str());
        let labels = labels.filter(|key| facts::depends_on_layout(key));
        of_gpus.map(|(key, _)| key).chain(labels).next()
    }

    fn matches_host(&self, host: &HostLabels<'_>) -> bool {
        let inventory = host.inventory;
        let driver = holds(self.driver.as_ref(), inventory.driver.as_deref());
        let words = self.arch.as_ref();
        driver && words.is_none_or(|words| words.iter().any(|it| arch(it) == arch(&inventory.arch)))
    }

    fn matches_gpu(&self, gpu: &Gpu) -> bool {
        // Vendors write models in capitals; short names are lower case.
        let named = |name: &str| {
            name.eq_ignore_ascii_case(&gpu.platform) || name.eq_ignore_ascii_case(&gpu.model)
        };
        let profile = gpu.mig.as_ref().map(|mig| mig.profile.as_str());
        self.gpu_model
            .as_ref()
            .is_none_or(|it| it.iter().any(named))
            && self
                .gpu_memory
                .as_ref()
                .is_none_or(|it| it.holds(&Bytes(gpu.memory_bytes)))
            && holds(
                self.compute_capability.as_ref(),
                gpu.board.compute_capability.as_deref(),
            )
            && self.nvlink.is_none_or(|it| it != gpu.nvlink.is_empty())
            && (self.mig_profile.as_ref())
                .is_none_or(|it| it.iter().any(|word| Some(word) == profile))
    }
}

/// Spec of a platform as an admin writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PlatformTerms")
)]
#[serde(default, deny_unknown_fields)]
pub struct PlatformSpec {
    /// Free text for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Selects the GPUs and hosts of the platform; all of the pool if empty.
    pub selector: HardwareSelector,
    /// Template applied on top of the pool's templates to steps that are granted this platform.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Box<Template>>,
    /// Slices (MIG instances) that each matching GPU is cut into when it is idle, such as `[3g.40gb, 3g.40gb]`; `[]` makes
    /// GPUs whole. If absent, GPUs stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigLayout>,
    /// Validations for steps that may be granted this platform, in addition to the pool's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validations: Vec<ValidationName>,
    /// Whether only steps that name this platform run on its hosts, also on those that have other GPUs besides; `false`
    /// if absent.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub taint: bool,
}

impl PlatformSpec {
    /// Whether a step that takes any platform may be granted this one. Steps without GPUs never get a platform that
    /// distinguishes GPUs.
    pub fn is_candidate_for_any(&self, with_gpus: bool) -> bool {
        with_gpus || !self.selector.is_about_gpus()
    }
}

/// Action on a request for a platform without hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnmatchedPlatform {
    /// Reject the step, unless it sets `allow_pending`.
    #[default]
    Reject,
    /// Let the step wait for a host, if the pool declares the platform.
    Wait,
}

impl UnmatchedPlatform {
    /// Whether this is the default.
    pub fn is_reject(&self) -> bool {
        *self == Self::Reject
    }

    /// The name as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Wait => "wait",
        }
    }
}

/// Platforms that a pool declares, by name.
pub type PlatformSpecs = BTreeMap<PlatformName, PlatformSpec>;

/// Platforms of a GPU, or of a host without GPUs: declared ones that match, and the one of its model (for a slice, of
/// its model and profile) unless a platform of that name is declared.
pub fn platforms_of<'a>(
    declared: impl Iterator<Item = (&'a PlatformName, &'a PlatformSpec)>,
    host: &HostLabels<'_>,
    gpu: Option<&Gpu>,
) -> BTreeSet<PlatformName> {
    let own = gpu.map_or_else(cpu, of_gpu);
    let mut found = BTreeSet::from([own.clone()]);
    for (name, terms) in declared {
        let meant = terms.selector.matches(host, gpu);
        if meant {
            found.insert(name.clone());
        } else if *name == own {
            found.remove(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Labels;
    use crate::id::{NodeName, PoolName};
    use crate::inventory::{Inventory, MigInstance};
    use alloc::vec;

    fn inventory() -> Inventory {
        let gpu = |model: &str, platform: &str, memory_bytes| Gpu {
            model: model.to_string(),
            platform: platform.to_string(),
            memory_bytes,
            ..Gpu::default()
        };
        let mut small = gpu("A100-PCIE-40GB", "a100", 40 << 30);
        small.nvlink = vec!["GPU-1".to_string()];
        small.board.compute_capability = Some("8.0".to_string());
        let mut slice = gpu("NVIDIA H100 80GB HBM3", "h100", 10 << 30);
        slice.mig = Some(MigInstance {
            profile: "1g.10gb".to_string(),
            parent: "GPU-2".to_string(),
        });
        slice.board.compute_capability = Some("10.0".to_string());
        Inventory {
            arch: "x86_64".to_string(),
            driver: Some("570.86.15".to_string()),
            gpus: vec![small, gpu("NVIDIA A100-SXM4-80GB", "a100", 80 << 30), slice],
            ..Inventory::default()
        }
    }

    fn terms(selector: &str) -> PlatformSpec {
        PlatformSpec {
            selector: serde_json::from_str(selector).unwrap(),
            ..PlatformSpec::default()
        }
    }

    /// Indices of the GPUs that a selector matches, and whether it matches a host without GPUs.
    fn meant(selector: &str) -> (Vec<usize>, bool) {
        let selector = terms(selector).selector;
        let (name, pool) = (NodeName::new("n").unwrap(), PoolName::new("p").unwrap());
        let labels: Labels = [("zone".to_string(), "a".to_string())].into();
        let host = |inventory| HostLabels {
            name: &name,
            pool: &pool,
            inventory,
            labels: &labels,
        };
        let inventory = inventory();
        let gpus = inventory.gpus.iter().enumerate();
        let gpus = gpus.filter(|(_, gpu)| selector.matches(&host(&inventory), Some(gpu)));
        let gpus = gpus.map(|(at, _)| at).collect();
        let bare = Inventory {
            gpus: Vec::new(),
            ..inventory.clone()
        };
        (gpus, selector.matches(&host(&bare), None))
    }

    #[test]
    fn each_condition_picks_its_gpus_or_its_hosts() {
        for (selector, gpus, bare) in [
            ("{}", &[0, 1, 2][..], true),
            (r#"{"gpu_model":"a100"}"#, &[0, 1], false),
            (r#"{"gpu_model":"A100"}"#, &[0, 1], false),
            (r#"{"gpu_model":"l4, nvidia a100-sxm4-80gb"}"#, &[1], false),
            (r#"{"gpu_memory":">=80GB"}"#, &[1], false),
            (r#"{"gpu_memory":">=20GiB, <80GiB"}"#, &[0], false),
            (r#"{"mig_profile":"1g.10gb"}"#, &[2], false),
            (r#"{"compute_capability":">=8.0"}"#, &[0, 2], false),
            (r#"{"compute_capability":">=8.0, <9"}"#, &[0], false),
            (r#"{"nvlink":true}"#, &[0], false),
            (r#"{"nvlink":false,"gpu_model":"a100"}"#, &[1], false),
            (r#"{"driver":">=550, <580"}"#, &[0, 1, 2], true),
            (r#"{"driver":">=580"}"#, &[], false),
            (r#"{"arch":"amd64"}"#, &[0, 1, 2], true),
            (r#"{"arch":"aarch64"}"#, &[], false),
            (r#"{"labels":"zone in (a, b)"}"#, &[0, 1, 2], true),
            (r#"{"labels":"zone=b"}"#, &[], false),
            (r#"{"labels":"!sluice/gpu.model"}"#, &[], true),
            (r#"{"labels":"sluice/gpu.memory=81920MiB"}"#, &[1], false),
        ] {
            assert_eq!(meant(selector), (gpus.to_vec(), bare), "{selector}");
        }
    }

    #[test]
    fn a_gpu_is_of_its_model_and_of_all_that_mean_it() {
        let inventory = inventory();
        let (node, pool) = (NodeName::new("n").unwrap(), PoolName::new("p").unwrap());
        let host = HostLabels {
            name: &node,
            pool: &pool,
            inventory: &inventory,
            labels: &Labels::new(),
        };
        let name = |text: &str| PlatformName::new(text).unwrap();
        let mut declared = PlatformSpecs::new();
        declared.insert(
            name("a100-80"),
            terms(r#"{"gpu_model":"a100","gpu_memory":">=80GB"}"#),
        );
        let kinds = |declared: &PlatformSpecs| -> Vec<Vec<String>> {
            let gpus = inventory
                .gpus
                .iter()
                .map(|gpu| platforms_of(declared.iter(), &host, Some(gpu)));
            gpus.map(|kind| kind.into_iter().map(String::from).collect())
                .collect()
        };
        let slice = "h100-1g.10gb";
        let expected = [vec!["a100"], vec!["a100", "a100-80"], vec![slice]];
        assert_eq!(kinds(&declared), expected);
        // A declared platform replaces the one of the same name.
        declared.insert(name("a100"), terms(r#"{"gpu_memory":"<80GB"}"#));
        let expected = [vec!["a100"], vec!["a100-80"], vec!["a100", slice]];
        assert_eq!(kinds(&declared), expected);
        let bare = platforms_of(declared.iter(), &host, None);
        assert_eq!(bare, BTreeSet::from([cpu()]));
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_the_way_out() {
        for (selector, words) in [
            (
                r#"{"gpu_model":"a100,"}"#,
                "write words with `,` between them",
            ),
            (r#"{"gpu_memory":"80 GB"}"#, "such as `80GB`"),
            (r#"{"driver":"new"}"#, "write a range such as `>=550, <580`"),
            (r#"{"labels":"zone a"}"#, "`a` stands where"),
            (r#"{"gpu_modell":"a100"}"#, "unknown field `gpu_modell`"),
        ] {
            let error = serde_json::from_str::<HardwareSelector>(selector).unwrap_err();
            assert!(error.to_string().contains(words), "{selector}: {error}");
        }
        let text = r#"{"description":"x","selector":{"gpu_model":"a100, h100","driver":">=550"}}"#;
        let read: PlatformSpec = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}
