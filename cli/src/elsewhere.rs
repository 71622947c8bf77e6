//! Files of other tools, read as documents of ours: one file for each tool. A file of another tool is known by its shape;
//! each of its fields is translated, or refused by its name and value with what to do instead. Nothing here talks to a
//! cluster: `documents` calls this before it reads a document, so `apply`, `submit`, `create` and `delete` all take such
//! files.

pub(crate) mod determined;
mod fields;
pub(crate) mod gpuctl;
pub(crate) mod osmo;
#[cfg(test)]
mod tests;
mod translation;
pub(crate) mod zenml;

use serde_json::{Map, Value};

pub(crate) use translation::{ForeignDocument, PoolNodes, Quota, Translation, TranslationItem};

/// A reader of documents of one tool: how they are known, and what they come to.
type Reader = (
    fn(&Map<String, Value>) -> bool,
    fn(Map<String, Value>) -> Result<Translation, String>,
);

const READERS: [Reader; 3] = [
    (gpuctl::is_one, gpuctl::translate),
    (determined::is_one, determined::translate),
    (osmo::is_one, osmo::translate),
];

/// Whether a document is one of another tool.
pub(crate) fn is_foreign(fields: &Map<String, Value>) -> bool {
    READERS.iter().any(|(is_one, _)| is_one(fields))
}

/// Translates a document of another tool; `None` if it is none.
pub(crate) fn translate(fields: &Map<String, Value>) -> Option<Result<Translation, String>> {
    let reader = READERS.iter().find(|(is_one, _)| is_one(fields));
    reader.map(|(_, translate)| translate(fields.clone()))
}
