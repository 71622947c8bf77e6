//! Carries one connection: two threads, one for each direction, each of which waits for the side that it writes to and ends
//! by itself.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sluice_common::exec::{FrameKind, MAX_FRAME_BYTES};
use sluice_common::websocket::{CallerMessage, Empty, ServerMessage};

use crate::client::{self, ExecConnection, MessageReader, MessageWriter, StreamMessage};
use crate::render::safe;

/// Carries both directions to their ends. The error says why the connection was cut before.
pub(super) fn carry(local: &TcpStream, connection: ExecConnection) -> Result<(), String> {
    let ExecConnection {
        mut reader, writer, ..
    } = connection;
    let _bytes_go_anyway = local.set_nodelay(true);
    // The program of this machine has cut the connection: nobody is left to be told.
    let is_gone = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| up(local, &writer, &is_gone));
        let end = down(&mut reader, local, &is_gone);
        // Wakes the other direction.
        reader.close();
        let _it_is_closed_already = local.shutdown(Shutdown::Read);
        end.or_else(|why| match is_gone.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err(why),
        })
    })
}

/// Sends what comes from this machine, to its end. A connection that breaks here is closed for both directions.
fn up(mut local: &TcpStream, writer: &MessageWriter, is_gone: &AtomicBool) {
    let mut bytes = vec![0; MAX_FRAME_BYTES];
    loop {
        let sent = match local.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => {
                is_gone.store(true, Ordering::SeqCst);
                return writer.close();
            }
            Ok(0) => writer.send(&CallerMessage::EndInput(Empty {})),
            Ok(count) => {
                let sent = writer.send_input(&bytes[..count]);
                if sent.is_ok() {
                    continue;
                }
                sent
            }
        };
        if sent.is_err() {
            writer.close();
        }
        return;
    }
}

/// Writes what the program sends, until both directions have ended.
fn down(
    reader: &mut MessageReader,
    mut local: &TcpStream,
    is_gone: &AtomicBool,
) -> Result<(), String> {
    let mut has_ended = false;
    loop {
        match reader.next() {
            Ok(StreamMessage::Data(FrameKind::Stdout, data)) => {
                if local.write_all(&data).is_err() {
                    is_gone.store(true, Ordering::SeqCst);
                    return Err("the program of this machine has gone".to_owned());
                }
            }
            Ok(StreamMessage::Control(ServerMessage::OutputEnded(_))) => {
                has_ended = true;
                let _it_may_be_closed = local.shutdown(Shutdown::Write);
            }
            Ok(StreamMessage::Control(ServerMessage::Error(error))) => {
                return Err(client::failed(error).to_string());
            }
            Ok(StreamMessage::Data(..) | StreamMessage::Control(_)) => {}
            Ok(StreamMessage::Closed(_)) if has_ended => return Ok(()),
            Ok(StreamMessage::Closed(why)) if why.is_empty() => {
                return Err("a connection was cut".to_owned());
            }
            Ok(StreamMessage::Closed(why)) => {
                return Err(format!("a connection was cut: {}", safe(&why)));
            }
            Err(error) => return Err(format!("a connection was cut: {error}")),
        }
    }
}
