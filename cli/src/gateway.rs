//! `sluice gateway`: runs HAProxy in front of the replicas of services and keeps it up to date.
//!
//! One loop owns all state. Threads (`follower`) read services and endpoints, report loads and resolve host names; the loop
//! compares what is wanted (`desired`) with what HAProxy has (`backends`) and makes the differences by commands. HAProxy starts
//! without any replica, so that after a restart of either nothing old is trusted.

mod backends;
mod config;
mod desired;
mod follower;
mod haproxy_config;
mod haproxy_process;
mod haproxy_program;
mod haproxy_socket;
mod load;
mod notes;
mod running;

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use signal_hook::consts::SIGCHLD;

use crate::args::GatewayArgs;
use crate::client::Client;
use crate::context;
use crate::failure::Failure;
use crate::out::Out;
use crate::signals;

use config::GatewayConfig;
use follower::GatewayEvent;
use haproxy_process::{RuntimeDir, become_haproxy};
pub(crate) use haproxy_program::find_haproxy;
use running::{Gateway, Threads};

/// Longest time of one call. A coordinator that does not answer must not keep the endpoints back for longer.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Runs `sluice gateway`.
pub(crate) fn run(args: &GatewayArgs, chosen: Option<&Path>, out: Out) -> Result<u8, Failure> {
    if let Some(program) = &args.become_haproxy {
        return Ok(become_haproxy(program, args.parent, out));
    }
    let config = match &args.config {
        Some(path) => GatewayConfig::read(path).map_err(|e| Failure::Failed(e.to_string()))?,
        None => GatewayConfig::default(),
    };
    if args.check_config {
        out.result(&config.to_string())?;
        return Ok(0);
    }
    let program = find_haproxy(&config.haproxy).map_err(|e| Failure::Failed(e.to_string()))?;
    let context = context::load(chosen)?;
    let client = Client::impatient(context.clone(), CALL_LIMIT)?;
    let stream = Client::new(context)?;
    let dir = RuntimeDir::open(&config)?;
    let (tell, events) = channel();
    hear(&tell, args.exit_with_stdin)?;
    let threads = Threads {
        ask: follower::follow(&client, stream, tell.clone()),
        reporter: follower::report(client, config.name.clone(), tell.clone()),
        resolve: follower::resolve(tell),
    };
    Gateway::start(config, program, dir, threads, out)?.run(&events)
}

/// Passes signals to the loop, and the end of standard input if the program that started this one wants it.
fn hear(tell: &Sender<GatewayEvent>, exit_with_stdin: bool) -> Result<(), Failure> {
    let mut heard = signals::ending();
    heard.push(SIGCHLD);
    let on_signal = tell.clone();
    signals::forward(&heard, move |signal| {
        on_signal.send(GatewayEvent::Signal(signal)).is_ok()
    })
    .map_err(|e| Failure::Failed(format!("cannot listen for signals: {e}")))?;
    if exit_with_stdin {
        let on_end = tell.clone();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            let _ = on_end.send(GatewayEvent::InputEnded);
        });
    }
    Ok(())
}
