//! Fields that are named after a resource key, such as `memory: 2GiB`: the amount alone, spelled as in a
//! [`table`](super::table). For use with serde's `with`.

use alloc::format;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::table::DocumentAmount;
use crate::error_code::ErrorCode;
use crate::field_error::FieldError;

macro_rules! field {
    ($name:ident, $key:expr) => {
        /// A field of this name.
        pub(crate) mod $name {
            pub(crate) fn serialize<S: serde::Serializer>(
                amount: &u64,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                super::write($key, *amount, to)
            }

            pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
                from: D,
            ) -> Result<u64, D::Error> {
                super::read(stringify!($name), $key, from)
            }
        }
    };
}

field!(cpu, crate::amount::MCPU);
field!(memory, crate::amount::MEMORY_MB);
field!(storage, crate::amount::STORAGE_MB);

fn write<S: Serializer>(key: &str, amount: u64, to: S) -> Result<S::Ok, S::Error> {
    let (_, amount) = DocumentAmount::of(key, amount);
    amount.serialize(to)
}

fn read<'de, D: Deserializer<'de>>(name: &str, key: &str, from: D) -> Result<u64, D::Error> {
    let written = DocumentAmount::deserialize(from)?;
    amount(name, key, written).map_err(FieldError::into_serde)
}

/// Reads the amount of a field that is named after a key.
///
/// # Errors
/// It is not well-formed, or has no unit.
pub fn amount(name: &str, key: &str, written: DocumentAmount) -> Result<u64, FieldError> {
    let (read, amount) = written.read(name)?;
    // Nothing needs no unit.
    if read.as_str() == key || amount == 0 {
        return Ok(amount);
    }
    let why = format!("{amount} has no unit: write such as `{amount}GiB`");
    Err(FieldError::new(ErrorCode::InvalidAmount, name, why))
}
