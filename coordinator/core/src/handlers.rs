//! One handler for each input. A handler reads the state through the context and pushes what it decides. Other
//! modules do not depend on inputs.

pub(crate) mod access;
pub(crate) mod apply;
pub(crate) mod cancel;
pub(crate) mod changes_due;
pub(crate) mod drain_deadline;
pub(crate) mod heartbeat;
pub(crate) mod hello;
pub(crate) mod join;
pub(crate) mod message;
pub(crate) mod node_change;
pub(crate) mod preview;
pub(crate) mod queue_timeout;
pub(crate) mod recovery_end;
pub(crate) mod renew;
pub(crate) mod service;
pub(crate) mod silence;
pub(crate) mod start;
pub(crate) mod step_action;
pub(crate) mod step_move;
pub(crate) mod submit;
pub(crate) mod suspension_timeout;
pub(crate) mod warrant;
