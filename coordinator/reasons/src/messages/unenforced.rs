//! Sentences about amounts that hosts do not enforce.

use core::fmt;

use sluice_common::amount::MEMORY_MB;
use sluice_common::id::NodeName;
use sluice_common::inventory::Capability;
use sluice_common::quantity::quantity;

/// An amount that some hosts of a step do not enforce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unenforced {
    /// The capability that such hosts lack.
    pub capability: Capability,
    /// The resource key.
    pub key: &'static str,
    /// The amount that the step asks for.
    pub asked: u64,
    /// Number of hosts on which it is, or may start.
    pub hosts: usize,
    /// Number of them that lack it.
    pub lacking: usize,
    /// The first of these.
    pub first: NodeName,
}

impl fmt::Display for Unenforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unenforced {
            capability,
            key,
            asked,
            hosts,
            lacking,
            first,
        } = self;
        match hosts {
            1 => write!(f, "host `{first}` does")?,
            _ => write!(f, "{lacking} of {hosts} hosts (such as `{first}`) do")?,
        }
        let what = match *key {
            MEMORY_MB => "memory",
            _ => "processor time",
        };
        let amount = quantity(key, *asked);
        write!(
            f,
            " not limit {what}: the step may use more there than the {amount} that it asks for; a pool with `require: \
             [{capability}]` gives steps to no such host"
        )
    }
}
