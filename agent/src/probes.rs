//! Probes steps: connects to a port of this host, requests a path there, or runs a program inside the step. Each probe is a
//! task of its own that ends at its timeout, so a step that hangs delays nothing else.
//!
//! What a step answers is not trusted: at most [`MAX_ANSWER_BYTES`] of it are read, only the status is used, and no
//! redirect is followed.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use agent_core::{Input, ProbeCheck, ProbeOutcome};
use nix::errno::Errno;
use sluice_common::exec::{ExecOrder, ExecProgram};
use sluice_common::id::AttemptId;
use sluice_common::probe::{MAX_SAW_BYTES, ProbeKind};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::event::Event;
use crate::execs::ExecServer;
use crate::logs::WritingAttempts;

/// Most bytes of an answer that are read: the status line is at its beginning.
const MAX_ANSWER_BYTES: u64 = 1024;

/// Probes attempts of this host.
pub(crate) struct ProbeRunner {
    attempts_dir: PathBuf,
    live: Arc<WritingAttempts>,
    events: mpsc::WeakSender<Event>,
}

/// Order for one probe.
pub(crate) struct ProbeOrder {
    pub(crate) attempt: AttemptId,
    pub(crate) kind: ProbeKind,
    pub(crate) number: u32,
    pub(crate) check: ProbeCheck,
    pub(crate) timeout: Span,
}

impl ProbeRunner {
    pub(crate) fn new(
        attempts_dir: PathBuf,
        live: Arc<WritingAttempts>,
        events: mpsc::WeakSender<Event>,
    ) -> Self {
        Self {
            attempts_dir,
            live,
            events,
        }
    }

    /// Begins a probe; the engine gets [`Input::Probed`] at the end.
    pub(crate) fn begin(&self, order: ProbeOrder) {
        let Some(events) = self.events.upgrade() else {
            return;
        };
        let (dir, live) = (self.attempts_dir.clone(), Arc::clone(&self.live));
        let execs = ExecServer::new(dir, events.clone(), live);
        tokio::spawn(async move {
            let outcome = order.probe(&execs).await;
            let ProbeOrder {
                attempt,
                kind,
                number,
                ..
            } = order;
            let event = Event::Core(Input::Probed {
                attempt,
                kind,
                number,
                outcome,
            });
            let _the_agent_stops = events.send(event).await;
        });
    }
}

impl ProbeOrder {
    async fn probe(&self, execs: &ExecServer) -> ProbeOutcome {
        let limit = std::time::Duration::from_millis(self.timeout.millis());
        // Dropping the future closes its connection, or ends its program.
        match tokio::time::timeout(limit, self.look(execs)).await {
            Ok(outcome) => outcome,
            Err(_) => ProbeOutcome::Failed(format!(
                "{} did not answer within {}",
                self.target(),
                self.timeout
            )),
        }
    }

    async fn look(&self, execs: &ExecServer) -> ProbeOutcome {
        let seen = match &self.check {
            ProbeCheck::Http { port, path } => request(*port, path).await,
            ProbeCheck::Tcp { port } => connect(*port).await.map(drop),
            ProbeCheck::Command { command } => {
                return run(execs, &self.attempt, command).await;
            }
        };
        seen.map_or_else(|failed| failed, |()| ProbeOutcome::Succeeded)
    }

    fn target(&self) -> String {
        match &self.check {
            ProbeCheck::Http { port, path } => format!("`{path}` at port {port}"),
            ProbeCheck::Tcp { port } => format!("port {port}"),
            ProbeCheck::Command { command } => format!("`{}`", program(command)),
        }
    }
}

fn program(command: &[String]) -> String {
    let first = command.first().map(String::as_str).unwrap_or_default();
    first.chars().take(60).collect()
}

async fn connect(port: u16) -> Result<TcpStream, ProbeOutcome> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect(address).await;
    stream.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        // This host lacks something, which is no fault of the step.
        Some(
            Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM | Errno::EADDRNOTAVAIL,
        ) => ProbeOutcome::Unknown,
        Some(Errno::ECONNREFUSED) => failed(format!("nothing listens at port {port}")),
        Some(_) | None => failed(format!("port {port} cannot be connected to: {error}")),
    })
}

fn failed(saw: String) -> ProbeOutcome {
    ProbeOutcome::Failed(saw)
}

/// Requests a path in this version of HTTP; the answer follows on the stream.
pub(crate) async fn ask(port: u16, path: &str, version: &str) -> Result<TcpStream, ProbeOutcome> {
    let mut stream = connect(port).await?;
    let request = format!(
        "GET {path} {version}\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: sluice-agent\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    let written = stream.write_all(request.as_bytes()).await;
    written.map_err(|error| failed(broken(port, &error)))?;
    Ok(stream)
}

pub(crate) fn broken(port: u16, error: &io::Error) -> String {
    format!("port {port} closed the connection: {error}")
}

/// Requests a path, and expects a status of 200 to 399.
async fn request(port: u16, path: &str) -> Result<(), ProbeOutcome> {
    let stream = ask(port, path, "HTTP/1.1").await?;
    let broken = |error: io::Error| failed(broken(port, &error));
    let mut answer = Vec::new();
    let mut part = [0; 256];
    let mut stream = stream.take(MAX_ANSWER_BYTES);
    while !answer.contains(&b'\n') {
        match stream.read(&mut part).await.map_err(broken)? {
            0 => break,
            count => answer.extend(&part[..count]),
        }
    }
    match status(&answer) {
        Some(200..=399) => Ok(()),
        Some(status) => Err(failed(format!("`{path}` at port {port} answered {status}"))),
        None => Err(failed(format!("port {port} does not answer in HTTP"))),
    }
}

/// The status in the first line of an answer.
pub(crate) fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|b| *b == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let is_http = words.next()?.starts_with("HTTP/1.");
    let status = words.next().filter(|word| is_http && word.len() == 3)?;
    status.parse().ok()
}

/// Runs a program inside the step, and expects exit code 0.
async fn run(execs: &ExecServer, attempt: &AttemptId, command: &[String]) -> ProbeOutcome {
    let order = ExecOrder {
        program: ExecProgram::Probe {
            command: command.to_vec(),
        },
        by: None,
    };
    let name = program(command);
    // The supervisor is away, or the step has ended.
    let Some((exit, output)) = execs.run(attempt.clone(), order, MAX_SAW_BYTES).await else {
        return ProbeOutcome::Unknown;
    };
    let failure = match exit {
        Exit::Code(0) => return ProbeOutcome::Succeeded,
        Exit::Code(code) => format!("`{name}` exited with code {code}"),
        Exit::Signal(signal) => format!("`{name}` was killed by signal {signal}"),
        Exit::StartFailed(why) => format!("`{name}` could not be started: {why}"),
        Exit::HostFailed(_)
        | Exit::PrologFailed(_)
        | Exit::NotBegun(_)
        | Exit::LeaseExpired
        | Exit::HostRebooted
        | Exit::Unknown => return ProbeOutcome::Unknown,
        Exit::OutOfMemory(_) | Exit::StorageExceeded(_) => {
            format!("`{name}` was killed because the step used up what it was granted")
        }
    };
    let output = String::from_utf8_lossy(&output);
    let output = output.trim();
    ProbeOutcome::Failed(match output.is_empty() {
        true => failure,
        false => format!("{failure}: {output}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use tokio::net::TcpListener;

    /// Answers each connection with these bytes, and keeps it open.
    async fn server(answer: &'static [u8]) -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _gone = stream.write_all(answer).await;
                open.push(stream);
            }
        });
        port
    }

    async fn probed(check: ProbeCheck) -> ProbeOutcome {
        let (events, _inbox) = mpsc::channel(1);
        let order = ProbeOrder {
            attempt: "a.1".parse().unwrap(),
            kind: ProbeKind::Readiness,
            number: 1,
            check,
            timeout: Span::from_millis(300),
        };
        let execs = ExecServer::new("/".into(), events, Arc::default());
        order.probe(&execs).await
    }

    #[tokio::test]
    async fn an_answer_of_200_to_399_is_a_success_and_every_other_is_told() {
        for (answer, expected) in [
            (&b"HTTP/1.1 200 OK\r\n"[..], None),
            (b"HTTP/1.0 302 Found\r\nLocation: http://evil/\r\n", None),
            (b"HTTP/1.1 503 Busy\r\n", Some("answered 503")),
            (b"HTTP/1.1 100 Continue\r\n", Some("answered 100")),
            (b"SSH-2.0-x\r\n", Some("does not answer in HTTP")),
            (b"HTTP/1.1 99999 \n", Some("does not answer in HTTP")),
            (&[b'x'; 5000], Some("does not answer in HTTP")),
            (b"HTTP/1.1 2", Some("did not answer within 300ms")),
        ] {
            let port = server(answer).await;
            let path = "/health".to_owned();
            match (probed(ProbeCheck::Http { port, path }).await, expected) {
                (ProbeOutcome::Succeeded, None) => {}
                (ProbeOutcome::Failed(saw), Some(part)) => assert!(saw.contains(part), "{saw}"),
                other => panic!("{answer:?}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_port_is_good_if_something_listens() {
        let port = server(b"").await;
        assert_eq!(
            probed(ProbeCheck::Tcp { port }).await,
            ProbeOutcome::Succeeded
        );
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let expected = ProbeOutcome::Failed(format!("nothing listens at port {port}"));
        assert_eq!(probed(ProbeCheck::Tcp { port }).await, expected);
    }

    #[tokio::test]
    async fn a_probe_that_hangs_ends_at_its_timeout() {
        let port = server(b"").await;
        let began = Instant::now();
        let path = "/".to_owned();
        let outcome = probed(ProbeCheck::Http { port, path }).await;
        assert!(matches!(outcome, ProbeOutcome::Failed(saw) if saw.contains("300ms")));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
