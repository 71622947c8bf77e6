//! Fair share over time: what a subject borrowed counts against it and halves with each half-life. Among requests of
//! equal policy priority, those of the subject that borrowed least for its weight go first.

#![expect(
    clippy::float_arithmetic,
    reason = "powers of two have no exact integers; libm and IEEE 754 give the same results on every machine"
)]

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::amount::{MCPU, MGPU};
use sluice_common::id::UserName;
use sluice_common::time::{Span, Time};

use crate::model::account::Account;
use crate::model::request::Run;

/// Millionths of a GPU-second: one thousandth of a GPU for one millisecond.
const MILLIONTHS: u64 = 1_000_000;

/// Decayed use of a pool by one subject, in millionths of a GPU-second. Runs without GPUs count core-seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairUse {
    /// Time until which use is counted.
    pub at: Time,
    /// Use beyond the reserved share.
    pub borrowed: u64,
    /// All use by each user, sorted by user; `None` for steps that were not submitted by a user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<(Option<UserName>, u64)>,
}

impl FairUse {
    /// The use at a later time, if the account has not changed since; use by user only if `by_user`.
    pub(crate) fn later(
        &self,
        account: Option<&Account>,
        (half_life, by_user): (Span, bool),
        at: Time,
    ) -> Self {
        let spent = Period {
            span: at.since(self.at),
            half_life,
        };
        let borrowed = spent.gain(account.map_or(0, Account::borrowed_rate));
        Self {
            at: self.at.max(at),
            borrowed: spent.decay(self.borrowed).saturating_add(borrowed),
            users: match by_user {
                true => self.users_after(&spent, account),
                false => Vec::new(),
            },
        }
    }

    fn users_after(
        &self,
        spent: &Period,
        account: Option<&Account>,
    ) -> Vec<(Option<UserName>, u64)> {
        let decayed = self.users.iter();
        let decayed = decayed.map(|(user, used)| (user.clone(), spent.decay(*used)));
        let mut users: BTreeMap<Option<UserName>, u64> = decayed.collect();
        for (user, rate) in account.into_iter().flat_map(|account| &account.rates) {
            let used = users.entry(user.clone()).or_default();
            *used = used.saturating_add(spent.gain(*rate));
        }
        users.into_iter().filter(|(_, used)| *used > 0).collect()
    }

    /// Borrowed use in whole GPU-seconds.
    pub fn borrowed_gpu_seconds(&self) -> u64 {
        self.borrowed / MILLIONTHS
    }

    /// Use of one user in whole GPU-seconds.
    pub(crate) fn gpu_seconds_of(&self, user: Option<&UserName>) -> u64 {
        let known = self
            .users
            .binary_search_by(|(known, _)| known.as_ref().cmp(&user));
        known.map_or(0, |found| self.users[found].1 / MILLIONTHS)
    }

    /// Whether less than a GPU-second is left.
    pub(crate) fn is_over(&self) -> bool {
        let mut users = self.users.iter();
        self.borrowed < MILLIONTHS && users.all(|(_, used)| *used < MILLIONTHS)
    }
}

/// A time in which use decays.
struct Period {
    span: Span,
    half_life: Span,
}

impl Period {
    /// Number of half-lives.
    fn half_lives(&self) -> f64 {
        self.span.millis() as f64 / self.half_life.millis().max(1) as f64
    }

    /// The rest of what was used before.
    fn decay(&self, used: u64) -> u64 {
        libm::round(used as f64 * libm::exp2(-self.half_lives())) as u64
    }

    /// Use at a constant rate, in thousandths of a GPU, during the period: the integral of the decayed rate.
    fn gain(&self, rate: u64) -> u64 {
        let ln_2 = core::f64::consts::LN_2;
        let of_period = -libm::expm1(-self.half_lives() * ln_2) / ln_2;
        libm::round(rate as f64 * self.half_life.millis() as f64 * of_period) as u64
    }
}

impl Account {
    /// Use beyond the reserved share, in thousandths of a GPU; cores count for runs without GPUs.
    fn borrowed_rate(&self) -> u64 {
        let held = self.rates.values().copied().fold(0, u64::saturating_add);
        let of_gpus = self.used.get(MGPU);
        let cores = held.saturating_sub(of_gpus);
        let cores = cores.min(self.above_reserved(MCPU, 0));
        let gpus = self.above_reserved(MGPU, 0);
        gpus.saturating_add(cores)
    }
}

impl Run {
    /// Thousandths of a GPU that the run holds; of a core if it holds no GPU.
    pub(crate) fn rate(&self) -> u64 {
        match self.demand().get(MGPU) {
            0 => self.demand().get(MCPU),
            mgpu => mgpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Span = Span::from_secs(3600);

    fn spent(span: Span) -> Period {
        Period {
            span,
            half_life: HOUR,
        }
    }

    #[test]
    fn use_halves_with_each_half_life() {
        assert_eq!(spent(HOUR).decay(1 << 40), 1 << 39);
        assert_eq!(spent(HOUR + HOUR).decay(1 << 40), 1 << 38);
        assert_eq!(spent(Span::ZERO).decay(7), 7);
        assert_eq!(spent(Span::from_secs(u64::MAX / 1000)).decay(u64::MAX), 0);
    }

    #[test]
    fn a_short_period_counts_in_full_and_a_long_one_no_more_than_the_half_life_over_ln_2() {
        assert_eq!(spent(Span::from_millis(1)).gain(1000), 1000);
        let limit = 3600.0 * 1e6 / core::f64::consts::LN_2;
        assert_eq!(
            spent(Span::from_secs(1 << 40)).gain(1000),
            limit.round() as u64
        );
    }

    #[test]
    fn a_period_in_parts_counts_like_the_whole() {
        let minute = spent(Span::from_secs(60));
        let in_parts = (0..60).fold(1 << 40, |used, _| minute.decay(used) + minute.gain(4000));
        let whole = spent(HOUR);
        let whole = whole.decay(1 << 40) + whole.gain(4000);
        assert!(in_parts.abs_diff(whole) <= 60, "{in_parts} {whole}");
    }
}
