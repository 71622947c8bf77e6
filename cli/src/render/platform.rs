//! Renders platforms: the hosts and GPUs of each kind that a pool has.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_common::amount::MGPU;
use sluice_common::api::{NodeView, PlatformUse, PlatformView, PoolView};
use sluice_common::carving::MigLayout;
use sluice_common::id::ValidationName;
use sluice_common::platform::spec::HardwareSelector;
use sluice_common::template::Template;

use super::amounts;
use super::document::{self, ApplyDocument};
use super::listed::Listed;
use super::safe;
use super::sections::{Sections, titled};
use super::table::{Cell, Column, Table};
use crate::out::Out;

/// A platform of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolPlatform {
    pub(crate) name: String,
    pub(crate) pool: String,
    #[serde(flatten)]
    has: PlatformUse,
    /// Description in the declaration; empty if it is not declared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) description: String,
    #[serde(default, skip_serializing_if = "says_nothing")]
    pub(super) selector: HardwareSelector,
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub(super) overrides: Option<Box<Template>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mig: Option<MigLayout>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) validations: Vec<ValidationName>,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub(super) taint: bool,
}

fn says_nothing(selector: &HardwareSelector) -> bool {
    *selector == HardwareSelector::default()
}

impl PoolPlatform {
    /// Returns the platforms of a pool, sorted by name.
    pub(crate) fn of(pool: PoolView) -> impl Iterator<Item = Self> {
        let name = pool.name;
        let platforms = pool.platforms.into_iter();
        let declared = pool.declared_platforms;
        platforms.map(move |(platform, has)| {
            let terms = declared.iter().find(|it| it.id.name.as_str() == platform);
            let terms = terms.map(|it| it.spec.clone());
            Self {
                name: platform,
                pool: name.clone(),
                has,
                description: terms
                    .as_ref()
                    .map_or_else(String::new, |it| it.description.clone()),
                selector: terms
                    .as_ref()
                    .map(|it| it.selector.clone())
                    .unwrap_or_default(),
                overrides: terms.as_ref().and_then(|it| it.overrides.clone()),
                mig: terms.as_ref().and_then(|it| it.mig.clone()),
                taint: terms.as_ref().is_some_and(|it| it.taint),
                validations: terms.map(|it| it.validations).unwrap_or_default(),
            }
        })
    }
}

impl Listed for PoolPlatform {
    const KIND: &'static str = "platform";
    const COLUMNS: &'static [Column] = &[
        Column::new("POOL", 9).text(),
        Column::new("PLATFORM", 20).text(),
        Column::new("NODES", 5),
        Column::new("GPU TOTAL", 6),
        Column::new("GPU USED", 7),
        Column::new("GPU FREE", 8),
        Column::new("DEFAULT", 4),
        Column::new("DECLARED", 3).wide(),
    ];

    fn document(&self) -> Option<ApplyDocument> {
        Some(document::platform(self))
    }

    fn name(&self) -> String {
        format!("{}/{}", self.pool, self.name)
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let PlatformUse {
            nodes,
            gpus,
            used,
            free,
            declared,
            default,
        } = self.has;
        let names = [&self.pool, &self.name].map(|name| Cell::from(safe(name)));
        let numbers = [nodes, gpus, used, free].map(|n| Cell::from(n.to_string()));
        let marks =
            [default, declared].map(|it| Cell::from(if it { "yes" } else { "" }.to_owned()));
        names.into_iter().chain(numbers).chain(marks).collect()
    }
}

/// Renders all details of a platform; `nodes` are those of its pool.
pub(crate) fn describe(platform: &PlatformView, nodes: &[NodeView], out: Out) -> String {
    let mut text = Sections::default();
    text.field("Name", safe(&platform.name))
        .field("Pool", safe(&platform.pool))
        .optional("Description", said(&platform.description))
        .field(
            "Default",
            if platform.default {
                "yes, for steps that name no platform"
            } else {
                "no"
            },
        )
        .field(
            "GPUs",
            format!(
                "{} used, {} free of {}",
                platform.used, platform.free, platform.gpus
            ),
        );
    match &platform.selector {
        Some(selector) => text.section("Selector", |text| conditions(text, selector)),
        None => text.field(
            "Selector",
            "none: it is the platform of a GPU model, which no document declares",
        ),
    };
    let mig = platform.mig.as_ref().map(|mig| mig.sorted().change());
    let mig = mig.map(|change| format!("each GPU is {change} when it is idle"));
    text.optional("Slices", mig);
    let taint = "only steps that name this platform run on its hosts";
    text.optional("Taint", platform.taint.then_some(taint));
    if !platform.validations.is_empty() {
        let names = platform.validations.iter().map(|name| safe(name.as_str()));
        text.field("Validations", names.collect::<Vec<_>>().join(", "));
    }
    if let Some(template) = &platform.overrides {
        text.section("Override", |text| overridden(text, template));
    }
    if platform.nodes.is_empty() {
        text.field("Nodes", "none is of it");
    }
    text.finish() + &nodes_of(platform, nodes, out)
}

/// Renders its overrides of the pool's templates, field by field.
fn overridden(text: &mut Sections, template: &Template) {
    let fields = template.set_fields();
    if fields.is_empty() {
        text.line("nothing");
    }
    for field in fields {
        // An admin's variables for everybody are no secrets of a step.
        let own = field
            .strip_prefix("env.")
            .and_then(|name| template.env.get(name));
        let told = own.cloned().or_else(|| template.field_value(&field));
        let told = told.unwrap_or_default();
        text.field(&safe(&field), safe(&told));
    }
}

fn said(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| safe(text))
}

fn conditions(text: &mut Sections, selector: &HardwareSelector) {
    let Ok(Value::Object(conditions)) = serde_json::to_value(selector) else {
        return;
    };
    if conditions.is_empty() {
        text.line("all GPUs and hosts of the pool");
    }
    for (name, condition) in conditions {
        let condition = match condition {
            Value::String(text) => safe(&text),
            other => other.to_string(),
        };
        text.field(&name, condition);
    }
}

const NODES: &[Column] = &[
    Column::new("NODE", 20).text(),
    Column::new("STATE", 19),
    Column::new("GPUS", 9),
    Column::new("STEPS", 8),
];

fn nodes_of(platform: &PlatformView, nodes: &[NodeView], out: Out) -> String {
    let of_it = nodes
        .iter()
        .filter(|node| platform.nodes.contains(&node.name));
    let row = |node: &NodeView| {
        let (used, all) = (node.used.get(MGPU), node.capacity.get(MGPU));
        vec![
            safe(&node.name).into(),
            super::node::state(node),
            amounts::gpus_of(used, all).into(),
            node.steps.len().to_string().into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = of_it.map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => titled("Nodes", &Table::new(NODES, out).whole(&rows)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_a_row_for_each_platform() {
        let pool: PoolView = serde_json::from_value(serde_json::json!({
            "name": "p", "description": "", "nodes": 3, "nodes_ready": 3, "capacity": {}, "used": {}, "queued": 0,
            "running": 0, "platforms": {"h100": {"nodes": 2, "gpus": 16, "used": 5, "free": 11}, "cpu": {"nodes": 1,
            "gpus": 0, "used": 0}},
        }))
        .unwrap();
        let rows: Vec<PoolPlatform> = PoolPlatform::of(pool).collect();
        let names: Vec<String> = rows.iter().map(Listed::name).collect();
        assert_eq!(names, ["p/cpu", "p/h100"]);
        assert_eq!(rows[1].cells(Timestamp::UNIX_EPOCH).len(), 8);
        assert_eq!((rows[0].has.free, rows[1].has.free), (0, 11));
    }
}
