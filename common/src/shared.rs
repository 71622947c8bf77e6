//! A value that many steps have in common, in as much memory as a pointer.

#[cfg(feature = "schema")]
use alloc::borrow::Cow;
use alloc::sync::Arc;
use core::fmt;
use core::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A type with a default that outlives all who read it.
pub trait SharedDefault: Clone + Default + PartialEq + 'static {
    /// The default, for as long as the program runs.
    fn default_ref() -> &'static Self;
}

/// A value on the heap that is copied when it is changed, or nothing if it is the default of its type. It reads, compares,
/// and is written, as the value itself.
#[derive(Clone)]
pub struct Shared<T>(Option<Arc<T>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: SharedDefault> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self((value != *T::default_ref()).then(|| Arc::new(value)))
    }
}

impl<T> From<Arc<T>> for Shared<T> {
    fn from(value: Arc<T>) -> Self {
        Self(Some(value))
    }
}

impl<T> Shared<T> {
    /// The value with its owners; `None` if it is the default.
    pub fn as_arc(&self) -> Option<&Arc<T>> {
        self.0.as_ref()
    }

    /// Whether it takes no memory beside itself, because it is the default.
    pub fn is_nothing(&self) -> bool {
        self.0.is_none()
    }
}

impl<T: SharedDefault> Shared<T> {
    /// The value itself.
    pub fn into_inner(self) -> T {
        self.0.map_or_else(T::default, Arc::unwrap_or_clone)
    }
}

impl<T: SharedDefault> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::default_ref())
    }
}

impl<T: SharedDefault> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl<T: SharedDefault> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
            _ => **self == **other,
        }
    }
}

impl<T: SharedDefault + Eq> Eq for Shared<T> {}

impl<T: SharedDefault + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: SharedDefault + Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: SharedDefault + Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

/// Reads and writes a value that several own, as the value itself.
pub mod arc {
    use alloc::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the value.
    ///
    /// # Errors
    /// As for the value itself.
    pub fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (**value).serialize(serializer)
    }

    /// Reads a value of which nobody else has a part yet.
    ///
    /// # Errors
    /// As for the value itself.
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

#[cfg(feature = "schema")]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Shared<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::Shared;
    use crate::probe::Probes;
    use crate::request::ResourceSettings;
    use crate::streams::StepStreams;

    #[test]
    fn a_default_takes_no_memory_and_is_written_as_the_value_itself() {
        let written = |json: &str| serde_json::from_str::<Shared<ResourceSettings>>(json);
        let nothing = written("{}").unwrap();
        assert!(nothing.is_nothing());
        assert_eq!(nothing, Shared::default());
        assert_eq!(serde_json::to_string(&nothing).unwrap(), "{}");
        let mut some = written(r#"{"gpu_count":2}"#).unwrap();
        assert_eq!(some.gpu_count, Some(2));
        assert_eq!(serde_json::to_string(&some).unwrap(), r#"{"gpu_count":2}"#);
        some.gpu_count = None;
        assert_eq!(some, nothing, "it compares as the value, not by its place");
        assert!(written(r#"{"gpus":2}"#).is_err());
    }

    #[test]
    fn the_shared_defaults_are_those_of_the_types() {
        assert_eq!(
            *Shared::<ResourceSettings>::default(),
            ResourceSettings::default()
        );
        assert_eq!(*Shared::<Probes>::default(), Probes::default());
        assert_eq!(*Shared::<StepStreams>::default(), StepStreams::default());
    }
}
