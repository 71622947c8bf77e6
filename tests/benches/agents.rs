//! Measures a coordinator with many linked agents: memory and processor time for each while nothing runs, and how long all
//! take to be back after the coordinator was killed. The agents are tasks of this process, each with its own certificate,
//! socket and QUIC connection; they greet, send heartbeats, have their leases signed and dial again as agents do.
//! `cargo bench -p sluice-tests --bench agents [-- AGENTS]` after `cargo build --release`; 10,000 unless told otherwise.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot measure has nothing to say"
)]

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sluice_common::epoch::SealedEpoch;
use sluice_common::host_health::SupervisorState;
use sluice_common::id::{BootId, NodeName, PoolName};
use sluice_common::inventory::{Gpu, Inventory};
use sluice_common::lease::{Challenge, renewal_age};
use sluice_common::supervision::BootMillis;
use sluice_common::wire::{
    Command, Heartbeat, HeartbeatAck, Hello, HelloReply, PROTOCOL_VERSION, StreamKind,
};
use sluice_tests::{Cost, Daemon, Dev, cost, eventually, say};
use sluice_transport::{
    Authority, Backoff, Dialer, FrameReader, Identity, TlsFiles, TransportError,
};
use tokio::time::{Interval, interval, sleep, timeout};

const AGENTS: usize = 10_000;
const GPUS_PER_HOST: u32 = 8;
/// Time over which processor time is measured.
const STEADY: Duration = Duration::from_secs(30);
/// Longest time until all are linked.
const PATIENCE: Duration = Duration::from_secs(300);

/// Events that all agents count together.
#[derive(Default)]
struct AgentCounts {
    linked: AtomicUsize,
    /// Links that were made, ended ones too.
    links: AtomicUsize,
    dials: AtomicUsize,
}

/// One agent, with all that a restart of the coordinator leaves to it.
struct SimulatedAgent {
    node: NodeName,
    dialer: Dialer,
    address: String,
    epoch: Option<SealedEpoch>,
    begin: Instant,
    counts: Arc<AgentCounts>,
}

fn main() {
    let agents = std::env::args().find_map(|arg| arg.parse().ok());
    let agents = agents.unwrap_or(AGENTS);
    let dev = Dev::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(&dev, agents));
}

async fn measure(dev: &Dev, agents: usize) {
    let counts = Arc::new(AgentCounts::default());
    let before = cost(dev.daemon(Daemon::Coordinator).unwrap()).unwrap();
    let begin = Instant::now();
    let prepared = prepare(dev, agents, &counts);
    say(&format!(
        "{agents} agents prepared in {:.1} s",
        begin.elapsed().as_secs_f64()
    ));

    let begin = Instant::now();
    for agent in prepared {
        tokio::spawn(agent.run());
    }
    all_linked(&counts, agents, 1).await;
    say(&format!(
        "all linked for the first time: {:.1} s, {} dials",
        begin.elapsed().as_secs_f64(),
        counts.dials.load(Ordering::SeqCst)
    ));
    // What a first link leaves to do is done by then.
    sleep(STEADY / 3).await;

    let (memory, percent) = steady(dev, &before, agents).await;
    say(&format!("memory for each: {memory:.1} kB"));
    say(&format!("processor time: {percent:.1} % of a core"));

    let dials = counts.dials.load(Ordering::SeqCst);
    let killed = dev.kill(Daemon::Coordinator);
    let begin = Instant::now();
    let pid = eventually("another coordinator", || {
        dev.daemon(Daemon::Coordinator)
            .filter(|pid| *pid != killed && dev.try_call("GET", "/v1/pools", None).is_some())
    });
    let answers = begin.elapsed();
    all_linked(&counts, agents, 2).await;
    let linked = begin.elapsed();
    say(&format!(
        "after a kill: it answers after {:.1} s, all are linked after {:.1} s with {:.1} dials each; {:.1} s of processor \
         time until then",
        answers.as_secs_f64(),
        linked.as_secs_f64(),
        (counts.dials.load(Ordering::SeqCst) - dials) as f64 / agents as f64,
        cost(pid).unwrap().processor_ticks as f64 / 100.0,
    ));
    let (memory, percent) = steady(dev, &before, agents).await;
    say(&format!(
        "then memory for each: {memory:.1} kB, processor time: {percent:.1} % of a core"
    ));
}

/// Measures the coordinator for a while: the memory that it has gained for each agent in kB, and its processor time in
/// percent of a core.
async fn steady(dev: &Dev, before: &Cost, agents: usize) -> (f64, f64) {
    let pid = dev.daemon(Daemon::Coordinator).unwrap();
    let begin = cost(pid).unwrap();
    sleep(STEADY).await;
    let end = cost(pid).unwrap();
    let kib = end.memory_kib.saturating_sub(before.memory_kib) as f64;
    let ticks = (end.processor_ticks - begin.processor_ticks) as f64;
    // A tick is 10 ms, so a hundred of them in a second are all of a core.
    (kib * 1.024 / agents as f64, ticks / STEADY.as_secs_f64())
}

/// Waits until all agents are linked, each for the nth time.
async fn all_linked(counts: &AgentCounts, agents: usize, times: usize) {
    let begin = Instant::now();
    loop {
        let links = counts.links.load(Ordering::SeqCst);
        let linked = counts.linked.load(Ordering::SeqCst);
        if links >= agents * times && linked == agents {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "only {linked} are linked");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Issues a certificate to each agent.
fn prepare(dev: &Dev, agents: usize, counts: &Arc<AgentCounts>) -> Vec<SimulatedAgent> {
    let tls = dev.data().join("coordinator/tls");
    let authority = Authority::load(&tls.join("ca.pem"), &tls.join("ca.key")).unwrap();
    let agent = |number: usize| {
        let name = format!("host-{number:05}");
        SimulatedAgent {
            dialer: Dialer::new(&identity(&authority, dev.folder(), &tls, &name)).unwrap(),
            node: NodeName::new(name).unwrap(),
            address: dev.quic.clone(),
            epoch: None,
            begin: Instant::now(),
            counts: Arc::clone(counts),
        }
    };
    (0..agents).map(agent).collect()
}

fn identity(authority: &Authority, folder: &Path, tls: &Path, name: &str) -> Identity {
    let issued = authority.issue_node(name).unwrap();
    let files = TlsFiles {
        ca: tls.join("ca.pem"),
        cert: folder.join("node.pem"),
        key: folder.join("node.key"),
    };
    fs::remove_file(&files.key).ok();
    issued.write(&files.cert, &files.key).unwrap();
    Identity::load(&files).unwrap()
}

impl SimulatedAgent {
    async fn run(mut self) {
        let mut backoff = Backoff::new();
        loop {
            let mut is_linked = false;
            let counts = Arc::clone(&self.counts);
            let ended = self.link(&mut backoff, &mut is_linked).await;
            if is_linked {
                counts.linked.fetch_sub(1, Ordering::SeqCst);
            }
            let Err(_) = ended;
            sleep(backoff.next(getrandom::u64().unwrap())).await;
        }
    }

    /// Links once, until the link ends.
    async fn link(
        &mut self,
        backoff: &mut Backoff,
        is_linked: &mut bool,
    ) -> Result<Infallible, TransportError> {
        self.counts.dials.fetch_add(1, Ordering::SeqCst);
        let connection = self.dialer.dial(&self.address).await?;
        let (mut control, mut orders) = connection.open().await?;
        control.send(&StreamKind::Control).await?;
        let (mut beats, mut acks) = connection.open().await?;
        beats.send(&StreamKind::Heartbeat).await?;
        control.send(&self.hello()).await?;
        let greeting = timeout(Duration::from_secs(10), orders.next()).await;
        let lost = |reason: &str| TransportError::Lost {
            reason: reason.to_owned(),
        };
        let greeting = greeting.map_err(|_| lost("no greeting"))??;
        let Some(HelloReply::Welcome(welcome)) = greeting else {
            return Err(lost("refused"));
        };
        self.epoch = Some(welcome.epoch);
        backoff.reset();
        *is_linked = true;
        self.counts.linked.fetch_add(1, Ordering::SeqCst);
        self.counts.links.fetch_add(1, Ordering::SeqCst);
        let renewal_age = Duration::from_millis(renewal_age(welcome.lease).millis());
        let mut leased_at = Instant::now();
        let mut ticks = interval(Duration::from_millis(welcome.heartbeat.millis()));
        for number in 0.. {
            while let Some(order) = next_unless(&mut ticks, &mut orders).await {
                order?.ok_or_else(|| lost("no more orders"))?;
            }
            let is_due = leased_at.elapsed() >= renewal_age;
            if is_due {
                leased_at = Instant::now();
            }
            let beat = Heartbeat {
                number,
                sent_at: self.boot(),
                last_acknowledged: self.boot(),
                last_order: 0,
                challenge: is_due.then(challenge),
            };
            beats.send(&beat).await?;
            let ack: Option<HeartbeatAck> = acks.next().await?;
            ack.ok_or_else(|| lost("no more acknowledgements"))?;
        }
        unreachable!("an agent does not count to the end")
    }

    fn boot(&self) -> BootMillis {
        BootMillis(self.begin.elapsed().as_millis() as u64)
    }

    fn hello(&self) -> Hello {
        let gpu = |index: u32| Gpu {
            index,
            uuid: format!("GPU-{}-{index}", self.node),
            model: "NVIDIA H100 80GB HBM3".to_owned(),
            platform: "h100".to_owned(),
            memory_bytes: 80 << 30,
            ..Gpu::default()
        };
        Hello {
            protocol: PROTOCOL_VERSION,
            version: "bench".to_owned(),
            node: self.node.clone(),
            pool: PoolName::new("default").unwrap(),
            labels: Default::default(),
            address: String::new(),
            boot_id: BootId::new("b1").unwrap(),
            state_dir: self.node.to_string(),
            highest_epoch: self.epoch.clone(),
            inventory: Inventory {
                cpus: 128,
                memory_bytes: 1 << 40,
                gpus: (0..GPUS_PER_HOST).map(gpu).collect(),
                ..Inventory::default()
            },
            attempts: Vec::new(),
            gpu_states: Default::default(),
            sent_at: self.boot(),
            supervisor: SupervisorState::Responding,
            challenge: Some(challenge()),
        }
    }
}

/// The next order, or the end of orders; `None` once a heartbeat is due.
async fn next_unless(
    due: &mut Interval,
    orders: &mut FrameReader,
) -> Option<Result<Option<Command>, TransportError>> {
    tokio::select! {
        _ = due.tick() => None,
        order = orders.next() => Some(order),
    }
}

fn challenge() -> Challenge {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    Challenge(bytes)
}
