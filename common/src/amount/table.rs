//! Amounts by resource key as people read and write them: `cpu` in cores and `gpu` in GPUs, both with a fraction, `memory`
//! and `storage` with a unit, all others as whole numbers. Formats that people do not read have the keys and units of [`Amounts`](super::Amounts).
//!
//! `mgpu` and `mcpu` (thousandths of a GPU and of a core), `memory_mb` and `storage_mb` (10^6 bytes) are read as well. They are written only for
//! amounts that the usual spelling cannot hold.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::memory::MEMORY_UNITS;
use super::{
    BYTES_PER_MEGABYTE, MCPU, MEMORY_MB, MGPU, ResourceKey, STORAGE_MB, ceil_thousandths, cores_of,
    megabytes_up, parse_memory,
};
use crate::error_code::ErrorCode;
use crate::field_error::FieldError;

/// Keys with a unit of their own: as people write them, and as amounts are counted.
const KEYS: [(&str, &str); 4] = [
    ("gpu", MGPU),
    ("cpu", MCPU),
    ("memory", MEMORY_MB),
    ("storage", STORAGE_MB),
];

/// Names that other systems, or the fields of a step, have for a key.
const MISTAKEN: [(&str, &str); 15] = [
    ("cpus", "cpu"),
    ("cpu_count", "cpu"),
    ("cores", "cpu"),
    ("vcpu", "cpu"),
    ("vcpus", "cpu"),
    ("gpus", "gpu"),
    ("gpu_count", "gpu"),
    ("nvidia.com/gpu", "gpu"),
    ("mem", "memory"),
    ("ram", "memory"),
    ("memory_gb", "memory"),
    ("memory_bytes", "memory"),
    ("disk", "storage"),
    ("storage_gb", "storage"),
    ("ephemeral-storage", "storage"),
];

/// Thousandths below which a binary fraction of cores or GPUs is read back as the same.
const MOST_THOUSANDTHS: u64 = 1_000_000_000;

/// Most bytes that a text can have.
const MOST_BYTES: u128 = 1 << 63;

/// The name of a resource key as people write it: `cpu` for `mcpu`.
pub fn key_name(key: &str) -> &str {
    let known = KEYS.iter().find(|(_, inner)| *inner == key);
    known.map_or(key, |(name, _)| name)
}

/// The key that was meant by a name that is none.
pub fn meant_key(name: &str) -> Option<&'static str> {
    let known = MISTAKEN.iter().find(|(mistaken, _)| *mistaken == name);
    known.map(|(_, key)| *key)
}

/// An amount as it is written.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(untagged, rename = "Amount")
)]
pub enum DocumentAmount {
    /// A whole number.
    Count(u64),
    /// A number of cores or GPUs with a fraction.
    Decimal(f64),
    /// A number of bytes with a unit, such as `64GiB`.
    Bytes(String),
}

impl DocumentAmount {
    /// Writes an amount, and the name of its key.
    pub fn of(key: &str, amount: u64) -> (&str, Self) {
        match key {
            MCPU | MGPU if amount.is_multiple_of(1000) => {
                (key_name(key), Self::Count(amount / 1000))
            }
            MCPU | MGPU if amount < MOST_THOUSANDTHS => {
                (key_name(key), Self::Decimal(cores_of(amount)))
            }
            MEMORY_MB | STORAGE_MB => match bytes_text(amount) {
                Some(text) => (key_name(key), Self::Bytes(text)),
                None => (key, Self::Count(amount)),
            },
            _ => (key, Self::Count(amount)),
        }
    }

    /// The amount in the unit in which it is counted, and that key; an amount that cannot be read is 0.
    pub fn counted(&self, name: &str) -> (String, u64) {
        match self.clone().read(name) {
            Ok((key, amount)) => (key.into(), amount),
            Err(_) => (name.to_owned(), 0),
        }
    }

    /// Reads an amount of a key. A number of bytes without a unit is an amount of a key that no host has; whoever accepts
    /// documents refuses that key.
    ///
    /// # Errors
    /// The key or the amount is not well-formed.
    pub fn read(self, name: &str) -> Result<(ResourceKey, u64), FieldError> {
        let known = KEYS.iter().find(|(written, _)| *written == name);
        let inner = known.map_or(name, |(_, inner)| inner);
        let (key, amount) = match (inner, self) {
            (MCPU | MGPU, Self::Count(count)) if known.is_some() => {
                let amount = count.checked_mul(1000);
                (inner, amount.ok_or("more than can be counted"))
            }
            (MCPU | MGPU, Self::Decimal(number)) if known.is_some() => (inner, thousandths(number)),
            (MEMORY_MB | STORAGE_MB, Self::Bytes(text)) => {
                let bytes = parse_memory(&text);
                let bytes =
                    bytes.map_err(|e| FieldError::new(ErrorCode::InvalidMemory, name, e))?;
                (inner, Ok(megabytes_up(bytes)))
            }
            (_, Self::Count(amount)) => (name, Ok(amount)),
            (MCPU | MGPU, Self::Bytes(_)) if known.is_some() => (inner, Err(NO_NUMBER)),
            (_, Self::Decimal(_) | Self::Bytes(_)) => (name, Err("write a whole number")),
        };
        let refused = |e: &dyn fmt::Display| FieldError::new(ErrorCode::InvalidAmount, name, e);
        let amount = amount.map_err(|why| refused(&why))?;
        let key = ResourceKey::new(key);
        let key = key.map_err(|e| FieldError::new(ErrorCode::InvalidResourceKey, name, e))?;
        Ok((key, amount))
    }
}

/// Advice for an amount that is not a number.
const NO_NUMBER: &str = "write a number up to 1000000000, in steps of 0.001";

fn thousandths(number: f64) -> Result<u64, &'static str> {
    let is_number = (0.0..=1e9).contains(&number);
    let count = is_number.then(|| ceil_thousandths(number));
    count.ok_or(NO_NUMBER)
}

/// Formats units of 10^6 bytes in the largest unit from which they are read back.
pub fn bytes_text(megabytes: u64) -> Option<String> {
    let per_megabyte = u128::from(BYTES_PER_MEGABYTE);
    let bytes = u128::from(megabytes) * per_megabyte;
    if bytes > MOST_BYTES {
        return None;
    }
    let count = |scale: u64| bytes / u128::from(scale);
    let is_read_back = |scale: u64| {
        let read = count(scale) * u128::from(scale);
        read > 0 && read.div_ceil(per_megabyte) == u128::from(megabytes)
    };
    let mut units = MEMORY_UNITS.iter();
    let unit = units.find(|(_, scale)| is_read_back(*scale));
    Some(unit.map_or_else(
        || "0B".to_owned(),
        |(unit, scale)| format!("{}{unit}", count(*scale)),
    ))
}

impl Serialize for DocumentAmount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Decimal(number) => serializer.serialize_f64(*number),
            Self::Bytes(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for DocumentAmount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AmountVisitor)
    }
}

struct AmountVisitor;

impl Visitor<'_> for AmountVisitor {
    type Value = DocumentAmount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or an amount with a unit such as `64GiB`")
    }

    fn visit_u64<E: Error>(self, count: u64) -> Result<DocumentAmount, E> {
        Ok(DocumentAmount::Count(count))
    }

    fn visit_i64<E: Error>(self, count: i64) -> Result<DocumentAmount, E> {
        let below_zero = || E::custom(format_args!("{count} is below zero: write 0 or more"));
        let count = u64::try_from(count).map_err(|_| below_zero())?;
        Ok(DocumentAmount::Count(count))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<DocumentAmount, E> {
        Ok(DocumentAmount::Decimal(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<DocumentAmount, E> {
        Ok(DocumentAmount::Bytes(text.to_owned()))
    }
}

/// Serializes a table of amounts.
///
/// # Errors
/// Of the serializer.
pub fn serialize<S: Serializer>(
    table: &BTreeMap<ResourceKey, u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let pairs = table.iter().map(|(key, amount)| (key, *amount));
    serialize_pairs(table.len(), pairs, serializer)
}

/// Serializes keys and amounts, of which there are `count`.
pub(super) fn serialize_pairs<'a, S: Serializer>(
    count: usize,
    pairs: impl Iterator<Item = (&'a ResourceKey, u64)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let for_people = serializer.is_human_readable();
    let mut map = serializer.serialize_map(Some(count))?;
    for (key, amount) in pairs {
        match for_people {
            true => {
                let (name, amount) = DocumentAmount::of(key.as_str(), amount);
                map.serialize_entry(name, &amount)?;
            }
            false => map.serialize_entry(key, &amount)?,
        }
    }
    map.end()
}

/// Amounts by resource key. An absent key counts as zero.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[schemars(rename = "Amounts")]
pub(super) struct AmountTable(#[expect(dead_code)] BTreeMap<String, DocumentAmount>);

/// Deserializes a table of amounts.
///
/// # Errors
/// A key or an amount is not well-formed, or two spellings of one key are there.
pub fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<ResourceKey, u64>, D::Error> {
    if !deserializer.is_human_readable() {
        return BTreeMap::deserialize(deserializer);
    }
    deserializer.deserialize_map(TableVisitor)
}

struct TableVisitor;

impl<'de> Visitor<'de> for TableVisitor {
    type Value = BTreeMap<ResourceKey, u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("amounts by resource key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut table = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            let amount: DocumentAmount = map.next_value()?;
            let (key, amount) = amount.read(&name).map_err(FieldError::into_serde)?;
            let other = key_name(key.as_str()).to_owned();
            if table.insert(key, amount).is_some() {
                let why = format!("`{name}` and `{other}` are one key: write it once");
                let twice = FieldError::new(ErrorCode::InvalidBody, &*name, why);
                return Err(twice.into_serde());
            }
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Amounts;
    use alloc::string::{String, ToString};

    fn read(json: &str) -> Result<Amounts, String> {
        serde_json::from_str(json).map_err(|e| e.to_string())
    }

    #[test]
    fn amounts_are_read_in_every_spelling_and_written_in_one() {
        for (json, written) in [
            (r#"{"cpu":8}"#, r#"{"cpu":8}"#),
            (r#"{"cpu":0.5}"#, r#"{"cpu":0.5}"#),
            (r#"{"mcpu":2500}"#, r#"{"cpu":2.5}"#),
            (r#"{"memory":"64GiB"}"#, r#"{"memory":"64GiB"}"#),
            (r#"{"memory":"64Gi"}"#, r#"{"memory":"64GiB"}"#),
            (r#"{"memory":"64G"}"#, r#"{"memory":"64GB"}"#),
            (r#"{"memory_mb":20480}"#, r#"{"memory":"19531MiB"}"#),
            (r#"{"storage_mb":1000000}"#, r#"{"storage":"1TB"}"#),
            (r#"{"gpu":4,"seats":2}"#, r#"{"gpu":4,"seats":2}"#),
            (r#"{"gpu":2.5}"#, r#"{"gpu":2.5}"#),
            (r#"{"mgpu":428}"#, r#"{"gpu":0.428}"#),
            // Keys of an older store that bound nobody.
            (r#"{"memory":500}"#, r#"{"memory":500}"#),
        ] {
            let amounts = read(json).unwrap();
            assert_eq!(serde_json::to_string(&amounts).unwrap(), written);
        }
    }

    #[test]
    fn wrong_amounts_are_refused_by_name() {
        for (json, why) in [
            (r#"{"memory":"64gib"}"#, "such as `64GiB`"),
            (r#"{"seats":0.5}"#, "write a whole number"),
            (
                r#"{"gpu":"4"}"#,
                "write a number up to 1000000000, in steps of 0.001",
            ),
            (
                r#"{"cpu":1e300}"#,
                "write a number up to 1000000000, in steps of 0.001",
            ),
            (r#"{"gpu":1,"mgpu":1000}"#, "are one key"),
            (r#"{"cpu":1,"mcpu":1000}"#, "are one key"),
            (r#"{"cpu":-1}"#, "below zero"),
        ] {
            let refused = read(json).unwrap_err();
            assert!(refused.contains(why), "{json}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(gpu: u64, cpu: u64, memory: u64, seats: u64) {
            let amounts = Amounts::new()
                .with(super::MGPU, gpu)
                .with(super::MCPU, cpu)
                .with(super::MEMORY_MB, memory)
                .with("seats", seats);
            let json = serde_json::to_string(&amounts).unwrap();
            prop_assert_eq!(read(&json).unwrap(), amounts);
        }

        #[test]
        fn usual_amounts_have_the_usual_keys(cpu in 0u64..1 << 40, memory in 0u64..1 << 40) {
            let amounts = Amounts::new().with(super::MCPU, cpu).with(super::MEMORY_MB, memory);
            let json = serde_json::to_string(&amounts).unwrap();
            prop_assert_eq!(read(&json).unwrap(), amounts);
            prop_assert!(!json.contains('_') && (cpu >= 1_000_000_000 || !json.contains("mcpu")));
        }
    }
}
