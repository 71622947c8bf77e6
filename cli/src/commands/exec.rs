//! `sluice exec`: runs a program beside a running step with this process's three streams. The end of this command
//! closes the connection, which ends the program.

use std::io::{self, Read, Write};
use std::thread;

use sluice_common::exec::{FrameDecoder, FrameKind, MAX_FRAME_BYTES, encode_frame};
use sluice_common::supervision::Exit;

use crate::args::ExecArgs;
use crate::client::{Client, ExecConnection, ExecSocket};
use crate::failure::{Failure, RUN_FAILED};
use crate::out::{Out, Sink};
use crate::render;

pub(crate) fn run(client: &Client, args: &ExecArgs, out: Out) -> Result<u8, Failure> {
    let call = |id: &str| client.exec(id, args.rank, &args.command);
    let ExecConnection { mut stream, first } = client.for_step(&args.step, call)?;
    let lost = |error: io::Error| Failure::from(client.lost(&error));
    let to_program = stream.try_clone().map_err(lost)?;
    thread::spawn(move || feed(to_program));
    let (mut stdout, mut stderr) = (Sink::stdout()?, Sink::stderr()?);
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
                FrameKind::Stdin => Ok(()),
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

/// Sends stdin to its end. If the connection breaks, the other direction reports it.
fn feed(mut to_program: ExecSocket) {
    let mut bytes = vec![0; MAX_FRAME_BYTES];
    let mut stdin = io::stdin().lock();
    loop {
        let count = match stdin.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A stdin that cannot be read has ended.
            read => read.unwrap_or(0),
        };
        let sent = to_program.write_all(&encode_frame(FrameKind::Stdin, &bytes[..count]));
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
