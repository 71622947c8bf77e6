//! Measures one scheduling decision after a submit and after the end of a run, while a full cluster has a queue in which
//! every request asks for its own CPU and memory. Prints, for each number of hosts and of queued requests, the median
//! and the 99th percentile in microseconds, without policies and with policies that reclaim and preempt.
//! `cargo bench -p sluice-simulator --bench decision [-- none|contended HOSTS...]`. A curve ends at the first size that
//! takes longer than [`PATIENCE`] to reach.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot measure has nothing to say"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU, ResourceKey};
use sluice_common::id::{NodeName, PoolName, StepId, Subject};
use sluice_common::mig::GpuClass;
use sluice_common::pool::PolicySpec;
use sluice_common::step::OnPreempt;
use sluice_common::time::{Span, Time};
use sluice_scheduler::PoolTerms;
use sluice_simulator::{HostSize, Job, Simulation};

const HOSTS: [u64; 3] = [100, 1_000, 10_000];
const QUEUED: [usize; 4] = [100, 1_000, 10_000, 100_000];
const SAMPLES: usize = 200;
const SUBJECTS: u64 = 10;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let chosen: Vec<u64> = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .collect();
    let hosts = match chosen.is_empty() {
        true => HOSTS.to_vec(),
        false => chosen,
    };
    say("policies   hosts   queued   submit p50/p99 us     end p50/p99 us   reached in");
    let args: Vec<String> = std::env::args().collect();
    let only = |kind: &str| args.iter().any(|arg| arg == kind);
    let without = [(false, "contended"), (true, "none")];
    for (policies, _) in without.into_iter().filter(|(_, other)| !only(other)) {
        for hosts in &hosts {
            curve(policies, *hosts);
        }
    }
}

/// Prints a line for each length of the queue.
fn curve(policies: bool, hosts: u64) {
    let mut cluster = Cluster::full(policies, hosts);
    for queued in QUEUED {
        let begin = Instant::now();
        cluster.queue_up(queued);
        let reached = begin.elapsed();
        let submits = cluster.time_submits();
        let ends = cluster.time_ends();
        let kind = if policies { "contended" } else { "none" };
        say(&format!(
            "{kind:9} {hosts:6} {queued:8}   {:>8.1} {:>9.1}   {:>8.1} {:>9.1}   {:8.1} s",
            percentile(&submits, 50),
            percentile(&submits, 99),
            percentile(&ends, 50),
            percentile(&ends, 99),
            reached.as_secs_f64()
        ));
        if begin.elapsed() > PATIENCE {
            return;
        }
    }
}

/// Returns a percentile in microseconds.
fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = (times.len() * percent / 100).min(times.len() - 1);
    times[at].as_secs_f64() * 1e6
}

/// Prints a line.
#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn say(line: &str) {
    println!("{line}");
}

/// A cluster whose GPUs are all granted.
struct Cluster {
    simulation: Simulation,
    pool: PoolName,
    subjects: Vec<Subject>,
    random: SplitMix64,
    submitted: u64,
}

impl Cluster {
    fn full(policies: bool, hosts: u64) -> Self {
        let mut simulation = Simulation::new(Time::default());
        let pool = PoolName::new("p").unwrap();
        simulation.put_pool(&pool, PoolTerms::default());
        let count = if policies { SUBJECTS } else { 1 };
        let name = |n| Subject::new(format!("subject-{n:02}")).unwrap();
        let subjects: Vec<Subject> = (0..count).map(name).collect();
        for (n, subject) in subjects.iter().enumerate() {
            let mut policy = PolicySpec::default();
            if policies {
                let share = hosts * 8 * 1_000 / 2 / SUBJECTS;
                policy.priority = n as u64 % 3;
                policy
                    .reserved
                    .insert(ResourceKey::new(MGPU).unwrap(), share);
            }
            let put = simulation.put_policy(&pool, subject, policy);
            put.unwrap().unwrap();
        }
        for n in 0..hosts {
            let size = HostSize {
                gpus: 8,
                mig: BTreeMap::new(),
                mcpu: Some(128_000),
                memory_mb: Some(1_000_000),
                storage_mb: None,
            };
            let node = NodeName::new(format!("host-{n:05}")).unwrap();
            simulation.put_host(&node, &pool, size, None).unwrap();
        }
        let mut cluster = Self {
            simulation,
            pool,
            subjects,
            random: SplitMix64(7),
            submitted: 0,
        };
        // Half of the subjects take everything; the shares of the others are lent.
        let lenders = cluster.subjects.split_off((count as usize).div_ceil(2));
        while cluster.used() < hosts * 8 {
            cluster.submit();
            cluster.simulation.settle();
        }
        cluster
            .simulation
            .advance(Time::default() + Span::from_secs(3_600));
        cluster.subjects.extend(lenders);
        cluster
    }

    fn used(&self) -> u64 {
        let pool = self.simulation.scheduler().pool(&self.pool).unwrap();
        pool.used().get(MGPU) / 1_000
    }

    fn waiting(&self) -> usize {
        self.simulation
            .scheduler()
            .pool(&self.pool)
            .unwrap()
            .waiting()
    }

    fn submit(&mut self) {
        let at = self.random.next() % self.subjects.len() as u64;
        let gpus = [1, 1, 1, 2, 2, 4, 8][(self.random.next() % 7) as usize];
        let resources = Amounts::new()
            .with_gpus(gpus)
            .with(MCPU, gpus * (1_000 + self.random.next() % 14_000))
            .with(MEMORY_MB, gpus * (1_000 + self.random.next() % 120_000));
        self.submitted += 1;
        let job = Job {
            step: StepId::new(format!("step-{:07}", self.submitted)).unwrap(),
            subject: self.subjects[at as usize].clone(),
            user: None,
            resources,
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
        self.simulation.submit(job).unwrap().unwrap();
    }

    /// Submits until so many requests wait and no decision is left.
    fn queue_up(&mut self, queued: usize) {
        while self.waiting() < queued {
            for _ in self.waiting()..queued {
                self.submit();
            }
            self.simulation.settle();
        }
    }

    fn time_submits(&mut self) -> Vec<Duration> {
        let sample = |_| {
            let begin = Instant::now();
            self.submit();
            self.decide();
            let time = begin.elapsed();
            self.simulation.settle();
            time
        };
        (0..SAMPLES).map(sample).collect()
    }

    fn time_ends(&mut self) -> Vec<Duration> {
        let sample = |_| {
            let runs = self.simulation.scheduler().runs();
            let runs: Vec<StepId> = runs.map(|(id, _)| id.step.clone()).collect();
            let ended = &runs[(self.random.next() % runs.len() as u64) as usize];
            let begin = Instant::now();
            self.simulation.finish(ended).unwrap();
            self.decide();
            let time = begin.elapsed();
            self.simulation.settle();
            time
        };
        (0..SAMPLES).map(sample).collect()
    }

    fn decide(&self) {
        let scheduler = self.simulation.scheduler();
        std::hint::black_box(scheduler.next_decision(&self.pool, self.simulation.now()));
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
