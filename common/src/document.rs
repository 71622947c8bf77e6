//! Documents that hold an object's identity, spec and version as fields of one level. Unknown fields are rejected with
//! a list of all known ones, which serde's `flatten` cannot do.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::de::value::{MapDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};

use crate::document_text::parse_text;
use crate::field_error::FieldError;
use crate::id::PlatformName;

/// A spec flattened into one object with the identity and version of what it describes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct SpecDocument<N, T> {
    /// Fields that identify the object.
    #[serde(flatten)]
    pub id: N,
    /// Desired state of the object.
    #[serde(flatten)]
    pub spec: T,
    /// Version that the object must have for the change to apply; 0 requires that it does not exist or was never set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

impl<N, T> SpecDocument<N, T> {
    /// Makes a document without a required version.
    pub fn new(names: N, spec: T) -> Self {
        Self {
            id: names,
            spec,
            version: None,
        }
    }
}

/// Identity of an object: a struct of text fields.
pub trait DocumentId {
    /// Names of the fields, including `version` if a version may be required.
    const FIELDS: &'static [&'static str];
}

/// Identity of an object that belongs to no pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterObjectId {
    /// Name of the object.
    pub name: String,
}

impl DocumentId for ClusterObjectId {
    const FIELDS: &'static [&'static str] = &["name", VERSION];
}

/// Identity of an object within a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolObjectId {
    /// Name of the pool.
    pub pool: String,
    /// Name of the object.
    pub name: String,
}

impl DocumentId for PoolObjectId {
    const FIELDS: &'static [&'static str] = &["pool", "name", VERSION];
}

/// Identity of a policy: a subject in a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyId {
    /// Name of the pool.
    pub pool: String,
    /// The subject that the policy applies to.
    pub subject: String,
}

impl DocumentId for PolicyId {
    const FIELDS: &'static [&'static str] = &["pool", "subject", VERSION];
}

/// Identity of an object that exists once per cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SingletonId {}

impl DocumentId for SingletonId {
    const FIELDS: &'static [&'static str] = &[VERSION];
}

/// Identity of a platform in its pool's list, without a version of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlatformItemId {
    /// Name of the platform.
    #[serde(deserialize_with = "parse_text")]
    pub name: PlatformName,
}

impl DocumentId for PlatformItemId {
    const FIELDS: &'static [&'static str] = &["name"];
}

const VERSION: &str = "version";

impl<'de, N, T> Deserialize<'de> for SpecDocument<N, T>
where
    N: DocumentId + Deserialize<'de>,
    T: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(object: D) -> Result<Self, D::Error> {
        let mut apart = OtherFields {
            fields: N::FIELDS,
            names: Vec::new(),
            version: None,
        };
        let spec = located(SpecDeserializer {
            object,
            apart: &mut apart,
        })?;
        let names = apart.names.into_iter();
        Ok(Self {
            id: located(MapDeserializer::<_, D::Error>::new(names))?,
            spec,
            version: apart.version.flatten(),
        })
    }
}

/// Deserializes and adds the path to field errors. Documents are buffered before their kind is known, so outer
/// deserializers cannot tell the path.
fn located<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        match FieldError::from_serde(&error.to_string()) {
            Some(wrong) => wrong.below(&path).into_serde(),
            None => error,
        }
    })
}

/// Fields found outside the spec.
struct OtherFields {
    fields: &'static [&'static str],
    names: Vec<(&'static str, String)>,
    version: Option<Option<u64>>,
}

/// Deserializes only the spec's fields of an object and collects the others.
struct SpecDeserializer<'a, D> {
    object: D,
    apart: &'a mut OtherFields,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for SpecDeserializer<'_, D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        spec: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let Self { object, apart } = self;
        object.deserialize_map(SpecVisitor {
            visitor,
            spec,
            apart,
        })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, D::Error> {
        Err(D::Error::custom("a spec is a struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Passes the spec's fields on to the spec's visitor.
struct SpecVisitor<'a, V> {
    visitor: V,
    spec: &'static [&'static str],
    apart: &'a mut OtherFields,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for SpecVisitor<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let Self {
            visitor,
            spec,
            apart,
        } = self;
        visitor.visit_map(SpecMap { map, spec, apart })
    }
}

struct SpecMap<'a, A> {
    map: A,
    spec: &'static [&'static str],
    apart: &'a mut OtherFields,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for SpecMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            match self.apart.fields.iter().find(|field| **field == key) {
                Some(&VERSION) => {
                    let version = self.map.next_value()?;
                    if self.apart.version.replace(version).is_some() {
                        return Err(A::Error::duplicate_field(VERSION));
                    }
                }
                Some(name) => self.apart.names.push((name, self.map.next_value()?)),
                None if self.spec.contains(&key.as_str()) => {
                    let key: StringDeserializer<A::Error> = key.into_deserializer();
                    return seed.deserialize(key).map(Some);
                }
                None => {
                    let known = known(self.apart.fields, self.spec);
                    let why = format_args!("unknown field `{key}`, expected one of {known}");
                    return Err(A::Error::custom(why));
                }
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// All known fields in serde's format.
fn known(apart: &[&str], spec: &[&str]) -> String {
    let version = apart.iter().filter(|field| **field == VERSION);
    let names = apart.iter().filter(|field| **field != VERSION);
    let all = names.chain(spec).chain(version);
    let all: Vec<String> = all.map(|field| format!("`{field}`")).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use crate::api::PutDocument;
    use crate::error_code::ErrorCode;
    use crate::request::FieldError;
    use alloc::string::{String, ToString};

    fn wrong(json: &str) -> String {
        let read: Result<PutDocument, _> = serde_json::from_str(json);
        read.unwrap_err().to_string()
    }

    #[test]
    fn a_document_is_read_as_it_is_written() {
        let json = r#"{"kind":"platform","pool":"p","name":"n","description":"d","selector":{},"version":3}"#;
        let document: PutDocument = serde_json::from_str(json).unwrap();
        let PutDocument::Platform(it) = &document else {
            panic!("it is something else: {document:?}")
        };
        assert_eq!((it.id.pool.as_str(), it.version), ("p", Some(3)));
        assert_eq!(it.spec.description, "d");
        let again = serde_json::to_string(&document).unwrap();
        let again: PutDocument = serde_json::from_str(&again).unwrap();
        assert_eq!(again, document);
    }

    #[test]
    fn what_is_no_field_and_what_is_missing_is_told_with_what_there_is() {
        for (json, told) in [
            (
                r#"{"kind":"policy","pool":"p","subject":"s","prio":1}"#,
                "unknown field `prio`, expected one of `pool`, `subject`, `priority`, `reserved`, `limit`, `weight`, `version`",
            ),
            (r#"{"kind":"policy","pool":"p"}"#, "missing field `subject`"),
            (
                r#"{"kind":"cluster","version":1,"version":2}"#,
                "duplicate field `version`",
            ),
            (
                r#"{"kind":"pool","name":"p","defaults":{"retry":1}}"#,
                "unknown field `retry`, expected one of `timeout`",
            ),
            (
                r#"{"kind":"pool","name":5}"#,
                "invalid type: integer `5`, expected a string",
            ),
        ] {
            assert!(wrong(json).starts_with(told), "{}", wrong(json));
        }
    }

    #[test]
    fn a_mistake_in_a_word_keeps_its_code_and_is_found() {
        for (fields, code, field) in [
            (
                r#""min_runtime":"soon""#,
                ErrorCode::InvalidDuration,
                "min_runtime",
            ),
            (
                r#""max":{"timeout":"1"}"#,
                ErrorCode::InvalidDuration,
                "max.timeout",
            ),
            (
                r#""require":["kill","fly"]"#,
                ErrorCode::InvalidCapability,
                "require[1]",
            ),
            (
                r#""templates":["no good"]"#,
                ErrorCode::InvalidTemplate,
                "templates[0]",
            ),
            (
                r#""platforms":[{"name":"No Good"}]"#,
                ErrorCode::InvalidBody,
                "platforms[0].name",
            ),
        ] {
            let words = wrong(&alloc::format!(r#"{{"kind":"pool",{fields},"name":"p"}}"#));
            let error = FieldError::from_serde(&words).unwrap();
            assert_eq!((error.code, error.field.as_str()), (code, field), "{words}");
        }
    }
}
