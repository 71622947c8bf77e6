//! One target's run: the corpus, then mutations until the time is up, each checked against the bounds.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::allocation;
use crate::corpus::{self, CorpusEntry};
use crate::coverage::{self, EdgeHit};
use crate::mutation::Mutator;
use crate::random::Random;
use crate::watchdog::Watchdog;

/// Default seconds of mutation per target, which must not delay a test run.
const SECONDS: f64 = 1.0;

/// Longest processor time of one input.
const LONGEST: Duration = Duration::from_secs(3);

/// Counters belong to the process, so targets of a counting build take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A target: a decoder, and its bounds.
#[derive(Debug)]
pub struct Fuzz<'a> {
    target: &'a str,
    words: &'a [&'a str],
    max_bytes: usize,
    base: usize,
    per_byte: usize,
}

impl<'a> Fuzz<'a> {
    /// Makes a target whose corpus is the folder of this name. It may take 1 MiB of memory and 256 bytes more for each
    /// byte of its input, and is given at most 4 KiB.
    pub fn new(target: &'a str) -> Self {
        Self {
            target,
            words: &[],
            max_bytes: 4096,
            base: 1 << 20,
            per_byte: 256,
        }
    }

    /// Sets words of the format, which random bytes would not contain.
    pub fn words(self, words: &'a [&'a str]) -> Self {
        Self { words, ..self }
    }

    /// Sets the longest input in bytes.
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Sets the most memory of an input: `base` bytes, and `per_byte` for each of its own.
    pub fn memory(self, base: usize, per_byte: usize) -> Self {
        Self {
            base,
            per_byte,
            ..self
        }
    }

    /// Gives `check` the corpus, and mutations of it until the time is up. `check` panics if something does not hold.
    ///
    /// # Panics
    /// If `check` does, if an input takes too much memory or time, or if there is no corpus. The input is kept, and the
    /// message says where.
    pub fn run(&self, check: impl Fn(&[u8])) {
        self.run_one(&check);
    }

    /// Not generic, so that it is compiled in this crate, uninstrumented and optimised.
    fn run_one(&self, check: &dyn Fn(&[u8])) {
        let _turn =
            coverage::is_counted().then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
        let mut run = FuzzRun::new(self, check);
        run.replay();
        let replayed = run.corpus.len();
        let start = Instant::now();
        run.change_until(start + seconds());
        run.report(replayed, start.elapsed());
    }
}

fn seconds() -> Duration {
    let said = std::env::var("SLUICE_FUZZ_SECONDS").ok();
    let seconds = said.map_or(SECONDS, |text| {
        text.parse().expect("SLUICE_FUZZ_SECONDS is a number")
    });
    Duration::from_secs_f64(seconds)
}

/// Returns how many bytes of found inputs are kept in the repository; `None` if none are.
fn room_to_keep() -> Option<usize> {
    let said = std::env::var("SLUICE_FUZZ_KEEP").ok()?;
    let kib: usize = said.parse().expect("SLUICE_FUZZ_KEEP is a number of KiB");
    Some(kib * 1024)
}

struct FuzzRun<'a> {
    fuzz: &'a Fuzz<'a>,
    check: &'a dyn Fn(&[u8]),
    corpus: Vec<CorpusEntry>,
    seen: BTreeSet<EdgeHit>,
    executions: u64,
    failures: PathBuf,
    watchdog: Watchdog,
}

impl<'a> FuzzRun<'a> {
    fn new(fuzz: &'a Fuzz<'a>, check: &'a dyn Fn(&[u8])) -> Self {
        let failures = corpus::failures(fuzz.target);
        Self {
            fuzz,
            check,
            corpus: corpus::read(&corpus::folder(fuzz.target)),
            seen: BTreeSet::new(),
            executions: 0,
            watchdog: Watchdog::start(failures.clone()),
            failures,
        }
    }

    fn replay(&mut self) {
        // One-time initialisation happens before anything is measured.
        let first = self.corpus[0].bytes.clone();
        (self.check)(&first);
        for at in 0..self.corpus.len() {
            let bytes = std::mem::take(&mut self.corpus[at].bytes);
            let ways = self.try_one(&bytes);
            self.seen.extend(ways.iter().copied());
            self.corpus[at].bytes = bytes;
            self.corpus[at].ways = ways;
        }
    }

    fn change_until(&mut self, end: Instant) {
        let mut mutator = Mutator {
            random: Random::new(),
            words: self.fuzz.words,
            max_bytes: self.fuzz.max_bytes,
        };
        while Instant::now() < end {
            let from = self.pick(&mut mutator.random);
            let other = mutator.random.below(self.corpus.len());
            let made = mutator.mutate(&self.corpus[from].bytes, &self.corpus[other].bytes);
            let ways = self.try_one(&made);
            if ways.iter().any(|way| !self.seen.contains(way)) {
                self.seen.extend(ways.iter().copied());
                self.corpus.push(CorpusEntry {
                    is_by_hand: false,
                    bytes: made,
                    ways,
                });
            }
        }
    }

    /// Picks an input, half of the time a recent find, where more may be found.
    fn pick(&self, random: &mut Random) -> usize {
        let all = self.corpus.len();
        match random.below(2) {
            0 => all - 1 - random.below(all.div_ceil(8)),
            _ => random.below(all),
        }
    }

    /// Tries an input, checks the bounds, and returns its edges.
    fn try_one(&mut self, input: &[u8]) -> Vec<EdgeHit> {
        self.executions += 1;
        self.watchdog.begin(input);
        coverage::restart();
        let before = processor_time();
        allocation::restart();
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.check)(input)));
        let (memory, time) = (allocation::most(), processor_time().saturating_sub(before));
        let ways = coverage::ways();
        self.watchdog.end();
        let bound = self.fuzz.base + self.fuzz.per_byte * input.len();
        if outcome.is_err() {
            self.fail(input, "it panicked");
        }
        if memory > bound {
            self.fail(
                input,
                &format!("it took {memory} bytes of memory, the maximum is {bound}"),
            );
        }
        if time > LONGEST {
            self.fail(input, &format!("it took {time:?} of a processor"));
        }
        ways
    }

    fn fail(&self, input: &[u8], why: &str) -> ! {
        let kept = corpus::keep(&self.failures, input);
        let corpus = corpus::folder(self.fuzz.target);
        panic!(
            "{}: {why}. The input is kept as {}: once mended, it goes to {}.\n{}",
            self.fuzz.target,
            kept.display(),
            corpus.display(),
            input[..input.len().min(500)].escape_ascii()
        );
    }

    #[expect(
        clippy::print_stdout,
        reason = "a run by hand is asked for its figures"
    )]
    fn report(self, replayed: usize, time: Duration) {
        let edges: BTreeSet<_> = self.seen.iter().map(|way| way.edge).collect();
        let found = self.corpus.len() - replayed;
        println!(
            "fuzz {}: {replayed} replayed, {} executions in {:.0?}, {} edges, {found} inputs found",
            self.fuzz.target,
            self.executions,
            time,
            edges.len(),
        );
        if let Some(room) = room_to_keep().filter(|_| coverage::is_counted()) {
            let folder = corpus::folder(self.fuzz.target);
            let kept = corpus::rewrite(&folder, self.corpus, room);
            println!("fuzz {}: {kept} inputs kept", self.fuzz.target);
        }
    }
}

/// Returns this thread's processor time.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(Duration::from)
        .unwrap_or_default()
}
