//! What templates say of what steps may ask for, and the words for hosts that a step is kept off by it. Which hosts these
//! are is the scheduler's to say.

use alloc::format;
use alloc::string::String;

use sluice_common::id::PoolName;
use sluice_common::template::Template;
use sluice_scheduler::{Denial, Pool, Request};

/// Hosts that are large enough for a request and do not let it in, in words; `None` where there are none.
pub(crate) fn kept_off(name: &PoolName, pool: &Pool, request: &Request) -> Option<String> {
    let nodes = pool.denying(name, request);
    let (node, why) = nodes.first_key_value()?;
    let why = match why {
        Denial::ByPlatform { platform, field } => {
            format!("its platform `{platform}` does not allow `{field}`")
        }
        Denial::ByPool { field, platform } => {
            let of = platform.map(|it| format!(" on its platform `{it}`"));
            let of = of.unwrap_or_default();
            format!("pool `{name}` does not allow `{field}`{of}")
        }
    };
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
