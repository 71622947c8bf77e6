//! `sluice exec`: runs a program beside a running step with this process's three streams, or with its terminal. The end of
//! this command closes the connection, which ends the program.

use std::io::{self, Read, Write};
use std::thread;

use signal_hook::consts::SIGWINCH;
use sluice_common::exec::{ExecRequest, FrameKind, MAX_FRAME_BYTES, TerminalRequest};
use sluice_common::supervision::Exit;
use sluice_common::websocket::{CallerMessage, Empty, ServerMessage};

use crate::args::ExecArgs;
use crate::client::{self, Client, ExecConnection, MessageWriter, StreamMessage};
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
    let ExecConnection {
        mut reader, writer, ..
    } = client.for_step(&args.step, call)?;
    let lost = |error: io::Error| Failure::from(client.lost(&error));
    let mut stdout = Sink::stdout_of(args.terminal)?;
    match args.terminal {
        true => use_terminal(writer).map_err(lost)?,
        false => drop(thread::spawn(move || feed(&writer))),
    }
    let mut stderr = Sink::stderr()?;
    loop {
        let passed_on = match reader.next().map_err(lost)? {
            StreamMessage::Data(FrameKind::Stdout, data) => stdout.write_all(&data),
            StreamMessage::Data(FrameKind::Stderr, data) => stderr.write_all(&data),
            StreamMessage::Control(ServerMessage::Exit(exit)) => return Ok(ended(exit, out)),
            StreamMessage::Control(ServerMessage::Error(error)) => {
                return Err(client::failed(error).into());
            }
            StreamMessage::Data(..) | StreamMessage::Control(_) => Ok(()),
            StreamMessage::Closed(reason) => {
                let message = "the connection was lost before the program had ended, which ends it";
                return Err(Failure::Failed(match reason.is_empty() {
                    true => message.to_owned(),
                    false => format!("{message}: {}", render::safe(&reason)),
                }));
            }
        };
        passed_on.map_err(Failure::Output)?;
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

/// Passes keys and sizes on, and gives the terminal back on every way out of this process.
fn use_terminal(to_program: MessageWriter) -> io::Result<()> {
    signals::forward(&signals::ending(), |signal| {
        terminal::restore();
        std::process::exit(i32::from(signals::exit_code(signal)))
    })?;
    let of_size = to_program.clone();
    signals::forward(&[SIGWINCH], move |_| {
        let size = CallerMessage::Resize(terminal::size());
        of_size.send(&size).is_ok()
    })?;
    terminal::enter_raw()?;
    thread::spawn(move || type_in(&to_program));
    Ok(())
}

/// Sends keys until the user leaves, which ends this process.
fn type_in(to_program: &MessageWriter) {
    let mut keys = KeyScanner::default();
    let mut bytes = [0; 4096];
    loop {
        // A terminal that has gone sends SIGHUP as well.
        let Ok(count @ 1..) = io::stdin().lock().read(&mut bytes) else {
            return;
        };
        let (passed, leaves) = keys.pass(&bytes[..count]);
        let sent = passed.is_empty() || to_program.send_input(&passed).is_ok();
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
fn feed(to_program: &MessageWriter) {
    let mut bytes = vec![0; MAX_FRAME_BYTES];
    let mut stdin = io::stdin().lock();
    loop {
        let count = match stdin.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A stdin that cannot be read has ended.
            read => read.unwrap_or(0),
        };
        let sent = match count {
            0 => to_program.send(&CallerMessage::EndInput(Empty {})),
            count => to_program.send_input(&bytes[..count]),
        };
        if count == 0 || sent.is_err() {
            return;
        }
    }
}

/// Returns the exit code of this command, and says why the program could not run.
fn ended(exit: Exit, out: Out) -> u8 {
    let shell_code = |code: i32| u8::try_from(code).unwrap_or(u8::MAX);
    let why = match exit {
        Exit::Code(code) => return shell_code(code),
        Exit::Signal(signal) => return shell_code(128 + signal),
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
    RUN_FAILED
}
