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
    let kept = node.labels_set.keys();
    let count = kept.filter(|key| !set.contains_key(*key)).count() + set.len();
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

/// Those of the labels that are not so already.
pub(crate) fn changes(node: &Node, labels: Labels) -> Labels {
    let labels = labels.into_iter();
    let changed = labels.filter(|(key, value)| match (node.labels_set.get(key), value) {
        (Some(set), value) => set != value,
        (None, Some(_)) => true,
        (None, None) => node.labels.contains_key(key.as_str()),
    });
    changed.collect()
}

/// Gives a node the labels of the token by which it joined.
pub(crate) fn label_as_joined(ctx: &mut Context, node: &NodeName) {
    let access = ctx.state().admission().accesses().get(node);
    let labels = access.map(|access| access.labels.clone());
    let labels = labels.into_iter().flatten();
    let labels = labels.map(|(key, value)| (key, Some(value))).collect();
    // Beyond the most that a node may have it gets none of them, and is let in all the same.
    let _as_many_as_fit = label(ctx, node, labels);
}
