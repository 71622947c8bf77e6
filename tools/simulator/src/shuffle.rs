//! Arrivals without the times of the trace: jobs in an order drawn from a seed, one each second, that never end,
//! until they have asked for a percentage of the cluster's GPUs. So placement alone decides how full the cluster
//! gets.

use sluice_common::time::Span;

use crate::trace::TraceJob;

/// Makes the arrivals. If the trace asks for less, it is repeated in another order.
pub fn arrivals(jobs: &[TraceJob], gpus: u64, of_hundred: u64, seed: u64) -> Vec<TraceJob> {
    let wanted = gpus.saturating_mul(of_hundred) / 100;
    let mut random = Random(seed);
    let mut found: Vec<TraceJob> = Vec::new();
    let mut asked = 0;
    let any = jobs.iter().any(|job| job.gpus > 0);
    while any && asked < wanted {
        for job in random.shuffled(jobs) {
            if asked >= wanted {
                break;
            }
            asked += job.gpus;
            found.push(TraceJob {
                at: Span::from_secs(found.len() as u64),
                lasts: None,
                time_limit: None,
                ..job.clone()
            });
        }
    }
    found
}

/// Random numbers that are the same for the same seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn shuffled<'a>(&mut self, jobs: &'a [TraceJob]) -> Vec<&'a TraceJob> {
        let mut jobs: Vec<&TraceJob> = jobs.iter().collect();
        for at in (1..jobs.len()).rev() {
            let other = self.next() % (at as u64 + 1);
            jobs.swap(at, usize::try_from(other).unwrap_or(at));
        }
        jobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::id::Subject;

    fn job(gpus: u64) -> TraceJob {
        TraceJob {
            at: Span::ZERO,
            lasts: Some(Span::from_secs(1)),
            time_limit: None,
            subject: Subject::new("s").unwrap(),
            gpus,
            mcpu: 0,
            memory_mb: 0,
            platforms: Vec::new(),
        }
    }

    #[test]
    fn they_come_until_enough_was_asked_for_and_alike_for_each_seed() {
        let jobs: Vec<TraceJob> = (0..10).map(job).collect();
        let first = arrivals(&jobs, 100, 130, 7);
        let asked: u64 = first.iter().map(|job| job.gpus).sum();
        assert!((130..140).contains(&asked), "{asked}");
        assert_eq!(first, arrivals(&jobs, 100, 130, 7));
        assert_ne!(first, arrivals(&jobs, 100, 130, 8));
        assert!(first.iter().all(|job| job.lasts.is_none()));
        assert!(arrivals(&[job(0)], 100, 130, 7).is_empty());
    }
}
