//! The loop of the gateway: follows the endpoints, watches HAProxy, reads its statistics each second, and stops it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use signal_hook::consts::SIGCHLD;

use super::backends::{BackendChange, Backends};
use super::config::GatewayConfig;
use super::desired::{DesiredState, HostAddresses};
use super::follower::{EndpointSnapshot, GatewayEvent, LoadSender};
use super::haproxy_config::{MAP_FILE, READY_KEY, backend_name, server_name};
use super::haproxy_process::{HaproxyProcess, RuntimeDir};
use super::haproxy_socket::{HaproxySocket, HaproxySocketError};
use super::load::{HaproxyCounters, LoadMeter, parse_counters};
use super::notes::GatewayNotes;
use crate::client::{ApiError, Backoff};
use crate::failure::{FAILED, Failure};
use crate::out::Out;

/// Time between two readings of the statistics.
const TICK: Duration = Duration::from_secs(1);
/// Time that endpoints are used for while the coordinator does not answer: the default lease. A host that has not heard of the
/// coordinator for that long has stopped its steps, so nothing is lost by giving them up. Until then, a port of a replica that
/// ended is hardly given to another step: a host gives its ports (9,500 by default) in turn, and those of an ended attempt
/// only after the coordinator has taken in its end.
const KEEP_LIMIT: Duration = Duration::from_secs(5 * 60);
/// Pause before HAProxy is started again, which doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Age after which a death of HAProxy does not count as a failed start.
const SOUND_AGE: Duration = Duration::from_secs(10);
/// Rounds in a row in which commands failed, after which HAProxy is started anew.
const MAX_FAILED_ROUNDS: u32 = 3;
/// Time that requests under way have to end when the gateway is stopped.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// The same if the program that started the gateway has ended.
const SHORT_STOP_LIMIT: Duration = Duration::from_secs(2);
/// Time after which a host name that had no address is tried again.
const RESOLVE_PAUSE: Duration = Duration::from_secs(10);

/// The ways to the threads.
#[derive(Debug)]
pub(super) struct Threads {
    /// Asks for new endpoints.
    pub(super) ask: Sender<()>,
    pub(super) reporter: LoadSender,
    /// Asks for the address of a host.
    pub(super) resolve: Sender<String>,
}

/// A running gateway.
#[derive(Debug)]
pub(super) struct Gateway {
    config: GatewayConfig,
    program: PathBuf,
    dir: RuntimeDir,
    threads: Threads,
    out: Out,
    socket: HaproxySocket,
    haproxy: Option<HaproxyProcess>,
    restart_at: Instant,
    backoff: Backoff,
    /// Time of the last start: endpoints that were read before are not used.
    started_at: Instant,
    backends: Backends,
    /// Whether HAProxy knows that the coordinator has answered.
    is_open: bool,
    failed_rounds: u32,
    snapshot: Option<EndpointSnapshot>,
    addresses: HostAddresses,
    /// Hosts whose addresses were asked for, with the time of the next try.
    resolving: BTreeMap<String, Instant>,
    meter: LoadMeter,
    notes: GatewayNotes,
}

impl Gateway {
    /// Starts HAProxy.
    ///
    /// # Errors
    /// If it does not start the first time.
    pub(super) fn start(
        config: GatewayConfig,
        program: PathBuf,
        dir: RuntimeDir,
        threads: Threads,
        out: Out,
    ) -> Result<Self, Failure> {
        let now = Instant::now();
        let mut gateway = Self {
            socket: dir.socket(),
            backends: fresh_backends(&config),
            config,
            program,
            dir,
            threads,
            out,
            haproxy: None,
            restart_at: now,
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            started_at: now,
            is_open: false,
            failed_rounds: 0,
            snapshot: None,
            addresses: HostAddresses::new(),
            resolving: BTreeMap::new(),
            meter: LoadMeter::default(),
            notes: GatewayNotes::default(),
        };
        gateway.start_haproxy().map_err(Failure::Failed)?;
        let bind: Vec<String> = gateway
            .config
            .bind
            .iter()
            .map(ToString::to_string)
            .collect();
        out.result(&format!("ready {}", serde_json::json!({ "bind": bind })))?;
        Ok(gateway)
    }

    /// Works until it is told to stop.
    pub(super) fn run(mut self, events: &Receiver<GatewayEvent>) -> Result<u8, Failure> {
        let mut next_tick = Instant::now() + TICK;
        loop {
            let pause = next_tick.saturating_duration_since(Instant::now());
            match events.recv_timeout(pause) {
                Ok(GatewayEvent::Signal(SIGCHLD)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(GatewayEvent::Signal(_)) => return Ok(self.stop(STOP_LIMIT, events)),
                Ok(GatewayEvent::InputEnded) => return Ok(self.stop(SHORT_STOP_LIMIT, events)),
                Ok(event) => self.on_event(event),
                Err(RecvTimeoutError::Disconnected) => return Ok(FAILED),
            }
            self.watch();
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                self.follow();
                self.read_statistics();
            }
        }
    }

    fn on_event(&mut self, event: GatewayEvent) {
        match event {
            GatewayEvent::Read(result) => self.on_read(result),
            GatewayEvent::Resolved(host, Ok(address)) => {
                self.resolving.remove(&host);
                self.addresses.insert(host, address);
                self.follow();
            }
            GatewayEvent::Resolved(host, Err(message)) => {
                let problem = format!(
                    "replicas on host `{}` get no requests, because its address cannot be found: {}",
                    crate::render::safe(&host),
                    crate::render::safe(&message)
                );
                self.notes.set("host", BTreeSet::from([problem]), self.out);
            }
            GatewayEvent::Reported(result) => {
                let problem = result.err().map(|e| {
                    format!("reports of load fail, so services do not scale by them: {e}")
                });
                if self.notes.set_one("report", problem, self.out) {
                    self.out.notice("reports of load are taken again");
                }
            }
            GatewayEvent::Signal(_) | GatewayEvent::InputEnded => {}
        }
    }

    fn on_read(&mut self, result: Result<EndpointSnapshot, ApiError>) {
        match result {
            Ok(snapshot) => {
                if self.notes.set_one("coordinator", None, self.out) {
                    self.out.notice("the coordinator answers again");
                }
                if snapshot.asked_at >= self.started_at {
                    self.snapshot = Some(snapshot);
                    self.follow();
                }
            }
            Err(error) => {
                let minutes = KEEP_LIMIT.as_secs() / 60;
                let problem = format!(
                    "{error}; the last known replicas get requests for {minutes} minutes at most"
                );
                self.notes.set_one("coordinator", Some(problem), self.out);
            }
        }
    }

    /// Makes the differences between what is wanted and what HAProxy has.
    fn follow(&mut self) {
        let (Some(snapshot), true) = (&self.snapshot, self.haproxy.is_some()) else {
            return;
        };
        let is_expired = snapshot.asked_at.elapsed() > KEEP_LIMIT;
        let state = DesiredState::of(snapshot, is_expired, &self.config, &self.addresses);
        let in_use: BTreeSet<String> = snapshot
            .endpoints
            .iter()
            .map(|it| it.address.clone())
            .collect();
        self.addresses.retain(|host, _| in_use.contains(host));
        self.resolve(&state.unresolved);
        let made = self.make_differences(&state);
        self.notes.set("service", state.problems, self.out);
        self.note_round(made);
    }

    fn make_differences(&mut self, state: &DesiredState) -> Result<(), HaproxySocketError> {
        let removals = self.backends.removals(&state.services);
        let removed = self.make(removals);
        let plan = self.backends.additions(&state.services);
        self.notes.set("shortage", plan.shortages, self.out);
        let added = self.make(plan.changes);
        removed.and(added)?;
        if !self.is_open {
            self.socket
                .tell(&format!("add map {MAP_FILE} {READY_KEY} ready"))?;
            self.is_open = true;
        }
        Ok(())
    }

    /// Makes changes. One that fails does not keep the others back; the first failure is returned.
    fn make(&mut self, changes: Vec<BackendChange>) -> Result<(), HaproxySocketError> {
        let mut outcome = Ok(());
        for change in changes {
            let mut commands = self.backends.commands(&change).into_iter();
            match commands.try_for_each(|command| self.socket.tell(&command)) {
                Ok(()) => self.backends.apply(change),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Counts failures. A HAProxy that does not do as it is told is started anew.
    fn note_round(&mut self, made: Result<(), HaproxySocketError>) {
        let Err(error) = made else {
            self.failed_rounds = 0;
            self.notes.set_one("haproxy", None, self.out);
            return;
        };
        self.notes
            .set_one("haproxy", Some(error.to_string()), self.out);
        self.failed_rounds += 1;
        if self.failed_rounds >= MAX_FAILED_ROUNDS
            && let Some(haproxy) = &mut self.haproxy
        {
            self.out
                .warning("HAProxy does not do as it is told: starting it anew");
            haproxy.kill();
        }
    }

    fn resolve(&mut self, hosts: &BTreeSet<String>) {
        let now = Instant::now();
        self.resolving.retain(|host, _| hosts.contains(host));
        for host in hosts {
            if self.resolving.get(host).is_none_or(|due| *due <= now) {
                self.resolving.insert(host.clone(), now + RESOLVE_PAUSE);
                let _ = self.threads.resolve.send(host.clone());
            }
        }
    }

    /// Notices that HAProxy has died, and starts it again when it is due.
    fn watch(&mut self) {
        if let Some(haproxy) = &mut self.haproxy {
            let Some(status) = haproxy.ended() else {
                return;
            };
            let words = haproxy.last_words(status);
            if haproxy.age() > SOUND_AGE {
                self.backoff.reset();
            }
            self.haproxy = None;
            self.retry_later(&format!("HAProxy died ({words}): starting it again"));
        }
        if Instant::now() >= self.restart_at
            && let Err(why) = self.start_haproxy()
        {
            self.retry_later(&why);
        }
    }

    fn retry_later(&mut self, why: &str) {
        self.out.warning(why);
        self.restart_at = Instant::now() + self.backoff.next();
    }

    /// Starts HAProxy with nothing in it. Only endpoints that are read from now on count.
    fn start_haproxy(&mut self) -> Result<(), String> {
        self.started_at = Instant::now();
        self.snapshot = None;
        self.backends = fresh_backends(&self.config);
        self.is_open = false;
        self.failed_rounds = 0;
        self.haproxy = Some(HaproxyProcess::start(&self.program, &self.dir, self.out)?);
        // The thread lives as long as this one.
        let _ = self.threads.ask.send(());
        Ok(())
    }

    /// Reports the load of each service, and frees servers that drain and have no requests left.
    fn read_statistics(&mut self) {
        if self.haproxy.is_none() {
            return;
        }
        if let Err(error) = self.report_loads().and_then(|()| self.free_drained()) {
            self.note_round(Err(error));
        }
    }

    fn report_loads(&mut self) -> Result<(), HaproxySocketError> {
        let counters = parse_counters(&self.socket.ask("show stat -1 2 -1")?);
        let of_backend = |at| {
            counters
                .get(&(backend_name(at), "BACKEND".to_owned()))
                .copied()
        };
        let services = self.backends.services();
        let loads: BTreeMap<String, HaproxyCounters> = services
            .filter_map(|(at, service)| Some((service.to_owned(), of_backend(at)?)))
            .collect();
        let due = self.meter.read(Instant::now(), &loads);
        if !due.is_empty() {
            self.threads.reporter.report(due);
        }
        Ok(())
    }

    fn free_drained(&mut self) -> Result<(), HaproxySocketError> {
        let draining = self.backends.draining();
        let mut over = Vec::new();
        let backends: BTreeSet<usize> = draining.iter().map(|(backend, _)| *backend).collect();
        for backend in backends {
            let name = backend_name(backend);
            let counters = parse_counters(&self.socket.ask(&format!("show stat {name} 4 -1"))?);
            let own = draining.iter().filter(|(at, _)| *at == backend);
            let idle = own.filter(|(_, server)| {
                let counters = counters.get(&(name.clone(), server_name(*server)));
                counters.is_some_and(|it| it.current == 0)
            });
            over.extend(idle.map(|(_, server)| BackendChange::Free {
                backend,
                server: *server,
            }));
        }
        self.make(over)
    }

    /// Stops HAProxy: softly, then for good. Another signal means at once.
    fn stop(mut self, limit: Duration, events: &Receiver<GatewayEvent>) -> u8 {
        let Some(haproxy) = &mut self.haproxy else {
            return 0;
        };
        haproxy.stop_softly();
        let deadline = Instant::now() + limit;
        while haproxy.ended().is_none() {
            match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(GatewayEvent::Signal(signal)) if signal != SIGCHLD => break,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        if haproxy.ended().is_none() {
            self.out
                .notice("requests are still under way, and are cut off");
            haproxy.kill();
        }
        0
    }
}

fn fresh_backends(config: &GatewayConfig) -> Backends {
    Backends::new(config.max_services, config.max_replicas, config.suffix())
}
