//! Whether and how far steps of a pool are preempted by steps of a higher policy priority, as documents write it: `on`,
//! `off`, `unlimited` or `{budget: 5%}`.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Formatter};

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Percent of a pool's time that `on` allows preemption by priority to lose.
const DEFAULT_PERCENT: u8 = 1;

/// Whether steps of a pool are preempted by priority. Reserved shares are reclaimed either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityPreemption {
    /// Priority decides only who starts first.
    Off,
    /// Preemption by priority may lose work up to this percentage, 1 to 100, of the pool's GPU time (core time for steps
    /// without GPUs) in 24 hours.
    Budget(u8),
    /// Preemption by priority may lose any amount of work.
    Unlimited,
}

impl Default for PriorityPreemption {
    fn default() -> Self {
        Self::Budget(DEFAULT_PERCENT)
    }
}

impl PriorityPreemption {
    /// Whether this is what a pool has that says nothing.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The budget of a pool in a document.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetDocument {
    budget: String,
}

impl BudgetDocument {
    fn percent<E: Error>(&self) -> Result<u8, E> {
        let digits = self.budget.strip_suffix('%').unwrap_or_default();
        let percent = digits.parse().ok();
        percent.filter(|it| (1..=100).contains(it)).ok_or_else(|| {
            let found = &self.budget;
            E::custom(format!(
                "`budget` is `{found}`: write a whole percentage from `1%` to `100%`"
            ))
        })
    }
}

impl Serialize for PriorityPreemption {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_bool(false),
            Self::Unlimited => serializer.serialize_str("unlimited"),
            it if it.is_default() => serializer.serialize_bool(true),
            Self::Budget(percent) => BudgetDocument {
                budget: format!("{percent}%"),
            }
            .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PriorityPreemption {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PriorityPreemptionVisitor)
    }
}

struct PriorityPreemptionVisitor;

impl<'de> Visitor<'de> for PriorityPreemptionVisitor {
    type Value = PriorityPreemption;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("`on`, `off`, `unlimited` or `{budget: 5%}`")
    }

    /// YAML reads `on` and `off` as booleans.
    fn visit_bool<E: Error>(self, is_on: bool) -> Result<Self::Value, E> {
        Ok(match is_on {
            true => PriorityPreemption::default(),
            false => PriorityPreemption::Off,
        })
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
        match word {
            "on" => self.visit_bool(true),
            "off" => self.visit_bool(false),
            "unlimited" => Ok(PriorityPreemption::Unlimited),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let document = BudgetDocument::deserialize(MapAccessDeserializer::new(map))?;
        document.percent().map(PriorityPreemption::Budget)
    }
}

/// The forms of the value, for the schema.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what the visitor reads")]
pub(crate) enum PriorityPreemptionValue {
    Switch(bool),
    Word(PriorityPreemptionName),
    Table { budget: String },
}

#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes what the visitor reads")]
pub(crate) enum PriorityPreemptionName {
    Unlimited,
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for PriorityPreemption {
    fn schema_name() -> alloc::borrow::Cow<'static, str> {
        "PriorityPreemption".into()
    }

    fn json_schema(schemas: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemas.subschema_for::<PriorityPreemptionValue>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use serde_json::{from_str, to_string};

    #[test]
    fn each_form_reads_back_the_same() {
        for (text, expected) in [
            ("true", PriorityPreemption::Budget(1)),
            ("false", PriorityPreemption::Off),
            ("\"unlimited\"", PriorityPreemption::Unlimited),
            ("{\"budget\":\"5%\"}", PriorityPreemption::Budget(5)),
            ("{\"budget\":\"100%\"}", PriorityPreemption::Budget(100)),
        ] {
            let read: PriorityPreemption = from_str(text).unwrap();
            assert_eq!(read, expected);
            assert_eq!(to_string(&read).unwrap(), text);
        }
        let on: PriorityPreemption = from_str("{\"budget\":\"1%\"}").unwrap();
        assert!(on.is_default());
    }

    #[test]
    fn other_values_are_refused_with_the_forms_that_are_read() {
        for (text, part) in [
            ("5", "`on`, `off`, `unlimited` or `{budget: 5%}`"),
            ("\"sometimes\"", "`unlimited` or `{budget: 5%}`"),
            (
                "{\"budget\":\"5\"}",
                "`budget` is `5`: write a whole percentage",
            ),
            ("{\"budget\":\"0%\"}", "from `1%` to `100%`"),
            ("{\"budget\":\"101%\"}", "from `1%` to `100%`"),
            ("{\"limit\":\"5%\"}", "unknown field `limit`"),
            ("{}", "missing field `budget`"),
        ] {
            let refused = from_str::<PriorityPreemption>(text).unwrap_err();
            assert!(refused.to_string().contains(part), "{text}: {refused}");
        }
    }
}
