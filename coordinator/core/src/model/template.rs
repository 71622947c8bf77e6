//! Stored templates, and the provenance of a step's values.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::id::{PlatformName, PoolName};
use sluice_common::shared::SharedDefault;
use sluice_common::template::Template;
use sluice_common::template::origin::{MergedTemplate, Origins};
use sluice_scheduler::Guard;

/// A template with its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTemplate {
    /// The template as it was written.
    pub template: Template,
    /// Number of the record that set it last.
    pub version: u64,
}

/// The templates under a step, in every place where it may be granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Provenance {
    /// Each distinct merge once.
    merges: Vec<MergedTemplate>,
    /// The places of the merges.
    places: Vec<ProvenanceEntry>,
    /// Origins of the settings that were filled in from the preferred pool, by field.
    pub settings: Origins,
    /// Permissions that platforms deny, by pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) guards: BTreeMap<PoolName, Guard>,
}

impl SharedDefault for Provenance {
    fn default_ref() -> &'static Self {
        static DEFAULT: Provenance = Provenance {
            merges: Vec::new(),
            places: Vec::new(),
            settings: Origins::new(),
            guards: BTreeMap::new(),
        };
        &DEFAULT
    }
}

/// The place of a merge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Ground")
)]
struct ProvenanceEntry {
    pool: PoolName,
    /// The platform that overrides something; `None` for any other of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    platform: Option<PlatformName>,
    merge: usize,
}

impl Provenance {
    /// Whether there are no templates under the step.
    pub fn is_empty(&self) -> bool {
        self.merges.is_empty() && self.settings.is_empty() && self.guards.is_empty()
    }

    /// The templates under the step if this pool grants hardware of these platforms: those of the first platform that
    /// overrides something, or else those of the pool.
    pub fn at(&self, pool: &PoolName, platforms: &[PlatformName]) -> Option<&MergedTemplate> {
        let here = |platform: Option<&PlatformName>| {
            let mut places = self.places.iter();
            places.find(|place| place.pool == *pool && place.platform.as_ref() == platform)
        };
        let exact = platforms.iter().find_map(|platform| here(Some(platform)));
        let place = exact.or_else(|| here(None))?;
        self.merges.get(place.merge)
    }

    /// Whether templates anywhere use the step's working directory.
    pub(crate) fn uses_workdir(&self) -> bool {
        let mut merges = self.merges.iter();
        merges.any(|merged| merged.template.uses_workdir())
    }

    pub(crate) fn put(
        &mut self,
        pool: &PoolName,
        platform: Option<PlatformName>,
        merged: MergedTemplate,
    ) {
        let known = self.merges.iter().position(|it| *it == merged);
        let merge = known.unwrap_or(self.merges.len());
        if known.is_none() {
            self.merges.push(merged);
        }
        let pool = pool.clone();
        self.places.push(ProvenanceEntry {
            pool,
            platform,
            merge,
        });
    }
}
