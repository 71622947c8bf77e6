//! Ports and readiness of a part of an attempt.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_common::port::PortName;
use sluice_common::probe::ProbeFailure;
use sluice_common::time::Time;

/// Ports and readiness of a part, as its host reports them. [`Step::is_ready_on`] tells whether the part is ready: that
/// depends on its phase as well.
///
/// [`Step::is_ready_on`]: crate::Step::is_ready_on
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Ports of the host that the step has there, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<PortName, u16>,
    /// Whether its readiness probe succeeds.
    pub succeeds: bool,
    /// The failure that the last failed probe saw, while it does not succeed or is stopped because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ProbeFailure>,
    /// Time of the last recorded change, by the coordinator's clock.
    pub changed_at: Time,
    /// Time at which it became ready last.
    pub succeeded_at: Time,
    /// Number of times that it became ready.
    pub times: u32,
}
