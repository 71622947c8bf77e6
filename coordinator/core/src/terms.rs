//! Changes of documents of admins: platforms, templates, validations and access; and who uses what a change takes
//! away.

pub(crate) mod access;
pub(crate) mod carving;
pub(crate) mod platforms;
pub(crate) mod targets;
pub(crate) mod templates;
pub(crate) mod uses;
pub(crate) mod validations;
