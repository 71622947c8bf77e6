//! Marks of times: their form, what they say about bytes, and what is left of them when they become many.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn mark(offset: u64, seconds: u64) -> TimeMark {
    TimeMark::new(0, offset, Time::from_unix_millis(seconds * 1_000))
}

fn times(marks: &[TimeMark]) -> TimeIndex {
    TimeIndex::of(LogStream::Stdout, marks.iter().copied())
}

#[test]
fn a_mark_is_read_as_it_was_written_and_half_of_one_is_not() {
    let one = TimeMark {
        stream: 1,
        offset: SIX_BYTES,
        at: Time::from_unix_millis(1_790_000_000_123),
        span_seconds: 7,
    };
    let bytes = one.to_bytes();
    assert_eq!(TimeMark::from_bytes(bytes), Some(one));
    assert_eq!(TimeMark::from_bytes([0; TIME_MARK_BYTES]), None);
    for at in 0..TIME_MARK_BYTES {
        let mut half = mark(77, 1_790_000_001).to_bytes();
        half[..at].copy_from_slice(&bytes[..at]);
        let found = TimeMark::from_bytes(half);
        assert!(at == 0 || found.is_none(), "{at}: {found:?}");
    }
    let two = [mark(1, 2).to_bytes(), mark(3, 4).to_bytes()].concat();
    assert_eq!(read_marks(&two[..31]).collect::<Vec<_>>(), [mark(1, 2)]);
}

#[test]
fn a_byte_has_the_time_of_the_mark_before_it() {
    let known = times(&[mark(10, 100), mark(30, 200)]);
    for (offset, expected) in [
        (9, None),
        (10, Some(100)),
        (29, Some(100)),
        (30, Some(200)),
        (99, Some(200)),
    ] {
        let at = known.at(offset).map(|at| at.unix_millis() / 1_000);
        assert_eq!(at, expected, "{offset}");
    }
    assert_eq!(times(&[]).at(0), None);
    // A mark at the end of the output, after which nothing was written for long.
    assert_eq!(
        times(&[mark(10, 100), mark(10, 900)]).at(10),
        Some(Time::from_unix_millis(900_000))
    );
    let other = TimeMark {
        stream: 1,
        ..mark(0, 1)
    };
    assert!(times(&[other]).is_empty());
}

#[test]
fn output_since_a_time_begins_where_the_first_of_it_may_lie() {
    let known = times(&[mark(0, 100), mark(30, 200), mark(50, 300)]);
    for (since, expected) in [
        (1, Some(0)),
        (100, Some(0)),
        (101, Some(30)),
        (200, Some(30)),
        (201, Some(50)),
        (301, None),
    ] {
        let since_at = Time::from_unix_millis(since * 1_000);
        assert_eq!(known.begin(since_at), expected, "{since}");
    }
    let late = times(&[mark(40, 100), mark(50, 200)]);
    let begin = |since: u64| late.begin(Time::from_unix_millis(since * 1_000));
    assert_eq!(
        (begin(50), begin(150)),
        (Some(0), Some(50)),
        "what has no time counts as new"
    );
}

proptest! {
    /// However often the list was thinned, and wherever a writer was killed in between, no byte is placed later than it
    /// was written, nor earlier than its mark says, and nothing since a time is left out.
    #[test]
    fn thinning_keeps_what_is_true(
        gaps in proptest::collection::vec((1u64..50, 1u64..20, 0usize..2), 2..60),
        thinned in 1usize..5, cut in 0usize..60, since in 0u64..600,
    ) {
        let (mut offset, mut at) = ([0, 0], 0);
        let mut facts = Vec::new();
        for (bytes, seconds, stream) in gaps {
            at += seconds;
            facts.push(TimeMark { stream, ..mark(offset[stream], at) });
            offset[stream] += bytes;
        }
        let mut marks = facts.clone();
        for _ in 0..thinned {
            let before = marks.clone();
            thin(&mut marks);
            prop_assert!(marks.len() >= before.len() / 2);
            let cut = cut.min(marks.len());
            let killed: Vec<TimeMark> = marks[..cut].iter().chain(&before[cut..]).copied().collect();
            for list in [&marks, &killed] {
                let known = TimeIndex::of(LogStream::Stdout, list.iter().copied());
                for fact in facts.iter().filter(|fact| fact.stream == 0) {
                    let place = known.marks.partition_point(|mark| mark.offset <= fact.offset);
                    let mark = known.marks[..place].last().copied();
                    let mark = mark.unwrap();
                    prop_assert!(mark.at <= fact.at && fact.at < mark.end(), "{fact:?} {mark:?}");
                    let since = Time::from_unix_millis(since * 1_000);
                    let begins = known.begin(since);
                    prop_assert!(fact.at < since || begins.is_some_and(|begin| begin <= fact.offset));
                }
            }
        }
    }
}
