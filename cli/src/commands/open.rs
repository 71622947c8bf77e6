//! `sluice open`: listens at a port of this machine, and forwards each connection to a port of a running step or of a
//! replica of a service, through the coordinator.
//!
//! One thread takes connections, two more carry each of them ([`relay`]), and one watches for the end of what is forwarded
//! to. This command ends with that, or by a signal.

mod open_port;
mod relay;
mod target;

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::args::OpenArgs;
use crate::client::Client;
use crate::failure::Failure;
use crate::out::Out;
use open_port::OpenPort;
use target::OpenTarget;

/// Most connections at a time; more wait until one ends. Each has three threads at most, and a connection of its own to the
/// coordinator, which takes 1,024 from one address.
const MAX_CONNECTIONS: usize = 200;

/// Time between two looks whether a program is ready to be shown in a browser.
const READY_POLL: Duration = Duration::from_millis(500);

pub(crate) fn run(client: &Client, args: &OpenArgs, out: Out) -> Result<u8, Failure> {
    let target = OpenTarget::find(client, &args.target, out)?;
    let wanted = args.port;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted.unwrap_or(0)));
    let listener = listener.map_err(|error| not_bound(wanted, &error))?;
    let address = listener.local_addr().map_err(|e| not_bound(wanted, &e))?;
    let first = target.wait_until_runs(client, args.port_name.as_deref(), out)?;
    let open_port = OpenPort::new(client, target, first, args, out)?;
    let url = format!("http://{address}");
    out.result(&url)?;
    out.progress(&format!(
        "forwarded to {}, until Ctrl-C or its end",
        open_port.describe()
    ));
    let open_port = Arc::new(open_port);
    if !args.no_browser && out.is_watched() && has_display() {
        let open_port = Arc::clone(&open_port);
        thread::spawn(move || {
            while !open_port.is_ready() {
                thread::sleep(READY_POLL);
            }
            browse(&url);
        });
    }
    let taker = Arc::clone(&open_port);
    thread::spawn(move || take(&listener, &taker));
    Err(open_port.wait_for_end())
}

fn not_bound(wanted: Option<u16>, error: &io::Error) -> Failure {
    Failure::Failed(match wanted {
        Some(port) => format!(
            "--port: cannot listen at port {port} of this machine: {error}; choose another, or leave it out for a free one"
        ),
        None => format!("cannot listen at a port of this machine: {error}"),
    })
}

/// Takes connections for as long as this process runs.
fn take(listener: &TcpListener, open_port: &Arc<OpenPort>) {
    let places = Arc::new(ConnectionPermits::default());
    loop {
        let place = places.take();
        match listener.accept() {
            Ok((local, _)) => {
                let open_port = Arc::clone(open_port);
                thread::spawn(move || {
                    open_port.forward(&local);
                    drop(place);
                });
            }
            // This process has too many files open, or the caller has gone already.
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Counts open connections.
#[derive(Default)]
struct ConnectionPermits {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// The place of one connection.
struct ConnectionPermit(Arc<ConnectionPermits>);

impl ConnectionPermits {
    /// Waits for a free place.
    fn take(self: &Arc<Self>) -> ConnectionPermit {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self
            .freed
            .wait_while(taken, |taken| *taken >= MAX_CONNECTIONS);
        *free.unwrap_or_else(PoisonError::into_inner) += 1;
        ConnectionPermit(Arc::clone(self))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let taken = self.0.taken.lock();
        *taken.unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}

/// Whether a browser could show something here.
fn has_display() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"]
        .into_iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Opens a page in the browser. The address was printed, so a failure needs no message.
fn browse(url: &str) {
    let mut open = Command::new("xdg-open");
    open.arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Ok(mut child) = open.spawn() {
        let _its_window_is_enough = child.wait();
    }
}

/// Sets whether a connection of this machine is cut at its end, whatever ends it, so that its program does not take a part
/// for the whole.
fn cut_at_end(local: &TcpStream, is_cut: bool) {
    let socket = socket2::SockRef::from(local);
    let _it_is_closed_anyway = socket.set_linger(is_cut.then_some(Duration::ZERO));
}
