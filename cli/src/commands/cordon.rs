//! `sluice cordon` and `sluice uncordon`: closes nodes to new steps, and reopens them. Each is tried even if others
//! fail.

use sluice_common::api::{CordonRequest, NodeView, UncordonRequest};
use sluice_common::error_code::ErrorCode;

use super::get::explained;
use super::outage_note;
use crate::args::{CordonArgs, UncordonArgs};
use crate::client::{ApiError, Client, RetryLimit};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::{render, show};

/// Runs `sluice cordon`.
pub(crate) fn cordon(client: &Client, args: &CordonArgs, out: Out) -> Result<u8, Failure> {
    let request = CordonRequest {
        reason: args.reason.clone(),
        gpu: args.gpu.clone(),
    };
    let (views, code) = change(client, &args.nodes, out, |node| {
        client.cordon(node, &request)
    });
    show::each(&views, out, |node| line(node, out))?;
    Ok(code)
}

/// Runs `sluice uncordon`.
pub(crate) fn uncordon(client: &Client, args: &UncordonArgs, out: Out) -> Result<u8, Failure> {
    let request = UncordonRequest {
        gpu: args.gpu.clone(),
    };
    let (views, code) = change(client, &args.nodes, out, |node| {
        client.uncordon(node, &request)
    });
    show::each(&views, out, |node| line(node, out))?;
    Ok(code)
}

/// Changes each node; returns the changed ones, and an exit code that says whether all were.
pub(super) fn change<T>(
    client: &Client,
    nodes: &[String],
    out: Out,
    call: impl Fn(&str) -> Result<T, ApiError>,
) -> (Vec<T>, u8) {
    let mut done = Vec::new();
    let mut code = 0;
    for node in nodes {
        match client.keep_trying(RetryLimit::CHANGE, outage_note(out), || call(node)) {
            Ok(view) => done.push(view),
            Err(error) => {
                code = FAILED;
                out.error(&refusal(client, node, &error));
            }
        }
    }
    (done, code)
}

/// Returns why a change of a node was refused, with a similar name if the node is unknown.
pub(super) fn refusal(client: &Client, node: &str, error: &ApiError) -> String {
    if error.code() == Some(ErrorCode::UnknownNode.as_str()) {
        return explained::<NodeView>(client, node, error);
    }
    error.to_string()
}

/// Formats a node and its state, such as `gpu-1 ready,cordoned`, with the number of its free GPUs.
pub(super) fn line(node: &NodeView, out: Out) -> String {
    let unfit = match node.unfit_gpus.len() {
        0 => String::new(),
        count => format!(", {count} of its GPUs unfit"),
    };
    format!(
        "{} {}{unfit}",
        render::safe(&node.name),
        render::node::standing(node, out)
    )
}
