//! Results of a translation: documents of ours, and those whose outcome depends on what the cluster has.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sluice_common::cluster::DefaultPool;
use sluice_common::pool::ResourceTable;

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
    /// Pools of steps that name none. The cluster's other settings stay as they are.
    DefaultPool(DefaultPool),
}

/// Nodes of a pool, each with the kind of GPU that its file declares, if it does. The rules of the pool stay as they are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolNodes {
    pub(crate) pool: String,
    pub(crate) description: Option<String>,
    pub(crate) nodes: BTreeMap<String, Option<String>>,
}

/// Limits of a subject that hold in each pool by itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quota {
    pub(crate) subject: String,
    pub(crate) limit: ResourceTable,
}

/// Documents that a document of another tool comes to.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Translation {
    pub(crate) documents: Vec<TranslationItem>,
    /// Parts of the file that the documents leave out, each beginning with the field.
    pub(crate) notes: Vec<String>,
}

impl Translation {
    pub(super) fn of(document: ForeignDocument) -> Self {
        Self {
            documents: vec![TranslationItem::Foreign(document)],
            notes: Vec::new(),
        }
    }

    pub(super) fn add(
        &mut self,
        kind: &str,
        fields: impl IntoIterator<Item = (&'static str, Value)>,
    ) {
        let kind = ("kind", Value::from(kind));
        let all = std::iter::once(kind).chain(fields);
        // An absent field is a default of ours.
        let all = all.filter(|(_, value)| !value.is_null());
        let fields = all.map(|(name, value)| (name.to_owned(), value));
        self.documents
            .push(TranslationItem::Document(fields.collect()));
    }
}
