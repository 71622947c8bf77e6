//! `sluice exec`: runs a program beside a running step with this process's three streams, or with its terminal. The end of
//! this command closes the connection, which ends the program.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use signal_hook::consts::SIGWINCH;
use sluice_common::exec::{
    ExecRequest, FrameDecoder, FrameKind, MAX_FRAME_BYTES, TerminalRequest, encode_frame,
};
use sluice_common::supervision::Exit;

use crate::args::ExecArgs;
use crate::client::{Client, ExecConnection, ExecSocket};
use crate::failure::{Failure, RUN_FAILED};
use crate::out::{Out, Sink};
use crate::terminal::KeyScanner;
use crate::{render, signals, terminal};

pub(crate) fn run(client: &Client, args: &ExecArgs, out: Out) -> Result<u8, Failure> {
    let request = ExecRequest {
        command: args.command.clone(),
        terminal: args.terminal.then(wanted_terminal).transpose()?,
    };
    let call = |id: &str| client.exec(id, args.rank, &request);
    let ExecConnection { mut stream, first } = client.for_step(&args.step, call)?;
    let lost = |error: io::Error| Failure::from(client.lost(&error));
    let to_program = ProgramInput(Arc::new(Mutex::new(stream.try_clone().map_err(lost)?)));
    let mut stdout = Sink::stdout_of(args.terminal)?;
    match args.terminal {
        true => use_terminal(to_program).map_err(lost)?,
        false => drop(thread::spawn(move || feed(&to_program))),
    }
    let mut stderr = Sink::stderr()?;
    let mut frames = FrameDecoder::default();
    frames.push(&first);
    let mut bytes = vec![0; MAX_FRAME_BYTES];
    loop {
        while let Some((kind, bytes)) =
            frames.next_frame().map_err(|e| lost(io::Error::other(e)))?
        {
            let passed_on = match kind {
                FrameKind::Stdout => stdout.write_all(&bytes),
                FrameKind::Stderr => stderr.write_all(&bytes),
                FrameKind::Exit => return ended(&bytes, out),
                FrameKind::Closed => return Err(client.closed(&bytes).into()),
                FrameKind::Stdin
                | FrameKind::Resize
                | FrameKind::Taken
                | FrameKind::InputEnded
                | FrameKind::TakenOver => Ok(()),
            };
            passed_on.map_err(Failure::Output)?;
        }
        match stream.read(&mut bytes).map_err(lost)? {
            0 => {
                let message = "the connection was lost before the program had ended, which ends it";
                return Err(Failure::Failed(message.to_owned()));
            }
            count => frames.push(&bytes[..count]),
        }
    }
}

/// The terminal that the program is to get.
fn wanted_terminal() -> Result<TerminalRequest, Failure> {
    super::check_terminal()?;
    let size = terminal::size();
    Ok(TerminalRequest {
        rows: size.rows,
        columns: size.columns,
        term: terminal::term(),
    })
}

/// The way to the program, for several threads.
#[derive(Clone)]
struct ProgramInput(Arc<Mutex<ExecSocket>>);

impl ProgramInput {
    fn send(&self, kind: FrameKind, bytes: &[u8]) -> io::Result<()> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        socket.write_all(&encode_frame(kind, bytes))
    }
}

/// Passes keys and sizes on, and gives the terminal back on every way out of this process.
fn use_terminal(to_program: ProgramInput) -> io::Result<()> {
    signals::forward(&signals::ending(), |signal| {
        terminal::restore();
        std::process::exit(i32::from(signals::exit_code(signal)))
    })?;
    let of_size = to_program.clone();
    signals::forward(&[SIGWINCH], move |_| {
        of_size
            .send(FrameKind::Resize, &terminal::size().to_bytes())
            .is_ok()
    })?;
    terminal::enter_raw()?;
    thread::spawn(move || type_in(&to_program));
    Ok(())
}

/// Sends keys until the user leaves, which ends this process.
fn type_in(to_program: &ProgramInput) {
    let mut keys = KeyScanner::default();
    let mut bytes = [0; 4096];
    loop {
        // A terminal that has gone sends SIGHUP as well.
        let Ok(count @ 1..) = io::stdin().lock().read(&mut bytes) else {
            return;
        };
        let (passed, leaves) = keys.pass(&bytes[..count]);
        let sent = passed.is_empty() || to_program.send(FrameKind::Stdin, &passed).is_ok();
        if leaves {
            terminal::restore();
            std::process::exit(i32::from(RUN_FAILED));
        }
        if !sent {
            return;
        }
    }
}

/// Sends stdin to its end. If the connection breaks, the other direction reports it.
fn feed(to_program: &ProgramInput) {
    let mut bytes = vec![0; MAX_FRAME_BYTES];
    let mut stdin = io::stdin().lock();
    loop {
        let count = match stdin.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A stdin that cannot be read has ended.
            read => read.unwrap_or(0),
        };
        let sent = to_program.send(FrameKind::Stdin, &bytes[..count]);
        if count == 0 || sent.is_err() {
            return;
        }
    }
}

fn ended(json: &[u8], out: Out) -> Result<u8, Failure> {
    let exit: Exit = serde_json::from_slice(json)
        .map_err(|e| Failure::Failed(format!("how the program ended cannot be read: {e}")))?;
    let shell_code = |code: i32| u8::try_from(code).unwrap_or(u8::MAX);
    let why = match exit {
        Exit::Code(code) => return Ok(shell_code(code)),
        Exit::Signal(signal) => return Ok(shell_code(128 + signal)),
        Exit::StartFailed(why)
        | Exit::HostFailed(why)
        | Exit::PrologFailed(why)
        | Exit::NotBegun(why) => why,
        Exit::LeaseExpired
        | Exit::HostRebooted
        | Exit::Unknown
        | Exit::OutOfMemory(_)
        | Exit::StorageExceeded(_) => "it is unknown how the program ended".to_owned(),
    };
    out.error(&render::safe(&why));
    Ok(RUN_FAILED)
}
