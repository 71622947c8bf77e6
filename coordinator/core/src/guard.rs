//! Hosts that a step is kept off by what platforms of their hardware do not allow, whichever platform it names. What
//! platforms say is looked at when a step is submitted (`templates.rs`) and holds for it from then on; of which
//! platforms a host is, the market asks whenever it looks for a place.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use sluice_common::id::{NodeName, PlatformName, PoolName};
use sluice_common::template::Template;

use crate::market::{Pool, Request};

/// What of a step platforms of a pool do not allow. A host lets the step in if each of its GPUs does, or the host itself
/// where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub(crate) struct Guard {
    /// Platforms that say themselves that they do not allow a field of the step, with that field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    forbidding: BTreeMap<PlatformName, String>,
    /// Fields of the step that the pool does not allow, with the platforms that do.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    allowing: BTreeMap<String, BTreeSet<PlatformName>>,
}

impl Guard {
    pub(crate) fn is_empty(&self) -> bool {
        self.forbidding.is_empty() && self.allowing.is_empty()
    }

    pub(crate) fn forbid(&mut self, platform: &PlatformName, field: String) {
        self.forbidding.entry(platform.clone()).or_insert(field);
    }

    /// Hardware that is of none of these platforms does not allow a field.
    pub(crate) fn allow_only(&mut self, field: String, platforms: BTreeSet<PlatformName>) {
        self.allowing.insert(field, platforms);
    }

    /// Whether hardware that is of these platforms lets the step in.
    pub(crate) fn lets_in(&self, kind: &BTreeSet<PlatformName>) -> bool {
        let mut allowing = self.allowing.values();
        !kind.iter().any(|it| self.forbidding.contains_key(it))
            && allowing.all(|platforms| !platforms.is_disjoint(kind))
    }

    /// What hardware of these platforms does not allow, in words.
    fn why(&self, pool: &PoolName, kind: &BTreeSet<PlatformName>) -> Option<String> {
        let own = kind.iter().find_map(|platform| {
            let field = self.forbidding.get(platform)?;
            Some(format!(
                "its platform `{platform}` does not allow `{field}`"
            ))
        });
        own.or_else(|| {
            let mut allowing = self.allowing.iter();
            let (field, _) = allowing.find(|(_, platforms)| platforms.is_disjoint(kind))?;
            let of = kind.first().map(|it| format!(" on its platform `{it}`"));
            let of = of.unwrap_or_default();
            Some(format!("pool `{pool}` does not allow `{field}`{of}"))
        })
    }
}

/// Hosts that are large enough for a request and do not let it in, in words; `None` where there are none.
pub(crate) fn kept_off(name: &PoolName, pool: &Pool, request: &Request) -> Option<String> {
    let guard = request.guards.get(name)?;
    let mut nodes: BTreeMap<&NodeName, String> = BTreeMap::new();
    for view in pool.views(request) {
        let large = pool.shelf(view).known.covering(request.each);
        nodes.extend(large.filter_map(|(node, _)| {
            let mut kinds = pool.hosts().get(node)?.kinds();
            Some((node, kinds.find_map(|kind| guard.why(name, kind))?))
        }));
    }
    let (node, why) = nodes.first_key_value()?;
    let others = match nodes.len() - 1 {
        0 => String::new(),
        1 => String::from(", and so is one more host"),
        others => format!(", and so are {others} more hosts"),
    };
    Some(format!(
        "`{node}` is large enough and closed to it, for {why}{others}"
    ))
}

/// What templates say of what steps may ask for, one by one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Permission {
    Privileged,
    HostNetwork,
    Mounts,
}

impl Permission {
    pub(crate) const ALL: [Self; 3] = [Self::Privileged, Self::HostNetwork, Self::Mounts];

    /// Whether a template says anything of it.
    pub(crate) fn is_said_by(self, template: &Template) -> bool {
        match self {
            Self::Privileged => template.privileged_allowed.is_some(),
            Self::HostNetwork => template.host_network_allowed.is_some(),
            Self::Mounts => template.allowed_mounts.is_some(),
        }
    }

    /// `template`, with what `other` says of it.
    pub(crate) fn taken_from(self, other: &Template, template: &Template) -> Template {
        let mut template = template.clone();
        match self {
            Self::Privileged => template.privileged_allowed = other.privileged_allowed,
            Self::HostNetwork => template.host_network_allowed = other.host_network_allowed,
            Self::Mounts => template.allowed_mounts.clone_from(&other.allowed_mounts),
        }
        template
    }
}
