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
pub(crate) mod zenml;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A document that a file of another tool stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TranslationItem {
    /// The fields of a document of ours, with its `kind`.
    Document(Map<String, Value>),
    /// A document that changes what the cluster has.
    Foreign(ForeignDocument),
}

/// A document of another tool that has no document of ours: what it comes to depends on what the cluster has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ForeignDocument {
    /// A pool that is made if it is not there, and nodes that are moved to it.
    PoolNodes(PoolNodes),
    /// Limits of a subject in every pool.
    Quota(Quota),
}

/// Nodes of a pool, each with the kind of GPU that its file declares, if it does. The rules of the pool stay as they are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolNodes {
    pub(crate) pool: String,
    pub(crate) description: Option<String>,
    pub(crate) nodes: BTreeMap<String, Option<String>>,
}

/// Limits of a subject that hold in each pool by itself; amounts as policies write them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quota {
    pub(crate) subject: String,
    pub(crate) limit: Map<String, Value>,
}

/// What a document of another tool comes to.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Translation {
    pub(crate) documents: Vec<TranslationItem>,
    /// What the file says and the documents do not, each beginning with the field.
    pub(crate) notes: Vec<String>,
}

impl Translation {
    fn of(document: ForeignDocument) -> Self {
        Self {
            documents: vec![TranslationItem::Foreign(document)],
            notes: Vec::new(),
        }
    }

    fn add(&mut self, kind: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) {
        let kind = ("kind", Value::from(kind));
        let all = std::iter::once(kind).chain(fields);
        // An absent field is a default of ours.
        let all = all.filter(|(_, value)| !value.is_null());
        let fields = all.map(|(name, value)| (name.to_owned(), value));
        self.documents
            .push(TranslationItem::Document(fields.collect()));
    }
}

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
