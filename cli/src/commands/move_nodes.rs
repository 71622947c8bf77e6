//! `sluice move node`: moves nodes to another pool, after draining each as `sluice drain` does.

use std::time::Instant;

use sluice_common::api::{MoveRequest, NodeView};

use super::cordon::{change, line};
use super::drain::{tell, wait};
use crate::args::MoveNodeArgs;
use crate::client::Client;
use crate::failure::Failure;
use crate::out::Out;
use crate::render::safe;
use crate::show;

pub(crate) fn run(client: &Client, args: &MoveNodeArgs, out: Out) -> Result<u8, Failure> {
    let request = MoveRequest {
        pool: args.pool.clone(),
        reason: args.reason.clone(),
        deadline: args.deadline.map(|span| span.to_string()),
    };
    let (mut views, code) = change(client, &args.nodes, out, |node| {
        client.move_node(node, &request)
    });
    let until = args.timeout.map(|limit| Instant::now() + limit);
    for view in &mut views {
        if view.pool == args.pool {
            continue;
        }
        tell(client, view, out)?;
        if args.wait {
            *view = wait(client, view, until, out)?;
        }
    }
    show::each(&views, out, |node| told(node, &args.pool, out))?;
    Ok(code)
}

pub(super) fn told(node: &NodeView, pool: &str, out: Out) -> String {
    match node.pool == pool {
        true => format!("{} is in pool {}", safe(&node.name), safe(pool)),
        false => line(node, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::node::tests::node;

    #[test]
    fn a_node_is_there_or_on_its_way() {
        let mut node = node();
        assert_eq!(
            told(&node, "default", Out::plain()),
            "gpu-1 is in pool default"
        );
        node.cordon = serde_json::from_value(serde_json::json!({
            "reason": "", "since": "2026-11-20T10:00:00Z", "drain": true, "deadline": null, "moves_to": "night"
        }))
        .unwrap();
        let told = told(&node, "night", Out::plain());
        assert!(
            told.contains("draining") && told.contains("moves:night"),
            "{told}"
        );
    }
}
