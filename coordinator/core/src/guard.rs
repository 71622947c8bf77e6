//! Permissions of templates over what steps may ask for, and the hosts that they exclude. The scheduler finds these
//! hosts.

use alloc::string::String;

use sluice_common::id::PoolName;
use sluice_common::template::Template;
use sluice_reasons::rejection::ForbiddingHosts;
use sluice_scheduler::{Denial, Pool, Request};

/// Hosts that are large enough for a request and whose guards exclude it; `None` if there are none.
pub(crate) fn denied_hosts(
    name: &PoolName,
    pool: &Pool,
    request: &Request,
) -> Option<ForbiddingHosts> {
    let nodes = pool.denying_hosts(name, request);
    let (node, why) = nodes.first_key_value()?;
    let (field, platform, by_pool, form) = match *why {
        Denial::ByPlatform { platform, field } => (field, Some(platform), None, None),
        Denial::ByPool { field, platform } => (field, platform, Some(name), None),
        Denial::NoRuntime(form) => ("image", None, None, Some(form)),
    };
    Some(ForbiddingHosts {
        node: (*node).clone(),
        no_runtime_for: form,
        field: String::from(field),
        platform: platform.cloned(),
        by_pool: by_pool.cloned(),
        others: nodes.len() as u64 - 1,
    })
}

/// The permissions that templates set, one by one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Permission {
    Privileged,
    HostNetwork,
    Mounts,
}

impl Permission {
    pub(crate) const ALL: [Self; 3] = [Self::Privileged, Self::HostNetwork, Self::Mounts];

    /// Whether a template sets this permission.
    pub(crate) fn is_said_by(self, template: &Template) -> bool {
        match self {
            Self::Privileged => template.privileged_allowed.is_some(),
            Self::HostNetwork => template.host_network_allowed.is_some(),
            Self::Mounts => template.allowed_mounts.is_some(),
        }
    }

    /// Returns `template` with this permission as `other` sets it.
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
