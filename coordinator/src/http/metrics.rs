//! `GET /metrics`, in Prometheus' text format: hosts, GPUs, pools, steps, and the coordinator itself. Open by default,
//! and without secrets. The engine only copies numbers, and never iterates over all steps.

mod amounts;
mod gpus;
mod page;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use coordinator_core::Core;
use sluice_common::amount::{Amounts, MGPU, MGPU_A_GPU};
use sluice_common::id::{NodeName, PoolName};
use sluice_common::inventory::{Gpu, GpuReading, HostReading, Readings};
use sluice_common::state::{NodeState, StepState};
use sluice_common::time::Time;

use super::Api;
use super::error::ApiError;
use crate::clock::wall;
use crate::session::Nodes;
use gpus::GpuMetrics;
use page::{MetricsPage, Sample};

/// Numbers copied from the engine.
struct EngineSnapshot {
    nodes: Vec<NodeSnapshot>,
    pools: Vec<PoolSnapshot>,
    steps: Vec<(StepState, u64)>,
}

struct NodeSnapshot {
    name: NodeName,
    pool: PoolName,
    state: NodeState,
    takes_work: bool,
    cordoned: bool,
    heard_at: Option<Time>,
    gpus: Vec<GpuSnapshot>,
}

struct GpuSnapshot {
    gpu: Gpu,
    granted: bool,
    /// Why it is not granted, in one word or two.
    unfit: Option<&'static str>,
}

struct PoolSnapshot {
    name: PoolName,
    capacity: Amounts,
    used: Amounts,
    grantable_gpus: u64,
    queued: u64,
    holding: u64,
    oldest: Option<Time>,
}

/// A node with its last readings.
struct HostMetrics {
    node: NodeSnapshot,
    readings: Option<Arc<Readings>>,
}

/// Metric family of one kind of thing: name, help, and the value, if there is one.
type Family<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

/// Handles `GET /metrics` with all families.
pub(super) async fn metrics(State(api): State<Api>) -> Result<Response, ApiError> {
    let asked = Instant::now();
    let seen = api.engine().read(look).await?;
    let waited = asked.elapsed();
    let mut page = MetricsPage::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.family(
        "sluice_build_info",
        "The coordinator's build.",
        [Sample::new(&version, 1)],
    );
    hosts(&mut page, seen.nodes, &api.0.nodes);
    pools(&mut page, &seen.steps, &seen.pools);
    own(&mut page, &api, waited.as_secs_f64());
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, page.text()).into_response())
}

fn look(core: &Core) -> EngineSnapshot {
    let state = core.state();
    let nodes = state.nodes().values().map(|node| NodeSnapshot {
        name: node.name.clone(),
        pool: node.pool.clone(),
        state: node.state,
        takes_work: state.takes_work(node),
        cordoned: node.cordon.is_some(),
        heard_at: core.heard_at(&node.name),
        gpus: node
            .inventory
            .gpus
            .iter()
            .map(|gpu| GpuSnapshot {
                gpu: gpu.clone(),
                granted: state.is_granted(&node.name, &gpu.uuid),
                unfit: state.unfit_word(node, &gpu.uuid),
            })
            .collect(),
    });
    let pools = state.pools().keys().map(|pool| PoolSnapshot {
        name: pool.clone(),
        capacity: state.capacity_of(pool),
        used: state.used_of(pool),
        grantable_gpus: grantable_gpus(state, pool),
        queued: state.queue_len(pool) as u64,
        holding: state.running_in(pool) as u64,
        oldest: state.oldest_in(pool).map(|step| step.submitted_at),
    });
    EngineSnapshot {
        nodes: nodes.collect(),
        pools: pools.collect(),
        steps: state.steps_by_state().collect(),
    }
}

/// Number of GPUs of a pool that are granted or can be.
fn grantable_gpus(state: &coordinator_core::State, pool: &PoolName) -> u64 {
    if state
        .pool(pool)
        .is_some_and(coordinator_core::Pool::is_hostless)
    {
        return state.capacity_of(pool).get(MGPU) / MGPU_A_GPU;
    }
    let open = state.nodes_of(pool).filter(|node| state.takes_work(node));
    let fit = open.flat_map(|node| {
        let gpus = node.inventory.gpus.iter();
        gpus.filter(|gpu| state.unfit_word(node, &gpu.uuid).is_none())
    });
    fit.count() as u64
}

/// Writes families with one sample per thing that has a value.
fn each<T, const N: usize>(
    page: &mut MetricsPage,
    families: &[Family<T>],
    things: &[T],
    labels: fn(&T) -> [(&'static str, &str); N],
) {
    for (name, help, value) in families {
        let samples = things
            .iter()
            .filter_map(|thing| Some(Sample::new(&labels(thing), value(thing)?)));
        page.family(name, help, samples);
    }
}

fn truth(truth: bool) -> Option<f64> {
    Some(f64::from(u8::from(truth)))
}

fn seconds_since(time: Time) -> f64 {
    wall().since(time).millis() as f64 / 1000.0
}

const OF_NODES: [Family<Rc<HostMetrics>>; 6] = [
    ("sluice_node_ready", "Whether the node takes work.", |it| {
        truth(it.node.takes_work)
    }),
    (
        "sluice_node_cordoned",
        "Whether an admin closed the node to new work.",
        |it| truth(it.node.cordoned),
    ),
    (
        "sluice_node_silence_seconds",
        "Time since the node was last heard.",
        |it| it.node.heard_at.map(seconds_since),
    ),
    ("sluice_node_load1", "Load average of one minute.", |it| {
        it.read(|host| host.load_milli as f64 / 1000.0)
    }),
    (
        "sluice_node_memory_available_bytes",
        "Memory available without swapping.",
        |it| it.read(|host| host.memory_available_bytes as f64),
    ),
    (
        "sluice_node_storage_free_bytes",
        "Free disk space below the agent's state.",
        |it| it.read(|host| host.storage_free_bytes as f64),
    ),
];

impl HostMetrics {
    fn read(&self, value: impl Fn(&HostReading) -> f64) -> Option<f64> {
        self.readings.as_ref().map(|all| value(&all.host))
    }

    fn reading_of(&self, gpu: &Gpu) -> Option<GpuReading> {
        let gpus = &self.readings.as_ref()?.gpus;
        gpus.iter().find(|it| it.uuid == gpu.uuid).cloned()
    }

    fn labels(&self) -> [(&'static str, &str); 2] {
        [
            ("node", self.node.name.as_str()),
            ("pool", self.node.pool.as_str()),
        ]
    }
}

fn hosts(page: &mut MetricsPage, nodes: Vec<NodeSnapshot>, links: &Nodes) {
    let count = |state| nodes.iter().filter(|node| node.state == state).count() as u64;
    let by_state =
        NodeState::ALL.map(|state| Sample::new(&[("state", state.as_str())], count(state)));
    page.family("sluice_nodes", "Remembered nodes by state.", by_state);
    let (mut hosts, mut devices) = (Vec::new(), Vec::new());
    for mut node in nodes {
        let gpus = std::mem::take(&mut node.gpus);
        let readings = links.readings(&node.name);
        let host = Rc::new(HostMetrics { node, readings });
        devices.extend(gpus.into_iter().map(|gpu| GpuMetrics {
            reading: host.reading_of(&gpu.gpu),
            host: Rc::clone(&host),
            gpu,
        }));
        hosts.push(host);
    }
    each(page, &OF_NODES, &hosts, |host| host.labels());
    gpus::families(page, &devices);
}

const OF_POOLS: [Family<PoolSnapshot>; 4] = [
    (
        "sluice_pool_grantable_gpus",
        "GPUs of the pool that are granted or can be: fit, on nodes that take work.",
        |it| Some(it.grantable_gpus as f64),
    ),
    (
        "sluice_pool_queued_steps",
        "Queued steps of the pool.",
        |it| Some(it.queued as f64),
    ),
    (
        "sluice_pool_holding_steps",
        "Steps with an allocation in the pool.",
        |it| Some(it.holding as f64),
    ),
    (
        "sluice_pool_oldest_wait_seconds",
        "Time for which the queued step that was submitted first has waited.",
        |it| Some(it.oldest.map_or(0.0, seconds_since)),
    ),
];

fn pools(page: &mut MetricsPage, steps: &[(StepState, u64)], pools: &[PoolSnapshot]) {
    let by_state = steps
        .iter()
        .map(|(state, count)| Sample::new(&[("state", state.as_str())], *count));
    page.family("sluice_steps", "Remembered steps by state.", by_state);
    each(page, &OF_POOLS, pools, |pool| {
        [("pool", pool.name.as_str())]
    });
    amounts::of_pools(page, pools, ("capacity", "Capacity"), |pool| &pool.capacity);
    amounts::of_pools(page, pools, ("used", "Allocated resources"), |pool| {
        &pool.used
    });
}

/// Writes the coordinator's own metrics.
fn own(page: &mut MetricsPage, api: &Api, waited: f64) {
    let meter = api.engine().meter();
    let seq = *api.engine().committed().borrow();
    let families = [
        (
            "sluice_last_record",
            "Number of the last durable record.",
            seq as f64,
        ),
        (
            "sluice_records_total",
            "Records committed.",
            meter.records() as f64,
        ),
        (
            "sluice_engine_wait_seconds",
            "How long this page waited for the engine.",
            waited,
        ),
    ];
    for (name, help, value) in families {
        page.family(name, help, [Sample::new(&[], value)]);
    }
    page.histogram(
        "sluice_decision_seconds",
        "Time to decide inputs.",
        meter.decisions(),
    );
    page.histogram(
        "sluice_commit_seconds",
        "Time to commit to the store.",
        meter.commits(),
    );
    answered_calls(page, api);
}

fn answered_calls(page: &mut MetricsPage, api: &Api) {
    let calls = api.0.calls.seen();
    let samples = calls
        .iter()
        .map(|(call, (count, _))| Sample::new(&call.labels(), *count));
    page.family(
        "sluice_http_requests_total",
        "Calls that were answered.",
        samples,
    );
    let samples = calls
        .iter()
        .map(|(call, (_, time))| Sample::new(&call.labels(), time.as_secs_f64()));
    page.family(
        "sluice_http_request_seconds_total",
        "Time until calls were answered; streams count until they begin.",
        samples,
    );
}
