//! Lists the labels of nodes, one a line.

use sluice_common::api::NodeView;

use super::{GetResult, find, show_found};
use crate::args::GetArgs;
use crate::client::Client;
use crate::elsewhere::gpuctl::POOL_LABEL;
use crate::failure::Failure;
use crate::out::Out;
use crate::render::label::NodeLabel;
use crate::render::safe;

pub(super) fn run(client: &Client, args: &GetArgs, out: Out) -> Result<u8, Failure> {
    if args.watch {
        let way =
            "--watch: labels are shown once: `sluice get nodes --show-labels --watch` follows them";
        return Err(Failure::Usage(way.to_owned()));
    }
    let nodes = find::<NodeView>(client, args, out)?;
    let key = args.key.as_deref();
    let mut found = GetResult {
        items: Vec::new(),
        missing: nodes.missing,
    };
    for node in &nodes.items {
        let labels = labels(node, key);
        if let (Some(key), true) = (key, labels.is_empty() && !args.names.is_empty()) {
            found.missing = true;
            let (node, key) = (safe(&node.name), safe(key));
            out.error(&format!("{node} has no label `{key}`"));
        }
        found.items.extend(labels);
    }
    // One node may have several.
    let args = GetArgs {
        names: Vec::new(),
        ..args.clone()
    };
    show_found(&found, &args, out)
}

/// Returns the labels of a node, or the one of a key: a label, a fact, or gpuctl's for the pool.
fn labels(node: &NodeView, key: Option<&str>) -> Vec<NodeLabel> {
    let label = |(key, value): (&str, &str)| NodeLabel {
        node: node.name.clone(),
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let own = node
        .labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let Some(key) = key else {
        return own.map(label).collect();
    };
    // The facts of each kind of GPU of the host.
    let facts = node.facts.iter().flatten();
    let facts = facts.map(|(key, value)| (key.as_str(), value.as_str()));
    let pool = [(POOL_LABEL, node.pool.as_str())];
    let all = own.chain(facts).chain(pool);
    let mut found: Vec<NodeLabel> = all.filter(|(its, _)| *its == key).map(label).collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::node::tests::node;

    #[test]
    fn a_key_is_that_of_a_label_a_fact_or_the_pool() {
        let mut node = node();
        node.labels = [("rack", "7"), ("zone", "a")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let fact = [("sluice/gpu.model".to_owned(), "h100".to_owned())];
        node.facts = vec![fact.clone().into(), fact.into()];
        let values = |key| -> Vec<String> {
            let found = labels(&node, key);
            found.into_iter().map(|label| label.value).collect()
        };
        assert_eq!(values(None), ["7", "a"]);
        assert_eq!(values(Some("zone")), ["a"]);
        assert_eq!(values(Some("sluice/gpu.model")), ["h100"]);
        assert_eq!(values(Some(POOL_LABEL)), ["default"]);
        assert!(values(Some("absent")).is_empty());
    }
}
