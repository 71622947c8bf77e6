//! Sentences about amounts that hosts do not enforce, or that nobody counts.

use core::fmt;

use sluice_common::amount::MEMORY_MB;
use sluice_common::amount::table::key_name;
use sluice_common::id::{NodeName, PoolName};
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

/// A key of which a step holds nothing, whatever it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncounted {
    /// The resource key.
    pub key: &'static str,
    /// The pool whose default does not apply, because the step could not start with it; `None` if the step states 0.
    pub default_of: Option<PoolName>,
}

impl fmt::Display for Uncounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = key_name(self.key);
        match &self.default_of {
            None => write!(f, "it asks for 0 {key}")?,
            Some(pool) => write!(
                f,
                "it could never start with the default {key} of pool `{pool}`, and so it has none"
            )?,
        }
        write!(
            f,
            ": what it uses is not counted, and others start beside it as if it used none"
        )
    }
}
