//! Sentences that records hold beside those of admins and hosts, and as these: what the coordinator itself says of a host or
//! an end. What they say is shown as it was written then.

use alloc::format;
use alloc::string::String;

use sluice_common::id::StepId;

/// Why an attempt never began whose order did not arrive while it was valid.
pub const ORDER_RAN_OUT: &str = "the order to start it did not arrive in time";

/// Why a host is closed that could not start a step.
pub fn closed_for(step: &StepId, sentence: &str) -> String {
    format!("cordoned by the coordinator, because step `{step}` could not be started: {sentence}")
}
