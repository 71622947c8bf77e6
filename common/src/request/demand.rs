//! Amounts of custom resource keys as ZenML's newer `ResourceSettings` have them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;

const FIELD: &str = "resources.resources";

/// `ResourceSettings.resources` of ZenML: amounts of custom resource keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(
    untagged,
    expecting = "expected the name of a resource, a map such as {\"licence\": 2}, or a list of demands with `name` and `quantity`"
)]
pub enum ResourceDemands {
    /// One of a resource.
    Name(String),
    /// Amounts by name.
    Amounts(BTreeMap<String, u64>),
    /// One demand alone.
    Demand(ResourceDemand),
    /// Demands, whose amounts are added.
    Demands(Vec<ResourceDemand>),
}

/// A demand of ZenML, as far as it is an amount by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResourceDemand {
    /// Amount of the resource.
    pub quantity: u64,
    /// Name of the resource.
    pub name: Option<String>,
    /// Kind of the resource; refused.
    pub kind: Option<String>,
    /// Unit of the amount; refused.
    pub unit: Option<String>,
    /// Class of the resource; refused.
    #[serde(alias = "class")]
    pub class_name: Option<String>,
    /// Selection by fields; refused.
    pub resource_selector: Option<BTreeMap<String, String>>,
    /// Selection by fields of the class; refused.
    pub class_selector: Option<BTreeMap<String, String>>,
}

impl ResourceDemands {
    /// Names and amounts.
    ///
    /// # Errors
    /// A demand says more than that, or has no name.
    pub(super) fn amounts(self) -> Result<Vec<(String, u64)>, FieldError> {
        match self {
            Self::Name(name) => Ok(Vec::from([(name, 1)])),
            Self::Amounts(amounts) => Ok(amounts.into_iter().collect()),
            Self::Demand(demand) => Ok(Vec::from([demand.amount()?])),
            Self::Demands(demands) => demands.into_iter().map(ResourceDemand::amount).collect(),
        }
    }
}

impl ResourceDemand {
    fn amount(self) -> Result<(String, u64), FieldError> {
        let others = [
            ("kind", self.kind.is_some()),
            ("unit", self.unit.is_some()),
            ("class", self.class_name.is_some()),
            ("resource_selector", self.resource_selector.is_some()),
            ("class_selector", self.class_selector.is_some()),
        ];
        let refused = others.into_iter().find(|(_, is_set)| *is_set);
        match (refused, self.name) {
            (None, Some(name)) => Ok((name, self.quantity)),
            (Some((field, _)), _) => Err(FieldError::new(
                ErrorCode::UnsupportedField,
                FIELD,
                format!(
                    "a demand has `{field}`, and only `name` and `quantity` are read here: write `gpu_count`, `cpu_count`, \
                     `memory`, `gpu_class`, or the name of the pool's resource"
                ),
            )),
            (None, None) => Err(FieldError::new(
                ErrorCode::InvalidResourceKey,
                FIELD,
                "a demand has no name: write that of the pool's resource",
            )),
        }
    }
}
