//! The short view of steps: only the fields that the caller names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use sluice_common::api::StepView;

use super::super::error::ApiError;
use super::super::params;

/// All fields of a step.
static KNOWN: LazyLock<Vec<String>> = LazyLock::new(|| {
    let schema = schemars::schema_for!(StepView).to_value();
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields.map(|(name, _)| name.clone()).collect()
});

/// Fields to show; all of them if `None`.
#[derive(Clone, Debug, Default)]
pub(super) struct StepFields(Option<Vec<String>>);

impl StepFields {
    /// Parses names separated by commas.
    pub(super) fn read(text: Option<&str>) -> Result<Self, ApiError> {
        let Some(text) = text else {
            return Ok(Self(None));
        };
        let mut names: Vec<String> = text.split(',').map(str::to_owned).collect();
        let mut named = BTreeSet::new();
        names.retain(|name| named.insert(name.clone()));
        let unknown = names.iter().find(|name| !KNOWN.contains(name));
        if let Some(name) = unknown {
            let known = KNOWN.iter().map(String::as_str);
            let hint = params::hint(name, known, |all| {
                format!("write some of {}", all.join(","))
            });
            let shown = params::shown(name);
            return Err(params::invalid(
                "fields",
                format!("a step has no field `{shown}`: {hint}"),
            ));
        }
        Ok(Self(Some(names)))
    }

    /// Returns a step to be written with these fields alone, in the order in which they were named.
    pub(super) fn of<'a>(&'a self, step: &'a StepView) -> PartialStep<'a> {
        let names = self.0.as_deref();
        PartialStep { step, names }
    }
}

/// A step with some of its fields, or all of them if `names` is `None`.
pub(super) struct PartialStep<'a> {
    step: &'a StepView,
    names: Option<&'a [String]>,
}

impl Serialize for PartialStep<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(names) = self.names else {
            return self.step.serialize(serializer);
        };
        let whole = to_raw_value(self.step).map_err(S::Error::custom)?;
        let all: BTreeMap<&str, &RawValue> =
            serde_json::from_str(whole.get()).map_err(S::Error::custom)?;
        let shown = names
            .iter()
            .filter_map(|name| all.get_key_value(name.as_str()));
        serializer.collect_map(shown)
    }
}
