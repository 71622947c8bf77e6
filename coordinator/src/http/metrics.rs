//! `GET /metrics`, in Prometheus' text format: hosts, GPUs, pools, steps, and how the coordinator itself does. Open to
//! all and without secrets. What the engine is asked for is copied there and written here, and nothing walks all steps.

mod page;

use std::time::Instant;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use coordinator_core::Core;
use sluice_common::amount::Amounts;
use sluice_common::inventory::{Gpu, GpuReading};
use sluice_common::state::{NodeState, StepState};
use sluice_common::time::Time;

use super::Api;
use super::error::ApiError;
use crate::clock::wall;
use crate::session::Nodes;
use page::{Page, Sample};

/// What the engine tells.
struct Seen {
    nodes: Vec<SeenNode>,
    pools: Vec<SeenPool>,
    steps: Vec<(StepState, u64)>,
}

struct SeenNode {
    name: String,
    pool: String,
    state: NodeState,
    takes_work: bool,
    cordoned: bool,
    heard_at: Option<Time>,
    gpus: Vec<(Gpu, bool)>,
}

struct SeenPool {
    name: String,
    capacity: Amounts,
    used: Amounts,
    queued: u64,
    holding: u64,
    oldest: Option<Time>,
}

/// Writes the page.
pub(super) async fn metrics(State(api): State<Api>) -> Result<Response, ApiError> {
    let asked = Instant::now();
    let seen = api.engine().read(look).await?;
    let waited = asked.elapsed();
    let mut page = Page::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.family(
        "sluice_build_info",
        "gauge",
        "The coordinator's build.",
        [Sample::new(&version, 1)],
    );
    nodes(&mut page, &seen, &api.0.nodes);
    gpus(&mut page, &seen, &api.0.nodes);
    pools(&mut page, &seen);
    own(&mut page, &api, waited.as_secs_f64());
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, page.text()).into_response())
}

fn look(core: &Core) -> Seen {
    let state = core.state();
    let nodes = state.nodes().values().map(|node| SeenNode {
        name: node.name.to_string(),
        pool: node.pool.to_string(),
        state: node.state,
        takes_work: state.takes_work(node),
        cordoned: node.cordon.is_some(),
        heard_at: core.heard_at(&node.name),
        gpus: node
            .inventory
            .gpus
            .iter()
            .map(|gpu| (gpu.clone(), state.is_granted(&node.name, &gpu.uuid)))
            .collect(),
    });
    let pools = state.pools().keys().map(|pool| SeenPool {
        name: pool.to_string(),
        capacity: state.capacity_of(pool),
        used: state.used_of(pool),
        queued: state.queue_len(pool) as u64,
        holding: state.holding_of(pool) as u64,
        oldest: state.oldest_in(pool).map(|step| step.submitted_at),
    });
    Seen {
        nodes: nodes.collect(),
        pools: pools.collect(),
        steps: state.steps_by_state().collect(),
    }
}

fn nodes(page: &mut Page, seen: &Seen, links: &Nodes) {
    let count = |state| seen.nodes.iter().filter(|node| node.state == state).count() as u64;
    let by_state =
        NodeState::ALL.map(|state| Sample::new(&[("state", state.as_str())], count(state)));
    page.family(
        "sluice_nodes",
        "gauge",
        "Remembered nodes by state.",
        by_state,
    );
    let truth = |truth: bool| Some(f64::from(u8::from(truth)));
    of_nodes(
        page,
        seen,
        "sluice_node_ready",
        "Whether the node takes work.",
        |node| truth(node.takes_work),
    );
    of_nodes(
        page,
        seen,
        "sluice_node_cordoned",
        "Whether an admin closed the node to new work.",
        |node| truth(node.cordoned),
    );
    let now = wall();
    let silence = |node: &SeenNode| Some(now.since(node.heard_at?).millis() as f64 / 1000.0);
    of_nodes(
        page,
        seen,
        "sluice_node_silence_seconds",
        "Time since the node was heard last.",
        silence,
    );
    let host = |node: &SeenNode| links.readings(&name(node)?).map(|readings| readings.host);
    of_nodes(
        page,
        seen,
        "sluice_node_load1",
        "Load average of one minute.",
        |node| Some(host(node)?.load_milli as f64 / 1000.0),
    );
    of_nodes(
        page,
        seen,
        "sluice_node_memory_available_bytes",
        "Memory that could be had without swapping.",
        |node| Some(host(node)?.memory_available_bytes as f64),
    );
    of_nodes(
        page,
        seen,
        "sluice_node_storage_free_bytes",
        "Free disk space below the agent's state.",
        |node| Some(host(node)?.storage_free_bytes as f64),
    );
}

fn name(node: &SeenNode) -> Option<sluice_common::id::NodeName> {
    node.name.parse().ok()
}

fn of_nodes(
    page: &mut Page,
    seen: &Seen,
    family: &str,
    help: &str,
    value: impl Fn(&SeenNode) -> Option<f64>,
) {
    let samples = seen.nodes.iter().filter_map(|node| {
        let labels = [("node", node.name.as_str()), ("pool", node.pool.as_str())];
        Some(Sample::new(&labels, value(node)?))
    });
    page.family(family, "gauge", help, samples);
}

/// A GPU with where it is and what was read of it.
struct Device<'a> {
    node: &'a SeenNode,
    gpu: &'a Gpu,
    granted: bool,
    reading: Option<GpuReading>,
}

impl Device<'_> {
    /// Something of what the GPU was read to be.
    fn read(&self, value: impl Fn(&GpuReading) -> Option<f64>) -> Option<f64> {
        self.reading.as_ref().and_then(value)
    }
}

/// What is told of each GPU: the name of the family, its kind, its help, and the value, if the GPU tells one.
type OfGpu = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Device<'_>) -> Option<f64>,
);

const OF_GPUS: [OfGpu; 10] = [
    (
        "sluice_gpu_granted",
        "gauge",
        "Whether a step holds the GPU.",
        |it| Some(f64::from(u8::from(it.granted))),
    ),
    (
        "sluice_gpu_memory_total_bytes",
        "gauge",
        "Memory of the GPU.",
        |it| Some(it.gpu.memory_bytes as f64),
    ),
    (
        "sluice_gpu_memory_used_bytes",
        "gauge",
        "Memory in use on the GPU.",
        |it| it.read(|r| Some(r.memory_used_bytes? as f64)),
    ),
    (
        "sluice_gpu_utilization_ratio",
        "gauge",
        "Part of the last moments in which something ran on the GPU.",
        |it| it.read(|r| Some(f64::from(r.utilization_percent?) / 100.0)),
    ),
    (
        "sluice_gpu_temperature_celsius",
        "gauge",
        "Temperature of the GPU.",
        |it| it.read(|r| Some(f64::from(r.temperature_celsius?))),
    ),
    (
        "sluice_gpu_power_watts",
        "gauge",
        "Power that the GPU draws.",
        |it| it.read(|r| Some(f64::from(r.power_milliwatts?) / 1000.0)),
    ),
    (
        "sluice_gpu_power_limit_watts",
        "gauge",
        "Power that the GPU may draw.",
        |it| it.read(|r| Some(f64::from(r.power_limit_milliwatts?) / 1000.0)),
    ),
    (
        "sluice_gpu_ecc_corrected_errors_total",
        "counter",
        "Errors in memory that were corrected since the driver was loaded.",
        |it| it.read(|r| Some(r.ecc_corrected? as f64)),
    ),
    (
        "sluice_gpu_ecc_uncorrected_errors_total",
        "counter",
        "Errors in memory that could not be corrected since the driver was loaded.",
        |it| it.read(|r| Some(r.ecc_uncorrected? as f64)),
    ),
    (
        "sluice_gpu_processes",
        "gauge",
        "Processes that use the GPU.",
        |it| it.read(|r| Some(r.processes.as_ref()?.len() as f64)),
    ),
];

fn gpus(page: &mut Page, seen: &Seen, links: &Nodes) {
    let mut devices: Vec<Device<'_>> = Vec::new();
    for node in &seen.nodes {
        let readings = name(node).and_then(|name| links.readings(&name));
        for (gpu, granted) in &node.gpus {
            let find = |uuid: &str| {
                let mut all = readings.iter().flat_map(|readings| &readings.gpus);
                all.find(|reading| reading.uuid == uuid).cloned()
            };
            let reading = find(&gpu.uuid);
            devices.push(Device {
                node,
                gpu,
                granted: *granted,
                reading,
            });
        }
    }
    for (name, kind, help, value) in OF_GPUS {
        let samples = devices
            .iter()
            .filter_map(|device| Some(Sample::new(&labels(device), value(device)?)));
        page.family(name, kind, help, samples);
    }
    let xids = devices.iter().flat_map(|device| {
        let counts = device.reading.iter().flat_map(|reading| &reading.xids);
        counts.map(|(xid, count)| {
            let xid = xid.to_string();
            let mut labels = labels(device).to_vec();
            labels.push(("xid", &xid));
            Sample::new(&labels, *count)
        })
    });
    page.family(
        "sluice_gpu_xids_total",
        "counter",
        "XIDs that the driver raised since the agent began to listen.",
        xids,
    );
}

fn labels<'a>(device: &Device<'a>) -> [(&'static str, &'a str); 5] {
    [
        ("node", &device.node.name),
        ("pool", &device.node.pool),
        ("gpu", &device.gpu.uuid),
        ("platform", &device.gpu.platform),
        (
            "mig_profile",
            device.gpu.mig.as_ref().map_or("", |mig| &mig.profile),
        ),
    ]
}

fn pools(page: &mut Page, seen: &Seen) {
    let by_state = seen
        .steps
        .iter()
        .map(|(state, count)| Sample::new(&[("state", state.as_str())], *count));
    page.family(
        "sluice_steps",
        "gauge",
        "Remembered steps by state.",
        by_state,
    );
    let of = |pool: &SeenPool, value: f64| Sample::new(&[("pool", pool.name.as_str())], value);
    let queued = seen.pools.iter().map(|pool| of(pool, pool.queued as f64));
    page.family(
        "sluice_pool_queued_steps",
        "gauge",
        "Steps that wait for the pool.",
        queued,
    );
    let holding = seen.pools.iter().map(|pool| of(pool, pool.holding as f64));
    page.family(
        "sluice_pool_holding_steps",
        "gauge",
        "Steps that hold units of the pool.",
        holding,
    );
    let now = wall();
    let oldest = seen.pools.iter().map(|pool| {
        let waited = pool.oldest.map_or(0, |since| now.since(since).millis());
        of(pool, waited as f64 / 1000.0)
    });
    page.family(
        "sluice_pool_oldest_wait_seconds",
        "gauge",
        "For how long the step that was submitted first of those that wait has done so.",
        oldest,
    );
    let keys = |amounts: fn(&SeenPool) -> &Amounts| {
        seen.pools.iter().flat_map(move |pool| {
            amounts(pool).iter().map(move |(key, amount)| {
                Sample::new(
                    &[("pool", pool.name.as_str()), ("key", key.as_str())],
                    amount,
                )
            })
        })
    };
    page.family(
        "sluice_pool_capacity",
        "gauge",
        "What the pool's nodes have, in units of the key.",
        keys(|pool| &pool.capacity),
    );
    page.family(
        "sluice_pool_used",
        "gauge",
        "What is granted of the pool, in units of the key.",
        keys(|pool| &pool.used),
    );
}

/// How the coordinator does.
fn own(page: &mut Page, api: &Api, waited: f64) {
    let meter = api.engine().meter();
    let seq = *api.engine().committed().borrow();
    let one = |value: f64| [Sample::new(&[], value)];
    page.family(
        "sluice_last_record",
        "gauge",
        "Number of the last durable record.",
        one(seq as f64),
    );
    page.family(
        "sluice_records_total",
        "counter",
        "Records committed.",
        one(meter.records() as f64),
    );
    page.family(
        "sluice_engine_wait_seconds",
        "gauge",
        "How long this page waited for the engine.",
        one(waited),
    );
    page.histogram(
        "sluice_decision_seconds",
        "Time that inputs took to be decided.",
        meter.decisions(),
    );
    page.histogram(
        "sluice_commit_seconds",
        "Time that commits of the store took.",
        meter.commits(),
    );
    let calls = api.0.calls.seen();
    let samples = calls
        .iter()
        .map(|(call, (count, _))| Sample::new(&call.labels(), *count));
    page.family(
        "sluice_http_requests_total",
        "counter",
        "Calls that were answered.",
        samples,
    );
    let samples = calls
        .iter()
        .map(|(call, (_, time))| Sample::new(&call.labels(), time.as_secs_f64()));
    page.family(
        "sluice_http_request_seconds_total",
        "counter",
        "Time until calls were answered; streams count until they begin.",
        samples,
    );
}
