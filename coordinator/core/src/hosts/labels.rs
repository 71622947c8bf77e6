//! Labels that an admin or a join token gives a node.

use alloc::collections::BTreeMap;

use sluice_common::id::NodeName;
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::limit::MAX_NODE_LABELS;

use crate::context::Context;
use crate::model::node::Node;
use crate::output::Refusal;
use crate::record::{self, Record};

pub(crate) type Labels = BTreeMap<LabelKey, Option<LabelValue>>;

pub(crate) fn label(ctx: &mut Context, name: &NodeName, labels: Labels) -> Result<(), Refusal> {
    let Some(node) = ctx.state().node(name) else {
        return Ok(());
    };
    let labels = changes(node, labels);
    let (set, removed): (Labels, Labels) =
        labels.into_iter().partition(|(_, value)| value.is_some());
    let others = node.labels_set.keys();
    let count = others.filter(|key| !set.contains_key(*key)).count() + set.len();
    if !set.is_empty() && count > MAX_NODE_LABELS {
        return Err(Refusal::TooManyLabels {
            node: name.clone(),
            count,
            limit: MAX_NODE_LABELS,
        });
    }
    if !set.is_empty() || !removed.is_empty() {
        let set = set.into_iter();
        ctx.record(Record::NodeLabelled(record::NodeLabelled {
            node: name.clone(),
            set: set.filter_map(|(key, value)| Some((key, value?))).collect(),
            removed: removed.into_keys().collect(),
        }));
    }
    Ok(())
}

/// The labels that differ from the current ones.
pub(crate) fn changes(node: &Node, labels: Labels) -> Labels {
    let labels = labels.into_iter();
    let changed = labels.filter(|(key, value)| match (node.labels_set.get(key), value) {
        (Some(set), value) => set != value,
        (None, Some(_)) => true,
        (None, None) => node.labels.contains_key(key.as_str()),
    });
    changed.collect()
}

/// Sets the labels of the token by which a node joined.
pub(crate) fn label_as_joined(ctx: &mut Context, node: &NodeName) {
    let access = ctx.state().admission().accesses().get(node);
    let labels = access.map(|access| access.labels.clone());
    let labels = labels.into_iter().flatten();
    let labels = labels.map(|(key, value)| (key, Some(value))).collect();
    // A node that would get too many labels gets none of them, and is admitted all the same.
    let _as_many_as_fit = label(ctx, node, labels);
}
