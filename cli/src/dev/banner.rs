//! The banner of `sluice dev`: addresses, detected hardware, commands to try, and how to stop.

use std::path::Path;

use sluice_common::api::{GpuView, NodeView};

use crate::out::{Out, Tone};
use crate::render::host::GPUS_UNKNOWN;
use crate::render::node::isolation;
use crate::render::{amounts, safe, table::align};

/// Contents of the banner.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) http: &'a str,
    pub(super) quic: &'a str,
    /// The gateway's address, or why there is none.
    pub(super) gateway: Option<&'a str>,
    /// This machine, if it is a host.
    pub(super) here: Option<&'a NodeView>,
    /// Hosts declared by documents.
    pub(super) made: &'a [NodeView],
    pub(super) data: &'a Path,
    pub(super) temporary: bool,
    /// Name by which this program was called.
    pub(super) program: &'a str,
    /// Path of the context file, if commands do not find it by default.
    pub(super) context: Option<&'a Path>,
}

pub(super) fn banner(facts: &Facts<'_>, out: Out) -> String {
    let title = out.paint_err(Tone::Strong, "Sluice is ready on this machine.");
    let rows = rows(facts);
    let label = |text: &str| format!("  {}", out.paint_err(Tone::Faint, text));
    let lines: Vec<String> = rows
        .iter()
        .map(|(key, value)| format!("{}\t{value}", label(key)))
        .collect();
    let try_it = out.paint_err(Tone::Good, example(facts));
    format!(
        "\n{title}\n\n{}\nTry it:  {try_it}\nStop it: Ctrl-C\n",
        align(&lines)
    )
}

fn rows(facts: &Facts<'_>) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("api", format!("http://{}", facts.http)),
        ("agents", format!("quic {}", facts.quic)),
    ];
    rows.extend(facts.gateway.map(|text| ("gateway", text.to_owned())));
    rows.extend(facts.here.map(this_machine).into_iter().flatten());
    rows.extend(facts.made.iter().map(|node| ("host", made_host(node))));
    let data = safe(&facts.data.to_string_lossy());
    let fate = if facts.temporary {
        " (removed at the end)"
    } else {
        ""
    };
    rows.push(("data", format!("{data}{fate}")));
    rows
}

/// Formats a declared host on one line.
fn made_host(node: &NodeView) -> String {
    let gpus = gpu_lines(&node.inventory.gpus);
    let gpus = if gpus.is_empty() {
        "no GPU".to_owned()
    } else {
        gpus.join(", ")
    };
    format!(
        "{} in pool {}: {gpus} (declared)",
        safe(&node.name),
        safe(&node.pool)
    )
}

fn this_machine(node: &NodeView) -> Vec<(&'static str, String)> {
    let inventory = &node.inventory;
    let model = if inventory.cpu_model.is_empty() {
        "unknown model"
    } else {
        &inventory.cpu_model
    };
    let cores = if inventory.cpus == 1 { "core" } else { "cores" };
    let mut rows = vec![
        (
            "node",
            format!("{} in pool {}", safe(&node.name), safe(&node.pool)),
        ),
        (
            "cpu",
            format!("{}, {} {cores}", safe(model), inventory.cpus),
        ),
        ("memory", amounts::bytes(inventory.memory_bytes)),
    ];
    match gpu_lines(&inventory.gpus) {
        _ if inventory.gpus_unknown => rows.push(("gpus", GPUS_UNKNOWN.to_owned())),
        lines if lines.is_empty() => rows.push(("gpus", "none".to_owned())),
        lines => rows.extend(lines.into_iter().map(|line| ("gpus", line))),
    }
    rows.extend(inventory.notes.iter().map(|note| ("note", safe(note))));
    let warnings = isolation::not_limited(&inventory.capabilities);
    rows.extend(warnings.into_iter().map(|it| ("warning", it)));
    rows
}

/// Formats one line for each GPU model, with the count.
fn gpu_lines(gpus: &[GpuView]) -> Vec<String> {
    let mut kinds: Vec<((&str, u64), usize)> = Vec::new();
    for gpu in gpus {
        let kind = (gpu.model.as_str(), gpu.memory_bytes);
        match kinds.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let line =
        |((model, memory), count)| format!("{count} x {}, {}", safe(model), amounts::bytes(memory));
    kinds.into_iter().map(line).collect()
}

fn example(facts: &Facts<'_>) -> String {
    let context = facts
        .context
        .map(|path| format!(" --context {}", safe(&path.to_string_lossy())));
    let command = "sh -c 'echo hello from $SLUICE_NODE'";
    format!(
        "{}{} run -- {command}",
        safe(facts.program),
        context.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(model: &str) -> GpuView {
        GpuView {
            index: 0,
            uuid: "GPU-a".into(),
            model: model.into(),
            memory_bytes: 80 << 30,
            ..GpuView::default()
        }
    }

    fn node(inventory: serde_json::Value) -> NodeView {
        serde_json::from_value(serde_json::json!({
            "name": "box", "pool": "default", "state": "ready", "labels": {}, "version": "1", "capacity": {},
            "used": {}, "steps": [], "inventory": inventory, "joined_at": "2026-11-20T10:00:00Z", "heard_at": null,
        }))
        .unwrap()
    }

    #[test]
    fn hosts_that_were_made_take_a_line_each() {
        let gpu = serde_json::json!({"model": "NVIDIA L40S", "memory_bytes": 46_068u64 << 20});
        let with = node(serde_json::json!({"gpus": [gpu, gpu]}));
        assert_eq!(
            made_host(&with),
            "box in pool default: 2 x NVIDIA L40S, 44.9GiB (declared)"
        );
        assert_eq!(
            made_host(&node(serde_json::json!({}))),
            "box in pool default: no GPU (declared)"
        );
    }

    #[test]
    fn it_says_where_what_and_how() {
        let node = node(serde_json::json!({
            "cpu_model": "AMD EPYC", "cpus": 2, "memory_bytes": 8u64 << 30,
            "notes": ["no NVIDIA driver: CPU only"], "capabilities": {"memory": "none", "cpu": "cgroup2"},
        }));
        let facts = Facts {
            http: "127.0.0.1:1",
            quic: "127.0.0.1:2",
            gateway: Some("none: HAProxy is missing"),
            here: Some(&node),
            made: &[],
            data: Path::new("/tmp/d"),
            temporary: true,
            program: "./sluice",
            context: Some(Path::new("/tmp/d/context.json")),
        };
        let expected = "
Sluice is ready on this machine.

  api      http://127.0.0.1:1
  agents   quic 127.0.0.1:2
  gateway  none: HAProxy is missing
  node     box in pool default
  cpu      AMD EPYC, 2 cores
  memory   8GiB
  gpus     none
  note     no NVIDIA driver: CPU only
  warning  memory is not limited here: a step may use more than it asks for; a pool with `require: [memory]` gives this host no new work
  data     /tmp/d (removed at the end)

Try it:  ./sluice --context /tmp/d/context.json run -- sh -c 'echo hello from $SLUICE_NODE'
Stop it: Ctrl-C
";
        assert_eq!(banner(&facts, Out::plain()), expected);
    }

    #[test]
    fn gpus_of_one_kind_share_a_line() {
        let lines = gpu_lines(&[gpu("H100"), gpu("L40S"), gpu("H100")]);
        assert_eq!(lines, ["2 x H100, 80GiB", "1 x L40S, 80GiB"]);
    }
}
