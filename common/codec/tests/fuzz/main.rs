//! Hostile bytes for every message between programs, and for frames. Corpora and engine are those of `sluice-fuzz`; the
//! first byte of an input selects the message type.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_codec::{CodecError, FrameBuffer, PREFIX_BYTES, decode, encode, frame};
use sluice_common::exec::{FrameDecoder, FrameKind};
use sluice_common::join::{CertificateMessage, CertificateRequest, JoinReply, JoinRequest};
use sluice_common::limit::MAX_FRAME_BYTES;
use sluice_common::supervision::{FromSupervisor, MAX_SUPERVISION_FRAME_BYTES, ToSupervisor};
use sluice_common::wire::{Command, FromNode, Hello, HelloReply, LogReply, LogRequest, StreamKind};
use sluice_fuzz::Fuzz;

/// Decoding reserves memory for a list before reading it, up to a limit of serde's; lists may be nested.
const MEMORY: (usize, usize) = (8 << 20, 1024);

/// A decoded value must encode within its reader's limit and decode to the same value. Errors must be safe to log.
fn comes_back<T: Serialize + DeserializeOwned>(bytes: &[u8], max_bytes: usize) {
    match decode::<T>(bytes, max_bytes) {
        Ok(message) => {
            let written = encode(&message, max_bytes).expect("what was read can be written");
            let again: T = decode(&written, max_bytes).expect("what was written can be read");
            assert_eq!(encode(&again, max_bytes).unwrap(), written);
        }
        Err(error) => is_harmless(&error),
    }
}

fn is_harmless(error: &CodecError) {
    let said = error.to_string();
    assert!(said.len() < 2000, "{} bytes", said.len());
    assert!(!said.chars().any(char::is_control), "{said:?}");
}

#[test]
fn messages_of_the_link() {
    let max = MAX_FRAME_BYTES;
    Fuzz::new("link").memory(MEMORY.0, MEMORY.1).run(|input| {
        let Some((kind, bytes)) = input.split_first() else {
            return;
        };
        match kind % 11 {
            0 => comes_back::<StreamKind>(bytes, max),
            1 => comes_back::<Hello>(bytes, max),
            2 => comes_back::<HelloReply>(bytes, max),
            3 => comes_back::<FromNode>(bytes, max),
            4 => comes_back::<Command>(bytes, max),
            5 => comes_back::<LogRequest>(bytes, max),
            6 => comes_back::<LogReply>(bytes, max),
            7 => comes_back::<JoinRequest>(bytes, max),
            8 => comes_back::<JoinReply>(bytes, max),
            9 => comes_back::<CertificateRequest>(bytes, max),
            _ => comes_back::<CertificateMessage>(bytes, max),
        }
    });
}

#[test]
fn messages_of_the_supervisor() {
    let max = MAX_SUPERVISION_FRAME_BYTES;
    let target = Fuzz::new("supervision").memory(MEMORY.0, MEMORY.1);
    target.run(|input| match input.split_first() {
        Some((0, bytes)) => comes_back::<FromSupervisor>(bytes, max),
        Some((_, bytes)) => comes_back::<ToSupervisor>(bytes, max),
        None => {}
    });
}

/// Longest frame announced in these tests, so that inputs can reach it.
const SHORT: usize = 1024;

/// Every message of a stream that arrives in pieces of `size`, up to the first error.
fn taken(stream: &[u8], size: usize) -> Vec<Result<LogReply, CodecError>> {
    let mut frames = FrameBuffer::new(SHORT);
    let mut found = Vec::new();
    for piece in stream.chunks(size) {
        frames.push(piece);
        while let Some(message) = frames.next::<LogReply>().transpose() {
            let is_over = message.is_err();
            found.push(message);
            if is_over {
                return found;
            }
        }
    }
    found
}

#[test]
fn frames_however_they_are_cut() {
    Fuzz::new("frames").memory(MEMORY.0, MEMORY.1).run(|input| {
        let Some((size, stream)) = input.split_first() else {
            return;
        };
        let whole = taken(stream, stream.len().max(1));
        assert_eq!(taken(stream, usize::from(*size).max(1)), whole);
        for message in whole {
            match message {
                Ok(message) => {
                    let framed = frame(&message, SHORT).unwrap();
                    assert!(framed.len() <= SHORT + PREFIX_BYTES);
                }
                Err(error) => is_harmless(&error),
            }
        }
    });
}

fn exec_frames(stream: &[u8], size: usize) -> (Vec<(FrameKind, Vec<u8>)>, bool) {
    let mut frames = FrameDecoder::default();
    let mut found = Vec::new();
    for piece in stream.chunks(size) {
        frames.push(piece);
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
    }
    (found, false)
}

#[test]
fn frames_of_exec_however_they_are_cut() {
    Fuzz::new("exec-frames").run(|input| {
        let Some((size, stream)) = input.split_first() else {
            return;
        };
        let (whole, refused) = exec_frames(stream, stream.len().max(1));
        let (cut, cut_refused) = exec_frames(stream, usize::from(*size).max(1));
        assert_eq!((&cut, cut_refused), (&whole, refused));
        let written: Vec<u8> = whole
            .iter()
            .flat_map(|(kind, bytes)| sluice_common::exec::encode_frame(*kind, bytes))
            .collect();
        assert!(stream.starts_with(&written), "what is taken is what came");
    });
}
