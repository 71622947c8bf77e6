//! The submission of a step: routing, defaults, rules and rejection.

pub(crate) mod as_written;
pub(crate) mod bounds;
pub(crate) mod default_amounts;
pub(crate) mod difference;
pub(crate) mod effective_spec;
pub(crate) mod feasible;
pub(crate) mod fill;
pub(crate) mod inside;
pub(crate) mod layers;
pub(crate) mod origins;
pub(crate) mod route;
pub(crate) mod rules;
pub(crate) mod validation;
