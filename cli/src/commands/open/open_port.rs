//! Makes the connection for each that is taken: to the step, or to the replica that the ones before went to, for as long as
//! it is ready. A connection that cannot be made is told, and ends nothing else.

use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_common::api::StepView;

use super::super::outage_note;
use super::target::{OpenTarget, ready_replica};
use super::{cut_at_end, relay};
use crate::args::OpenArgs;
use crate::client::{ApiError, Client, ExecConnection, RetryLimit};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::safe;

/// Time for which a replica that was ready counts as ready.
const READY_FOR: Duration = Duration::from_secs(2);

/// Time after which the same failure is told again.
const AGAIN: Duration = Duration::from_secs(10);

/// Name that is asked for if the step has no ports: the answer says what to do.
const USUAL_PORT: &str = "http";

pub(super) struct OpenPort {
    client: Client,
    target: OpenTarget,
    port: String,
    rank: u32,
    /// The step of the last connection, and when it was known to be ready.
    route: Mutex<(String, Instant)>,
    /// The last failure that was told.
    told: Mutex<Option<(String, Instant)>>,
    out: Out,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one assignment, so a panic leaves a whole value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenPort {
    /// Chooses the port, and checks that the caller may connect to it.
    pub(super) fn new(
        client: &Client,
        target: OpenTarget,
        first: StepView,
        args: &OpenArgs,
        out: Out,
    ) -> Result<Self, Failure> {
        let only = first.ports.first().map(String::as_str);
        let port = args.port_name.as_deref().or(only).unwrap_or(USUAL_PORT);
        let check = || client.check_port(&first.id, port, args.rank);
        client.keep_trying(RetryLimit::READ, outage_note(out), check)?;
        if args.port_name.is_none() && first.ports.len() > 1 {
            let others: Vec<_> = first.ports.iter().skip(1).map(|port| safe(port)).collect();
            let (id, port, others) = (safe(&first.id), safe(port), others.join(", "));
            out.notice(&format!(
                "{id} has several ports: this is {port}, the first; write the name of another after it ({others})"
            ));
        }
        Ok(Self {
            client: client.clone(),
            target,
            port: port.to_owned(),
            rank: args.rank,
            route: Mutex::new((first.id, Instant::now())),
            told: Mutex::default(),
            out,
        })
    }

    pub(super) fn describe(&self) -> String {
        format!("port {} of {}", safe(&self.port), self.target)
    }

    /// Waits until there is nothing to forward to any more.
    pub(super) fn wait_for_end(&self) -> Failure {
        self.target.wait_for_end(&self.client, self.out)
    }

    /// Whether the program is ready, as far as it has a probe that tells.
    pub(super) fn is_ready(&self) -> bool {
        let OpenTarget::Step(id) = &self.target else {
            // Only replicas that are ready are forwarded to.
            return true;
        };
        let step = self.client.step(id);
        let rank = usize::try_from(self.rank).unwrap_or(usize::MAX);
        step.is_ok_and(|step| step.placements.get(rank).is_some_and(|part| part.ready))
    }

    /// Carries one connection of this machine to its end.
    pub(super) fn forward(&self, local: &TcpStream) {
        cut_at_end(local, true);
        let carried = self
            .connect()
            .and_then(|connection| relay::carry(local, connection));
        match carried {
            Ok(()) => cut_at_end(local, false),
            Err(why) => self.tell(&why),
        }
    }

    fn connect(&self) -> Result<ExecConnection, String> {
        let call = |id: &str| self.client.port(id, &self.port, self.rank);
        let OpenTarget::Service(service) = &self.target else {
            let id = lock(&self.route).0.clone();
            return call(&id).map_err(|error| error.to_string());
        };
        let (mut replica, seen) = lock(&self.route).clone();
        if seen.elapsed() > READY_FOR {
            replica = self.next_replica(service, &replica, false)?;
        }
        match call(&replica) {
            Err(error) if may_be_elsewhere(&error) => {
                let other = self.next_replica(service, &replica, true)?;
                match other == replica {
                    true => Err(error.to_string()),
                    false => call(&other).map_err(|error| error.to_string()),
                }
            }
            done => done.map_err(|error| error.to_string()),
        }
    }

    /// Chooses the replica for the next connections: the present one while it is ready, unless it `is_gone`.
    fn next_replica(&self, service: &str, present: &str, is_gone: bool) -> Result<String, String> {
        let chosen = ready_replica(&self.client, service, Some(present), is_gone);
        let chosen = chosen.map_err(|error| error.to_string())?;
        let chosen = chosen.map_err(|none| none.why)?;
        let mut route = lock(&self.route);
        if route.0 != chosen {
            self.out
                .progress(&format!("forwarding to {} from now on", safe(&chosen)));
        }
        *route = (chosen.clone(), Instant::now());
        Ok(chosen)
    }

    /// Tells why a connection failed, and the same thing not again and again.
    fn tell(&self, why: &str) {
        let mut told = lock(&self.told);
        let is_known = told
            .as_ref()
            .is_some_and(|(last, at)| last == why && at.elapsed() < AGAIN);
        if !is_known {
            self.out.warning(why);
            *told = Some((why.to_owned(), Instant::now()));
        }
    }
}

/// Whether another replica may take a connection that this one did not.
fn may_be_elsewhere(error: &ApiError) -> bool {
    matches!(
        error.code(),
        Some("not_running" | "unknown_step" | "node_unreachable" | "port_refused")
    )
}
