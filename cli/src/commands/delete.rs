//! `sluice delete`: forgets what is gone for good. Each is tried, whatever becomes of the others.

use sluice_common::api::NodeView;

use super::cordon::change;
use crate::args::{Deletable, DeleteArgs};
use crate::client::{ApiError, Client};
use crate::failure::Failure;
use crate::out::Out;
use crate::{render, show};

/// Runs the command.
pub(crate) fn run(client: &Client, args: &DeleteArgs, out: Out) -> Result<u8, Failure> {
    match args.kind {
        Deletable::Node => nodes(client, args, out),
    }
}

fn nodes(client: &Client, args: &DeleteArgs, out: Out) -> Result<u8, Failure> {
    let (views, code) = change(client, &args.names, out, |name| {
        delete_node(client, name, args.force)
    });
    show::each(&views, out, line)?;
    Ok(code)
}

/// Deletes a node: as it was last, or as it stands while it must be kept.
fn delete_node(client: &Client, name: &str, force: bool) -> Result<NodeView, ApiError> {
    let last = client.node(name)?;
    let kept = client.delete_node(name, force)?;
    Ok(kept.unwrap_or(NodeView {
        leaving: false,
        ..last
    }))
}

fn line(node: &NodeView) -> String {
    let name = render::safe(&node.name);
    if !node.leaving {
        return format!("{name} deleted");
    }
    let steps: Vec<String> = node.steps.iter().map(|step| render::safe(step)).collect();
    format!(
        "{name} is forgotten as soon as it is lost, for it may still run {}",
        steps.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::node::tests::node;

    #[test]
    fn what_must_be_kept_for_a_while_is_said() {
        let mut node = node();
        assert_eq!(line(&node), "gpu-1 deleted");
        node.leaving = true;
        assert_eq!(
            line(&node),
            "gpu-1 is forgotten as soon as it is lost, for it may still run k3v9"
        );
    }
}
