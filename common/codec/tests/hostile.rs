//! Hostile input from a peer: noise, fragments, false lengths. Nothing may panic or allocate without limit.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use proptest::prelude::*;
use sluice_codec::{CodecError, FrameBuffer, PREFIX_BYTES, decode, encode, frame};
use sluice_common::supervision::{FromSupervisor, ToSupervisor};
use sluice_common::time::{Span, Time};
use sluice_common::usage::Usage;
use sluice_common::wire::{
    AttemptEnd, AttemptPhase, AttemptStatus, Command, FromNode, Hello, HelloReply, LogReply,
    LogRequest, StartedProcess, StopReason,
};

const MAX: usize = 64 * 1024;

#[test]
fn an_unlawful_length_is_refused_by_its_prefix_and_stays_refused() {
    let mut buffer = FrameBuffer::new(100);
    buffer.push(&101u32.to_le_bytes()[..3]);
    assert_eq!(buffer.next::<u8>(), Ok(None));
    buffer.push(&101u32.to_le_bytes()[3..]);
    let refusal = CodecError::FrameTooLarge {
        announced: 101,
        max: 100,
    };
    assert_eq!(buffer.next::<u8>(), Err(refusal.clone()));
    buffer.push(&frame(&7u8, MAX).unwrap());
    assert_eq!(buffer.next::<u8>(), Err(refusal));
    assert!(!buffer.is_empty());
    assert_eq!(buffer.take_raw(MAX), b"", "nothing of it was kept");
}

#[test]
fn an_unlawful_frame_behind_a_good_one_is_refused_after_it() {
    let mut buffer = FrameBuffer::new(100);
    let mut bytes = frame(&7u8, 100).unwrap();
    bytes.extend(u32::MAX.to_le_bytes());
    buffer.push(&bytes);
    assert_eq!(buffer.next::<u8>(), Ok(Some(7)));
    assert!(matches!(
        buffer.next::<u8>(),
        Err(CodecError::FrameTooLarge { .. })
    ));
}

#[test]
fn the_largest_lawful_frame_passes_and_one_byte_more_is_not_sent() {
    let text = "x".repeat(92);
    let bytes = frame(&text, 100).unwrap();
    assert_eq!(bytes.len(), PREFIX_BYTES + 100);
    let mut buffer = FrameBuffer::new(100);
    buffer.push(&bytes);
    assert_eq!(buffer.next::<String>(), Ok(Some(text.clone())));
    assert!(buffer.is_empty());
    assert!(matches!(
        frame(&format!("{text}x"), 100),
        Err(CodecError::TooLarge { max: 100, .. })
    ));
}

#[test]
fn a_bad_body_costs_its_own_frame_only() {
    let mut buffer = FrameBuffer::new(MAX);
    buffer.push(&frame(&300u32, MAX).unwrap());
    buffer.push(&frame(&true, MAX).unwrap());
    let bad = buffer.next::<u8>().unwrap_err();
    assert!(matches!(bad, CodecError::TrailingBytes { extra: 3, .. }));
    assert_eq!(buffer.next::<bool>(), Ok(Some(true)));
}

#[test]
fn raw_bytes_follow_frames() {
    let mut buffer = FrameBuffer::new(MAX);
    let mut bytes = frame(&7u8, MAX).unwrap();
    bytes.extend(b"plain text");
    buffer.push(&bytes);
    assert_eq!(buffer.next::<u8>(), Ok(Some(7)));
    assert_eq!(buffer.take_raw(5), b"plain");
    assert_eq!(buffer.take_raw(MAX), b" text");
    assert!(buffer.is_empty());
}

#[test]
fn a_hostile_name_is_refused_and_shown_harmlessly() {
    let bytes = encode(&("\u{1b}[2J", 1u64), MAX).unwrap();
    let error = decode::<sluice_common::id::Epoch>(&bytes, MAX).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("is not a valid cluster id"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn no_bytes_are_a_user_name_that_could_climb_a_path_or_end_a_line() {
    let user = |text: &str| encode(&(text, 0u8), MAX).unwrap();
    let decoded = |text: &str| decode::<sluice_common::submitter::Submitter>(&user(text), MAX);
    assert!(decoded("alice@example.org").is_ok());
    let long = "a".repeat(300);
    for text in [
        "../root",
        "a/b",
        "root\0",
        "a\nb",
        "",
        "-a",
        " root",
        long.as_str(),
    ] {
        let error = decoded(text).unwrap_err().to_string();
        assert!(error.contains("is not a valid user name"), "{error}");
        assert!(!error.contains(['\0', '\n']), "{error}");
    }
}

#[test]
fn an_unknown_variant_is_refused_with_its_number() {
    let text = decode::<StopReason>(&99u32.to_le_bytes(), MAX)
        .unwrap_err()
        .to_string();
    assert!(text.contains("99") && text.contains("StopReason"), "{text}");
}

fn decode_as_everything(bytes: &[u8]) {
    let _ = decode::<Hello>(bytes, MAX);
    let _ = decode::<HelloReply>(bytes, MAX);
    let _ = decode::<FromNode>(bytes, MAX);
    let _ = decode::<Command>(bytes, MAX);
    let _ = decode::<LogRequest>(bytes, MAX);
    let _ = decode::<LogReply>(bytes, MAX);
    let _ = decode::<ToSupervisor>(bytes, MAX);
    let _ = decode::<FromSupervisor>(bytes, MAX);
}

/// Statuses of every phase.
fn status() -> impl Strategy<Value = AttemptStatus> {
    let started = (any::<u32>(), any::<u64>()).prop_map(|(pid, at)| StartedProcess {
        pid,
        at: Time::from_unix_millis(at),
        workdir_refused: None,
    });
    let end = (proptest::option::of(started.clone()), any::<i32>()).prop_map(|(started, code)| {
        AttemptEnd {
            started,
            exit: sluice_common::supervision::Exit::Code(code),
            stopped: None,
            at: Time::default(),
            usage: Usage::default(),
            kept: None,
        }
    });
    let phase = prop_oneof![
        Just(AttemptPhase::Starting),
        started.prop_map(AttemptPhase::Running),
        end.clone().prop_map(AttemptPhase::Ended),
        end.prop_map(AttemptPhase::Released),
    ];
    ("[a-z][a-z0-9.-]{0,40}", 1u32.., phase).prop_map(|(step, number, phase)| AttemptStatus {
        attempt: format!("{step}.{number}").parse().unwrap(),
        phase,
    })
}

/// Feeds `bytes` to a buffer in pieces of these sizes, cyclically, and returns what comes out.
fn in_pieces(bytes: &[u8], sizes: &[usize]) -> (Vec<AttemptStatus>, FrameBuffer) {
    let mut buffer = FrameBuffer::new(MAX);
    let mut out = Vec::new();
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        rest = after;
        buffer.push(piece);
        while let Some(message) = buffer.next().unwrap() {
            out.push(message);
        }
        if rest.is_empty() {
            break;
        }
    }
    (out, buffer)
}

proptest! {
    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        decode_as_everything(&bytes);
    }

    /// Random bytes mostly fail at the first length; small numbers reach deeper.
    #[test]
    fn plausible_noise_never_panics(bytes in proptest::collection::vec(0u8..4, 0..300)) {
        decode_as_everything(&bytes);
    }

    #[test]
    fn noise_in_frames_never_panics(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
    ) {
        let mut buffer = FrameBuffer::new(50);
        for piece in pieces {
            buffer.push(&piece);
            while let Ok(Some(_)) = buffer.next::<FromNode>() {}
        }
    }

    #[test]
    fn frames_survive_any_cutting(
        messages in proptest::collection::vec(status(), 0..12),
        sizes in proptest::collection::vec(1usize..90, 1..8),
    ) {
        let bytes: Vec<u8> = messages.iter().flat_map(|m| frame(m, MAX).unwrap()).collect();
        let (out, buffer) = in_pieces(&bytes, &sizes);
        prop_assert_eq!(out, messages);
        prop_assert!(buffer.is_empty());
    }

    #[test]
    fn half_a_frame_gives_nothing_and_is_seen(message in status(), cut in 1usize..1000) {
        let bytes = frame(&message, MAX).unwrap();
        let cut = 1 + cut % (bytes.len() - 1);
        let (out, buffer) = in_pieces(&bytes[..cut], &[7]);
        prop_assert_eq!(out, vec![]);
        prop_assert!(!buffer.is_empty());
    }

    #[test]
    fn a_flipped_byte_never_panics(message in status(), at in any::<usize>(), to in any::<u8>()) {
        let mut bytes = encode(&message, MAX).unwrap();
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok(read) = decode::<AttemptStatus>(&bytes, MAX) {
            prop_assert_eq!(encode(&read, MAX).unwrap(), bytes, "one value has one spelling");
        }
    }

    #[test]
    fn orders_round_trip(text in "\\PC{0,40}", grace in any::<u64>(), follow in any::<bool>()) {
        let refused = HelloReply::Refused { message: text };
        let bytes = encode(&refused, MAX).unwrap();
        prop_assert_eq!(decode::<HelloReply>(&bytes, MAX).unwrap(), refused);
        let pair = (Span::from_millis(grace), follow);
        let bytes = encode(&pair, MAX).unwrap();
        prop_assert_eq!(decode::<(Span, bool)>(&bytes, MAX).unwrap(), pair);
    }
}
