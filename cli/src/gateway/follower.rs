//! Threads that ask the coordinator and tell it something, so that the loop of the gateway never waits for it.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::thread;
use std::time::{Duration, Instant};

use sluice_common::api::{EndpointView, LoadReport, RequestsView, ServiceView};

use crate::client::{ApiError, Client, EventFilter, EventStream, Since};

/// Time between two readings of the endpoints if no event tells of a change.
const PERIOD: Duration = Duration::from_secs(3);
/// Pause before a stream of events that was refused is opened again.
const STREAM_PAUSE: Duration = Duration::from_secs(2);
/// Types of the events after which the endpoints are read again.
const TYPES: &str = "service_*,replica_*";

/// The services and endpoints at one time.
#[derive(Debug)]
pub(super) struct EndpointSnapshot {
    /// Time before which nothing of it was read.
    pub(super) asked_at: Instant,
    pub(super) services: Vec<ServiceView>,
    pub(super) endpoints: Vec<EndpointView>,
}

impl EndpointSnapshot {
    /// Reads both. The endpoints come last, so that they are never older than the services.
    fn read(client: &Client) -> Result<Self, ApiError> {
        let asked_at = Instant::now();
        let services = client.services()?;
        let endpoints = client.endpoints(None)?;
        Ok(Self {
            asked_at,
            services,
            endpoints,
        })
    }
}

/// News from the threads for the loop.
#[derive(Debug)]
pub(super) enum GatewayEvent {
    Signal(i32),
    /// Standard input has ended.
    InputEnded,
    /// The answer of the coordinator.
    Read(Result<EndpointSnapshot, ApiError>),
    /// The address of a host, or why it has none.
    Resolved(String, Result<IpAddr, String>),
    /// A report was refused, or reports are taken again.
    Reported(Result<(), ApiError>),
}

/// Reads the endpoints at once, at each event of a service, when asked, and every few seconds. Returns the way to ask.
pub(super) fn follow(client: &Client, stream: Client, tell: Sender<GatewayEvent>) -> Sender<()> {
    let (ask, asked) = channel();
    let on_event = ask.clone();
    thread::spawn(move || follow_events(&stream, &on_event));
    let client = client.clone();
    thread::spawn(move || read_endpoints(&client, &asked, &tell));
    ask
}

fn read_endpoints(client: &Client, asked: &Receiver<()>, tell: &Sender<GatewayEvent>) {
    loop {
        if tell
            .send(GatewayEvent::Read(EndpointSnapshot::read(client)))
            .is_err()
        {
            return;
        }
        match asked.recv_timeout(PERIOD) {
            // One reading answers all that was asked before it.
            Ok(()) => while asked.try_recv().is_ok() {},
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Asks at each event of a service. A stream that breaks is opened again; the endpoints are read every few seconds meanwhile.
fn follow_events(client: &Client, ask: &Sender<()>) {
    loop {
        let of_services = EventFilter {
            types: Some(TYPES),
            ..EventFilter::default()
        };
        let mut events = EventStream::new(client, Since::Now, of_services);
        while events.next(|_| {}).is_ok() {
            if ask.send(()).is_err() {
                return;
            }
        }
        thread::sleep(STREAM_PAUSE);
    }
}

/// Starts the thread that reports loads. While one report is on its way, later ones are dropped.
pub(super) fn report(client: Client, name: String, tell: Sender<GatewayEvent>) -> LoadSender {
    let (send, due) = sync_channel::<Vec<(String, RequestsView)>>(1);
    thread::spawn(move || {
        while let Ok(loads) = due.recv() {
            for (service, load) in loads {
                let made = client.report_load(
                    &service,
                    &LoadReport {
                        reporter: name.clone(),
                        concurrency: load.concurrency,
                        rps: load.rps,
                    },
                );
                let result = match made {
                    // The service has gone meanwhile.
                    Err(error) if error.status() == Some(404) => Ok(()),
                    other => other,
                };
                if tell.send(GatewayEvent::Reported(result)).is_err() {
                    return;
                }
            }
        }
    });
    LoadSender(send)
}

/// The way to the thread that reports loads.
#[derive(Debug)]
pub(super) struct LoadSender(SyncSender<Vec<(String, RequestsView)>>);

impl LoadSender {
    /// Reports loads, unless earlier ones still wait.
    pub(super) fn report(&self, loads: Vec<(String, RequestsView)>) {
        match self.0.try_send(loads) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

/// Starts the thread that finds the addresses of hosts. Returns the way to ask.
pub(super) fn resolve(tell: Sender<GatewayEvent>) -> Sender<String> {
    let (ask, asked) = channel::<String>();
    thread::spawn(move || {
        while let Ok(host) = asked.recv() {
            let found = (host.as_str(), 0).to_socket_addrs();
            let first = found.map_err(|e| e.to_string()).and_then(|mut found| {
                let first = found.next().map(|it| it.ip());
                first.ok_or_else(|| "the name has no address".to_owned())
            });
            if tell.send(GatewayEvent::Resolved(host, first)).is_err() {
                return;
            }
        }
    });
    ask
}
