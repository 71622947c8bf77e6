//! Sentences that records store, like those of admins and hosts: reasons by the coordinator itself for the state of a
//! host or the end of an attempt. They are shown as they were written.

use alloc::format;
use alloc::string::String;

use sluice_common::id::StepId;

/// The reason of an attempt that never began because its order did not arrive in time.
pub const ORDER_RAN_OUT: &str = "the order to start it did not arrive in time";

/// The reason of a cordon of a host that could not start a step.
pub fn closed_for(step: &StepId, sentence: &str) -> String {
    format!("cordoned by the coordinator, because step `{step}` could not be started: {sentence}")
}
