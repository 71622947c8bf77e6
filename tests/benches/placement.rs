//! Measures how full placement gets a cluster, and how many hosts it leaves empty before: pods of the openb trace come
//! in random order and none ends, until they have asked for 50 % and for 130 % of the GPUs. Our choice of hosts (`pack`
//! and `spread`) is compared with two baselines on the same input: best fit (the host that would have least left, over
//! GPUs, cores and memory, each as a part of the largest host's) and any host that fits.
//! `cargo bench -p sluice-tests --bench placement [-- WORKLOAD...]`; prints means and extremes of ten seeds.
//!
//! A pod that asks for a part of a GPU gets a whole one here, so the figures are not those that are published for
//! placement of parts. Trace: Alibaba's openb, by hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0. It is read
//! from `SLUICE_TRACES` or `../shared/traces`.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot measure has nothing to say"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU};
use sluice_common::id::{NodeName, PoolName, StepId, Subject};
use sluice_common::mig::GpuClass;
use sluice_common::pool::{HostPlacement, PolicySpec};
use sluice_common::step::OnPreempt;
use sluice_common::time::Time;
use sluice_scheduler::PoolTerms;
use sluice_simulator::{HostSize, Job, Simulation};
use sluice_tests::say;

const SEEDS: u64 = 10;
const ARRIVED_PERCENTS: [u64; 2] = [50, 130];

/// GPUs, thousandths of a core, memory in units of 10^6 bytes.
type PodResources = [u64; 3];

/// Places pods on hosts with a random seed; returns the granted GPUs of each host.
type Placement<'a> = dyn Fn(&[PodResources], &[PodResources], u64) -> Vec<u64> + 'a;

fn main() {
    let Some(folder) = folder() else {
        say("skipped: no traces in SLUICE_TRACES or ../shared/traces");
        return;
    };
    let hosts = read(&folder.join("openb_node_list_gpu_node.csv"), "gpu");
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    for workload in ["default", "multigpu50"] {
        if !chosen.is_empty() && !chosen.iter().any(|name| name == workload) {
            continue;
        }
        let pods = read(
            &folder.join(format!("openb_pod_list_{workload}.csv")),
            "num_gpu",
        );
        let run = |name: &str, place: &Placement<'_>| {
            for arrived in ARRIVED_PERCENTS {
                report(
                    &format!("{workload:10}  {name:8}"),
                    arrived,
                    &hosts,
                    &pods,
                    place,
                );
            }
        };
        run("pack", &|hosts, pods, _| {
            ours(hosts, pods, HostPlacement::Pack)
        });
        run("spread", &|hosts, pods, _| {
            ours(hosts, pods, HostPlacement::Spread)
        });
        run("best fit", &|hosts, pods, _| {
            baseline(hosts, pods, best_fit(hosts))
        });
        run("random", &|hosts, pods, seed| {
            let mut random = SplitMix64(!seed);
            baseline(hosts, pods, move |_, _| random.next())
        });
    }
}

/// Prints the part of all GPUs that a placement allocates, and the part of the free ones that are on hosts where
/// nothing runs, over the seeds.
fn report(
    name: &str,
    arrived: u64,
    hosts: &[PodResources],
    pods: &[PodResources],
    place: &Placement<'_>,
) {
    let all: u64 = hosts.iter().map(|host| host[0]).sum();
    let begin = Instant::now();
    let percents = (1..=SEEDS).map(|seed| {
        let held = place(hosts, &arrivals(pods, all * arrived / 100, seed), seed);
        let granted: u64 = held.iter().sum();
        let pairs = hosts.iter().zip(&held);
        let empty: u64 = pairs
            .map(|(host, held)| if *held == 0 { host[0] } else { 0 })
            .sum();
        let percent = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        (percent(granted, all), percent(empty, all - granted))
    });
    let (granted, empty): (Vec<f64>, Vec<f64>) = percents.unzip();
    say(&format!(
        "{name}  {arrived:3} % asked  {} of GPUs  {} of free GPUs on empty hosts  {:.1} s",
        spread_of(&granted),
        spread_of(&empty),
        begin.elapsed().as_secs_f64()
    ));
}

/// The mean of some figures, and their extremes.
fn spread_of(percents: &[f64]) -> String {
    let mean = percents.iter().sum::<f64>() / percents.len() as f64;
    let least = percents.iter().copied().fold(f64::INFINITY, f64::min);
    let most = percents.iter().copied().fold(0.0, f64::max);
    format!("{mean:6.2} % ({least:.2} to {most:.2})")
}

fn folder() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let traces = std::env::var_os("SLUICE_TRACES").map(PathBuf::from);
    let beside = root.join("../shared/traces");
    let mut folders = traces
        .into_iter()
        .chain([beside])
        .map(|traces| traces.join("openb"));
    folders.find(|folder| folder.exists())
}

fn read(path: &Path, gpus: &str) -> Vec<PodResources> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let columns = [at(gpus), at("cpu_milli"), at("memory_mib")];
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let [gpus, mcpu, mib] = columns.map(|column| cells[column].parse::<u64>().unwrap());
        [gpus, mcpu, (mib << 20).div_ceil(1_000_000)]
    };
    lines.map(row).collect()
}

/// Returns pods in random order until `enough` GPUs were asked for; if there are too few they come again in another
/// order.
fn arrivals(pods: &[PodResources], enough: u64, seed: u64) -> Vec<PodResources> {
    let mut random = SplitMix64(seed);
    let mut found = Vec::new();
    let mut asked = 0;
    while asked < enough {
        let mut order = pods.to_vec();
        for at in (1..order.len()).rev() {
            order.swap(at, (random.next() % (at as u64 + 1)) as usize);
        }
        for pod in order {
            if asked < enough {
                asked += pod[0];
                found.push(pod);
            }
        }
    }
    found
}

/// Returns the GPUs that our scheduler grants on each host.
fn ours(hosts: &[PodResources], pods: &[PodResources], placement: HostPlacement) -> Vec<u64> {
    let pool = PoolName::new("p").unwrap();
    let subject = Subject::new("s").unwrap();
    let mut simulation = Simulation::new(Time::default());
    let terms = PoolTerms {
        placement,
        ..PoolTerms::default()
    };
    simulation.put_pool(&pool, terms);
    simulation
        .put_policy(&pool, &subject, PolicySpec::default())
        .unwrap()
        .unwrap();
    let name = |n: usize| NodeName::new(format!("n{n:04}")).unwrap();
    for (n, [gpus, mcpu, memory]) in hosts.iter().enumerate() {
        let size = HostSize {
            gpus: *gpus,
            mig: BTreeMap::new(),
            mcpu: Some(*mcpu),
            memory_mb: Some(*memory),
            storage_mb: None,
        };
        simulation.put_host(&name(n), &pool, size, None).unwrap();
    }
    for (n, [gpus, mcpu, memory]) in pods.iter().enumerate() {
        let resources = Amounts::new().with_gpus(*gpus).with(MCPU, *mcpu);
        let job = Job {
            step: StepId::new(n.to_string()).unwrap(),
            subject: subject.clone(),
            user: None,
            resources: resources.with(MEMORY_MB, *memory),
            gpu_class: GpuClass::Whole,
            nodes: 1,
            within: None,
            priority: 0,
            preemptible: true,
            pool: None,
            platforms: Vec::new(),
            retries: 0,
            free_preemptions: true,
            on_preempt: OnPreempt::Requeue,
            time_limit: None,
        };
        simulation.submit(job).unwrap().unwrap();
        simulation.settle();
    }
    let scheduler = simulation.scheduler();
    let held = (0..hosts.len()).map(|n| {
        let runs = scheduler.runs_on(&name(n)).into_iter();
        let gpus = runs.map(|run| scheduler.run(&run).unwrap().demand().get(MGPU) / 1000);
        gpus.sum()
    });
    held.collect()
}

/// Returns the GPUs granted on each host if each pod goes to the fitting host with the lowest score, and is rejected if there is
/// none.
fn baseline(
    hosts: &[PodResources],
    pods: &[PodResources],
    mut score: impl FnMut(&PodResources, &PodResources) -> u64,
) -> Vec<u64> {
    let mut free = hosts.to_vec();
    for pod in pods {
        let fits = |host: &PodResources| host.iter().zip(pod).all(|(have, ask)| have >= ask);
        let fitting = (0..free.len()).filter(|n| fits(&free[*n]));
        let scored: Vec<(u64, usize)> = fitting.map(|n| (score(&free[n], pod), n)).collect();
        if let Some((_, n)) = scored.into_iter().min() {
            for (have, ask) in free[n].iter_mut().zip(pod) {
                *have -= ask;
            }
        }
    }
    let pairs = hosts.iter().zip(&free);
    pairs.map(|(host, free)| host[0] - free[0]).collect()
}

/// Scores what would be left of a host, in millionths of the largest host's, over all keys.
fn best_fit(hosts: &[PodResources]) -> impl Fn(&PodResources, &PodResources) -> u64 + use<> {
    let most: PodResources =
        std::array::from_fn(|key| hosts.iter().map(|host| host[key]).max().unwrap());
    move |free, pod| {
        let left = (0..most.len()).map(|key| (free[key] - pod[key]) * 1_000_000 / most[key]);
        left.sum()
    }
}

/// Pseudo-random numbers (SplitMix64).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
