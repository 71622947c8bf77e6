//! Input from callers: one connection at a time, the frames that come by it, and the number of bytes taken.
//!
//! Bytes count as taken once this process has them. What a lost connection still held is not taken: its caller, or the next
//! one, sends it again. So nothing is lost and nothing is repeated.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use nix::poll::{PollFd, PollFlags};
use sluice_common::attempt_dir::INPUT_ENDED;
use sluice_common::exec::{FrameDecoder, FrameKind, MAX_FRAME_BYTES, WindowSize};

/// Input on its way to the program.
pub(super) struct CallerInput {
    socket: UnixListener,
    caller: Option<Caller>,
    /// Bytes taken from all callers.
    taken: u64,
    /// Bytes that the program has not been given: at most those of one read and of one frame.
    pending: Vec<u8>,
    ended: bool,
}

struct Caller {
    stream: UnixStream,
    frames: FrameDecoder,
}

impl CallerInput {
    pub(super) fn new(socket: UnixListener) -> Self {
        Self {
            socket,
            caller: None,
            taken: 0,
            pending: Vec::new(),
            ended: false,
        }
    }

    /// Bytes for the program.
    pub(super) fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Removes bytes that the program was given.
    pub(super) fn passed_on(&mut self, count: usize) {
        self.pending.drain(..count);
    }

    /// Whether the input has ended and the program was given all of it.
    pub(super) fn has_ended(&self) -> bool {
        self.ended && self.pending.is_empty()
    }

    /// Events of the program's end to wait for.
    pub(super) fn wanted_of_program(&self) -> PollFlags {
        match self.pending.is_empty() {
            true => PollFlags::empty(),
            false => PollFlags::POLLOUT,
        }
    }

    /// Events of the callers' end to wait for. While bytes are pending none are read, but a caller who leaves is noticed.
    pub(super) fn poll_entry(&self) -> PollFd<'_> {
        match &self.caller {
            None => PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            Some(caller) if self.pending.is_empty() => {
                PollFd::new(caller.stream.as_fd(), PollFlags::POLLIN)
            }
            Some(caller) => PollFd::new(caller.stream.as_fd(), PollFlags::empty()),
        }
    }

    /// Handles what has come; returns the new size of the caller's terminal, if it has one.
    pub(super) fn on_ready(&mut self, ready: PollFlags) -> Option<WindowSize> {
        if ready.is_empty() {
            return None;
        }
        if self.caller.is_none() {
            self.accept();
            return None;
        }
        let may_read = self.pending.is_empty() && ready.contains(PollFlags::POLLIN);
        let size = match may_read {
            true => self.receive(),
            false => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        size.unwrap_or_else(|_| {
            self.caller = None;
            None
        })
    }

    fn accept(&mut self) {
        let Ok((stream, _)) = self.socket.accept() else {
            return;
        };
        let frames = FrameDecoder::default();
        self.caller = Some(Caller { stream, frames });
        if self.say(self.taken).is_err() {
            self.caller = None;
        }
    }

    fn receive(&mut self) -> io::Result<Option<WindowSize>> {
        let Some(caller) = &mut self.caller else {
            return Ok(None);
        };
        let mut bytes = vec![0; MAX_FRAME_BYTES];
        let count = caller.stream.read(&mut bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        caller.frames.push(&bytes[..count]);
        let mut size = None;
        while let Some((kind, payload)) = caller.frames.next_frame().map_err(io::Error::other)? {
            match kind {
                FrameKind::Stdin if payload.is_empty() => self.ended = true,
                FrameKind::Stdin if !self.ended => {
                    self.taken += payload.len() as u64;
                    self.pending.extend(payload);
                }
                FrameKind::Resize => size = WindowSize::from_bytes(&payload).or(size),
                FrameKind::Stdin
                | FrameKind::Stdout
                | FrameKind::Stderr
                | FrameKind::Exit
                | FrameKind::Taken
                | FrameKind::InputEnded
                | FrameKind::TakenOver
                | FrameKind::OutputEnded => {}
            }
        }
        self.say(self.taken)?;
        Ok(size)
    }

    /// Tells the caller, if one is there, that the program takes no more input.
    pub(super) fn say_ended(&mut self) {
        let _nobody_may_be_there = self.say(INPUT_ENDED);
    }

    fn say(&mut self, number: u64) -> io::Result<()> {
        let Some(caller) = &mut self.caller else {
            return Ok(());
        };
        caller.stream.write_all(&number.to_be_bytes())
    }
}
