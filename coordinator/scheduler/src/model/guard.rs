//! Hosts that a request is kept off by what platforms of their hardware do not allow, whichever platform it names. What
//! platforms say is looked at when a step is submitted and holds for it from then on; of which platforms a host is, is
//! asked whenever a place is looked for.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use serde::{Deserialize, Serialize};

use sluice_common::id::PlatformName;

/// What of a step platforms of a pool do not allow. A host lets the step in if each of its GPUs does, or the host itself
/// where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Guard {
    /// Platforms that say themselves that they do not allow a field of the step, with that field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    forbidding: BTreeMap<PlatformName, String>,
    /// Fields of the step that the pool does not allow, with the platforms that do.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    allowing: BTreeMap<String, BTreeSet<PlatformName>>,
}

/// Why hardware does not let a step in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial<'a> {
    /// Its platform says that it does not allow a field.
    ByPlatform {
        platform: &'a PlatformName,
        field: &'a str,
    },
    /// The pool does not allow a field, and no platform of the hardware does.
    ByPool {
        field: &'a str,
        /// A platform of the hardware, where it is of any.
        platform: Option<&'a PlatformName>,
    },
}

impl Guard {
    /// Whether nothing is forbidden.
    pub fn is_empty(&self) -> bool {
        self.forbidding.is_empty() && self.allowing.is_empty()
    }

    /// Hardware of a platform does not allow a field.
    pub fn forbid(&mut self, platform: &PlatformName, field: String) {
        self.forbidding.entry(platform.clone()).or_insert(field);
    }

    /// Hardware that is of none of these platforms does not allow a field.
    pub fn allow_only(&mut self, field: String, platforms: BTreeSet<PlatformName>) {
        self.allowing.insert(field, platforms);
    }

    /// Whether hardware that is of these platforms lets the step in.
    pub(crate) fn allows(&self, kind: &BTreeSet<PlatformName>) -> bool {
        self.denial(kind).is_none()
    }

    /// What hardware of these platforms does not allow.
    pub(crate) fn denial<'a>(&'a self, kind: &'a BTreeSet<PlatformName>) -> Option<Denial<'a>> {
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
