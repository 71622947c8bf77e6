//! Amounts of resources by key. Amounts are integers, so that sums are exact and identical on every machine.

pub mod field;
mod memory;
pub mod table;

use core::cmp::Ordering;
use core::fmt;

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use memory::{MemoryError, format_memory, parse_memory};

/// Bytes per unit of [`MEMORY_MB`] and [`STORAGE_MB`].
pub const BYTES_PER_MEGABYTE: u64 = 1_000_000;

/// Longest resource key, in bytes.
const MAX_KEY_BYTES: usize = 63;

/// Name of a resource. The key implies the unit of its amounts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct ResourceKey(Cow<'static, str>);

/// Resource key: thousandths of a GPU. A slice counts for its part of the GPU's compute slices.
pub const MGPU: &str = "mgpu";
/// Resource key: thousandths of a CPU core.
pub const MCPU: &str = "mcpu";
/// Resource key: host memory in units of 10^6 bytes.
pub const MEMORY_MB: &str = "memory_mb";
/// Resource key: disk space in units of 10^6 bytes.
pub const STORAGE_MB: &str = "storage_mb";
/// Resource key: 1 for every running step.
pub const STEP_RUN: &str = "step_run";

/// The keys of this module, in their order.
static NAMED: [ResourceKey; 5] = [
    ResourceKey(Cow::Borrowed(MCPU)),
    ResourceKey(Cow::Borrowed(MEMORY_MB)),
    ResourceKey(Cow::Borrowed(MGPU)),
    ResourceKey(Cow::Borrowed(STEP_RUN)),
    ResourceKey(Cow::Borrowed(STORAGE_MB)),
];

/// Position of a key in [`NAMED`].
fn position(key: &str) -> Option<usize> {
    match key {
        MCPU => Some(0),
        MEMORY_MB => Some(1),
        MGPU => Some(2),
        STEP_RUN => Some(3),
        STORAGE_MB => Some(4),
        _ => None,
    }
}

/// Amount of [`MGPU`] of a whole GPU.
pub const MGPU_A_GPU: u64 = 1000;

impl ResourceKey {
    /// Checks a key: 1 to 63 lower-case letters, digits, `_`, `-`, `.` and `/`, beginning with a letter.
    ///
    /// # Errors
    /// If the text breaks that rule.
    pub fn new(text: impl Into<String>) -> Result<Self, ResourceKeyError> {
        let text = text.into();
        if let Some(position) = position(&text) {
            return Ok(NAMED[position].clone());
        }
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
        let rest = bytes.all(|b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.' | b'/')
        });
        if first && rest && text.len() <= MAX_KEY_BYTES {
            return Ok(Self(Cow::Owned(text)));
        }
        Err(ResourceKeyError {
            text: text.escape_default().to_string(),
        })
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(table::key_name(&self.0))
    }
}

impl TryFrom<String> for ResourceKey {
    type Error = ResourceKeyError;
    fn try_from(text: String) -> Result<Self, ResourceKeyError> {
        Self::new(text)
    }
}

impl From<ResourceKey> for String {
    fn from(key: ResourceKey) -> String {
        key.0.into_owned()
    }
}

impl core::borrow::Borrow<str> for ResourceKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Error for a text that is not a resource key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a resource key: use 1 to 63 lower-case letters, digits, `_`, `-`, `.` and `/`, beginning with a letter"
)]
pub struct ResourceKeyError {
    /// The rejected text, escaped.
    pub text: String,
}

/// Amounts by resource key. An absent key counts as zero.
///
/// Those of the keys that this module names are in an array: the scheduler adds, compares and copies them for each
/// request that it looks at.
#[derive(Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "table::AmountTable"))]
pub struct Amounts {
    /// In the order of [`NAMED`].
    named: [u64; NAMED.len()],
    /// Of all other keys, without zeros.
    other: BTreeMap<ResourceKey, u64>,
}

impl Amounts {
    /// Creates an empty set of amounts.
    pub const fn new() -> Self {
        Self {
            named: [0; NAMED.len()],
            other: BTreeMap::new(),
        }
    }

    /// The amount of `key`, 0 if absent.
    pub fn get(&self, key: &str) -> u64 {
        match position(key) {
            Some(position) => self.named[position],
            None => self.other.get(key).copied().unwrap_or(0),
        }
    }

    /// Sets the amount of `key`.
    pub fn set(&mut self, key: ResourceKey, amount: u64) {
        if let Some(position) = position(key.as_str()) {
            self.named[position] = amount;
        } else if amount == 0 {
            self.other.remove(&key);
        } else {
            self.other.insert(key, amount);
        }
    }

    /// Sets one of the keys that this module names.
    ///
    /// # Panics
    /// If `key` is not well-formed, which a constant of this module never is.
    pub fn with(mut self, key: &'static str, amount: u64) -> Self {
        self.set(
            ResourceKey::new(key).expect("a constant key is well-formed"),
            amount,
        );
        self
    }

    /// Sets the number of whole GPUs.
    pub fn with_gpus(self, gpus: u64) -> Self {
        self.with(MGPU, gpus.saturating_mul(MGPU_A_GPU))
    }

    /// Keys and amounts above zero, in order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceKey, u64)> {
        let named = NAMED.iter().zip(self.named);
        let mut named = named.filter(|(_, amount)| *amount > 0).peekable();
        let mut other = self.other.iter().map(|(key, amount)| (key, *amount));
        let mut next_other = other.next();
        core::iter::from_fn(move || {
            let comes_first = |(key, _): &mut (&ResourceKey, u64)| {
                named.peek().is_none_or(|(named, _)| *key < *named)
            };
            match next_other.take_if(comes_first) {
                Some(first) => {
                    next_other = other.next();
                    Some(first)
                }
                None => named.next(),
            }
        })
    }

    /// Whether every amount is zero.
    pub fn is_empty(&self) -> bool {
        self.named.iter().all(|amount| *amount == 0) && self.other.is_empty()
    }

    /// Adds `other` key by key, saturating.
    pub fn add(&mut self, other: &Amounts) {
        for (sum, amount) in self.named.iter_mut().zip(other.named) {
            *sum = sum.saturating_add(amount);
        }
        for (key, amount) in &other.other {
            let sum = self.get(key.as_str()).saturating_add(*amount);
            self.other.insert(key.clone(), sum);
        }
    }

    /// Subtracts `other` key by key, saturating at zero.
    #[must_use]
    pub fn saturating_sub(&self, other: &Amounts) -> Amounts {
        let mut rest = self.clone();
        for (amount, subtracted) in rest.named.iter_mut().zip(other.named) {
            *amount = amount.saturating_sub(subtracted);
        }
        rest.other.retain(|key, amount| {
            *amount = amount.saturating_sub(other.get(key.as_str()));
            *amount > 0
        });
        rest
    }

    /// Subtracts `other` key by key.
    ///
    /// # Panics
    /// If an amount would fall below zero, which is a defect of the caller's accounting.
    pub fn subtract(&mut self, other: &Amounts) {
        let rest = |amount: u64, released: u64| {
            let rest = amount.checked_sub(released);
            rest.expect("no more is released than was granted")
        };
        for (amount, released) in self.named.iter_mut().zip(other.named) {
            *amount = rest(*amount, released);
        }
        for (key, released) in &other.other {
            let rest = rest(self.get(key.as_str()), *released);
            self.set(key.clone(), rest);
        }
    }
}

/// Compares the pairs of key and amount in their order.
impl Ord for Amounts {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl PartialOrd for Amounts {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.iter().map(|(key, amount)| (key.as_str(), amount));
        f.debug_map().entries(pairs).finish()
    }
}

impl Serialize for Amounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        table::serialize_pairs(self.iter().count(), self.iter(), serializer)
    }
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(table::deserialize(deserializer)?.into_iter().collect())
    }
}

impl FromIterator<(ResourceKey, u64)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (ResourceKey, u64)>>(pairs: I) -> Self {
        let mut amounts = Self::new();
        let pairs = pairs.into_iter().filter(|(_, amount)| *amount > 0);
        pairs.for_each(|(key, amount)| amounts.set(key, amount));
        amounts
    }
}

/// Bytes in units of 10^6, rounded up, for requests.
pub const fn megabytes_up(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_MEGABYTE)
}

/// Bytes in units of 10^6, rounded down, for capacities.
pub const fn megabytes_down(bytes: u64) -> u64 {
    bytes / BYTES_PER_MEGABYTE
}

/// Converts thousandths of a core, or of a GPU, to cores or GPUs.
pub fn cores_of(mcpu: u64) -> f64 {
    mcpu as f64 / 1000.0
}

/// `ceil(x * 1000)` for `0 <= x <= 10^9`, tolerating the rounding of decimals such as 0.1 in binary.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the caller bounds the range"
)]
pub(crate) fn ceil_thousandths(cores: f64) -> u64 {
    let thousandths = cores * 1000.0;
    let whole = thousandths as u64;
    u64::from(thousandths - whole as f64 > 1e-6) + whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[should_panic(expected = "no more is released than was granted")]
    fn taking_more_than_there_is_is_a_defect() {
        Amounts::new()
            .with_gpus(1)
            .subtract(&Amounts::new().with_gpus(2));
    }

    fn key() -> impl Strategy<Value = ResourceKey> {
        let keys = [
            "a",
            MCPU,
            "mem",
            MEMORY_MB,
            MGPU,
            "mgpv",
            STEP_RUN,
            "step_runs",
            STORAGE_MB,
            "z",
        ];
        prop::sample::select(keys.to_vec()).prop_map(|key| ResourceKey::new(key).unwrap())
    }

    fn pairs() -> impl Strategy<Value = BTreeMap<ResourceKey, u64>> {
        prop::collection::btree_map(key(), 1u64..9, 0..6)
    }

    fn of(pairs: &BTreeMap<ResourceKey, u64>) -> Amounts {
        pairs
            .iter()
            .map(|(key, amount)| (key.clone(), *amount))
            .collect()
    }

    fn map_of(amounts: &Amounts) -> BTreeMap<ResourceKey, u64> {
        amounts
            .iter()
            .map(|(key, amount)| (key.clone(), amount))
            .collect()
    }

    proptest! {
        #[test]
        fn amounts_are_a_map_in_the_order_of_keys(left in pairs(), right in pairs()) {
            let (mut sum, other) = (of(&left), of(&right));
            prop_assert!(sum.iter().map(|(key, _)| key).eq(left.keys()));
            prop_assert_eq!(sum.cmp(&other), left.cmp(&right));
            prop_assert_eq!(sum == other, left == right);
            prop_assert_eq!(sum.is_empty(), left.is_empty());
            let mut added = left.clone();
            for (key, amount) in &right {
                *added.entry(key.clone()).or_default() += amount;
            }
            sum.add(&other);
            prop_assert_eq!(map_of(&sum), added);
            let mut rest = left.clone();
            for (key, amount) in &mut rest {
                *amount = amount.saturating_sub(other.get(key.as_str()));
            }
            rest.retain(|_, amount| *amount > 0);
            prop_assert_eq!(map_of(&of(&left).saturating_sub(&other)), rest);
            sum.subtract(&other);
            prop_assert_eq!(map_of(&sum), left);
        }
    }
}
