//! Record of a clock that was ahead when a coordinator started.

use serde::{Deserialize, Serialize};
use sluice_common::time::Span;

/// The machine's clock was ahead of the time that is known to have passed since the record before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct ClockJump {
    /// The difference. It does not count as waiting.
    pub by: Span,
}
