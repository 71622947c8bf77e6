//! Restrictions of platforms: hosts on which a step may not run because a platform of their hardware forbids what it
//! asks for. Which platforms forbid what is fixed when the step is submitted; which platforms a host has is looked up
//! at each placement.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use serde::{Deserialize, Serialize};

use sluice_common::id::PlatformName;
use sluice_common::image::ImageKind;

/// Restrictions of a pool's platforms for a step. A host admits the step if each of its GPUs does, or the host itself
/// if it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Guard {
    /// Platforms that forbid a field of the step themselves, with that field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    forbidding: BTreeMap<PlatformName, String>,
    /// Fields of the step that the pool forbids, with the platforms that allow them all the same.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    allowing: BTreeMap<String, BTreeSet<PlatformName>>,
}

/// Why a host does not admit a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial<'a> {
    /// A platform of the hardware forbids a field.
    ByPlatform {
        platform: &'a PlatformName,
        field: &'a str,
    },
    /// The pool forbids a field, and no platform of the hardware allows it.
    ByPool {
        field: &'a str,
        /// One platform of the hardware, if it has any.
        platform: Option<&'a PlatformName>,
    },
    /// The host has no container runtime for images of this form.
    NoRuntime(ImageKind),
}

impl Guard {
    /// Whether every host may hold the request.
    pub fn is_empty(&self) -> bool {
        self.forbidding.is_empty() && self.allowing.is_empty()
    }

    /// Forbids a field on hardware of a platform.
    pub fn forbid(&mut self, platform: &PlatformName, field: String) {
        self.forbidding.entry(platform.clone()).or_insert(field);
    }

    /// Forbids a field on all hardware but that of these platforms.
    pub fn allow_only(&mut self, field: String, platforms: BTreeSet<PlatformName>) {
        self.allowing.insert(field, platforms);
    }

    /// Whether hardware with these platforms admits the step.
    pub(crate) fn allows(&self, kind: &BTreeSet<PlatformName>) -> bool {
        self.denial(kind).is_none()
    }

    /// Why hardware with these platforms does not admit the step.
    pub fn denial<'a>(&'a self, kind: &'a BTreeSet<PlatformName>) -> Option<Denial<'a>> {
        let own = kind.iter().find_map(|platform| {
            let field = self.forbidding.get(platform)?;
            Some(Denial::ByPlatform { platform, field })
        });
        own.or_else(|| {
            let mut allowing = self.allowing.iter();
            let (field, _) = allowing.find(|(_, platforms)| platforms.is_disjoint(kind))?;
            let platform = kind.first();
            Some(Denial::ByPool { field, platform })
        })
    }
}
