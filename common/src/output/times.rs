//! Times of output: which part of a stream was written when, to about a second.
//!
//! Behind the marks of dropped output in [`super::MARKS_FILE`] there is a list of [`TimeMark`]s of all streams. The writer
//! adds one *before* it writes, at most one a second for each stream, so the bytes from the mark's offset up to that of the
//! next were written within [`TimeMark::span_seconds`] of its time. When the list is full, the writer joins some in
//! the older half: the newest hours stay exact, and older output is placed less exactly.
//!
//! Each mark states a fact of its own. So a list that a killed writer has rewritten in part is read all the same: the order
//! in the file does not matter, and marks that were joined may stand beside the result.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{LogStream, MARKS_BYTES, STREAMS};
use crate::time::{Span, Time};

/// Length of one mark in bytes.
pub const TIME_MARK_BYTES: usize = 16;

/// Most marks of an attempt; the list takes 256 KiB then.
pub const MAX_TIME_MARKS: usize = 16 * 1024;

/// Largest file of marks, in bytes.
pub const MAX_MARKS_FILE_BYTES: usize = MARKS_BYTES + MAX_TIME_MARKS * TIME_MARK_BYTES;

/// Least time between two marks of a stream.
pub const MARK_INTERVAL: Span = Span::from_secs(1);

/// Offsets and times take six bytes each: 256 TiB, and more than 8,000 years.
const SIX_BYTES: u64 = (1 << 48) - 1;

/// Sum of the bytes of a mark, so that zeros are no mark.
const CHECK: u8 = 0xa5;

/// A part of a stream, and when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeMark {
    /// Index of the stream in [`STREAMS`].
    pub stream: usize,
    /// Offset of the first byte.
    pub offset: u64,
    /// Time at which its writing began, by the host's clock.
    pub at: Time,
    /// Seconds within which all of it was written; at least 1.
    pub span_seconds: u16,
}

impl TimeMark {
    /// A mark of bytes that are written within [`MARK_INTERVAL`].
    pub fn new(stream: usize, offset: u64, at: Time) -> Self {
        Self {
            stream,
            offset,
            at,
            span_seconds: 1,
        }
    }

    /// Encodes the mark.
    pub fn to_bytes(self) -> [u8; TIME_MARK_BYTES] {
        let mut bytes = [0; TIME_MARK_BYTES];
        bytes[..6].copy_from_slice(&self.offset.min(SIX_BYTES).to_le_bytes()[..6]);
        bytes[6..12].copy_from_slice(&self.at.unix_millis().min(SIX_BYTES).to_le_bytes()[..6]);
        bytes[12..14].copy_from_slice(&self.span_seconds.to_le_bytes());
        bytes[14] = u8::try_from(self.stream).unwrap_or(u8::MAX);
        bytes[15] = check(&bytes[..15]);
        bytes
    }

    /// Decodes a mark; `None` if the bytes are none, or half of one.
    pub fn from_bytes(bytes: [u8; TIME_MARK_BYTES]) -> Option<Self> {
        let six = |at: usize| {
            let mut wide = [0; 8];
            wide[..6].copy_from_slice(&bytes[at..at + 6]);
            u64::from_le_bytes(wide)
        };
        let mark = Self {
            stream: usize::from(bytes[14]),
            offset: six(0),
            at: Time::from_unix_millis(six(6)),
            span_seconds: u16::from_le_bytes([bytes[12], bytes[13]]),
        };
        let is_whole = bytes[15] == check(&bytes[..15]);
        (is_whole && mark.stream < STREAMS.len() && mark.span_seconds > 0).then_some(mark)
    }

    /// Time by which all of it was written.
    pub fn end(self) -> Time {
        self.at + Span::from_secs(u64::from(self.span_seconds))
    }

    /// Joins a later mark of the same stream to this one.
    fn join(&mut self, later: Self) {
        if later.offset == self.offset {
            // Nothing was written at the earlier time.
            *self = later;
            return;
        }
        let seconds = later.end().since(self.at).millis().div_ceil(1_000);
        self.span_seconds = u16::try_from(seconds)
            .unwrap_or(u16::MAX)
            .max(self.span_seconds);
    }
}

fn check(bytes: &[u8]) -> u8 {
    bytes
        .iter()
        .fold(CHECK, |sum, byte| sum.wrapping_add(*byte))
}

/// Decodes the marks in a part of the file that follows the marks of dropped output.
pub fn read_marks(bytes: &[u8]) -> impl Iterator<Item = TimeMark> + '_ {
    let whole = bytes.chunks_exact(TIME_MARK_BYTES);
    whole.filter_map(|bytes| TimeMark::from_bytes(bytes.try_into().ok()?))
}

/// Shortens a list, in which the marks of each stream are in order, by a quarter: joins marks in its older half, first those
/// that are closest to each other.
pub fn thin(marks: &mut Vec<TimeMark>) {
    let most = marks.len() - marks.len() / 4;
    let newer = marks.split_off(marks.len() / 2);
    let mut within = MARK_INTERVAL;
    while marks.len() + newer.len() > most {
        within = Span::from_millis(within.millis().saturating_mul(2));
        join_within(marks, within);
        if within.millis() == u64::MAX {
            break;
        }
    }
    marks.extend(newer);
}

/// Joins the marks of each stream that were made within a time.
fn join_within(marks: &mut Vec<TimeMark>, within: Span) {
    let mut first_of = [None; STREAMS.len()];
    for at in 0..marks.len() {
        let later = marks[at];
        let first: &mut Option<usize> = &mut first_of[later.stream];
        let joined = first.filter(|first| later.end().since(marks[*first].at) <= within);
        match joined {
            None => *first = Some(at),
            Some(first) => {
                marks[first].join(later);
                // Marked for removal.
                marks[at].span_seconds = 0;
            }
        }
    }
    marks.retain(|mark| mark.span_seconds > 0);
}

/// Times of the output of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeIndex {
    /// In the order of their offsets, each of which is there once.
    marks: Vec<TimeMark>,
}

impl TimeIndex {
    /// Collects the marks of one stream, whatever their order.
    pub fn of(stream: LogStream, marks: impl Iterator<Item = TimeMark>) -> Self {
        let mut marks: Vec<TimeMark> = marks
            .filter(|mark| STREAMS.get(mark.stream) == Some(&stream))
            .collect();
        // Of marks with one offset the latest counts: nothing was written before. Of two that differ in length alone, one
        // is joined.
        marks.sort_by_key(|mark| (mark.offset, Reverse(mark.at), Reverse(mark.span_seconds)));
        marks.dedup_by_key(|mark| mark.offset);
        Self { marks }
    }

    /// Whether no time is known.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Time at which a byte was written; `None` if the host kept none.
    pub fn at(&self, offset: u64) -> Option<Time> {
        let after = self.marks.partition_point(|mark| mark.offset <= offset);
        Some(self.marks[..after].last()?.at)
    }

    /// Offset from which on everything written at `since` or later lies; `None` if all of it is older. Output before the
    /// first mark counts as written then.
    pub fn begin(&self, since: Time) -> Option<u64> {
        let found = self.marks.iter().position(|mark| mark.end() > since)?;
        Some(match found {
            0 => 0,
            found => self.marks[found].offset,
        })
    }
}

#[cfg(test)]
mod tests;
