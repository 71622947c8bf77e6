//! Configuration of OSMO in JSON or YAML: pools with their platforms, pod templates and resource validations, each a map by
//! name. `osmo/pod_template.rs` reads a template, `osmo/assertion.rs` a rule in its three-field form.
//!
//! A pod template that several platforms name is written into each of them, with the variables of that platform; one that a
//! pool names becomes a template of ours.

mod assertion;
mod pod_template;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fields::{ForeignFields, Refusal};
use super::translation::{Translation, TranslationItem};
use crate::render::safe;
pub(crate) use assertion::translate as translate_assertions;
use pod_template::{ForeignTemplate, Variables};

const TOOL: &str = "OSMO";

/// Groups of configurations.
pub(crate) const POOLS: &str = "pools";
pub(crate) const TEMPLATES: &str = "pod_templates";
pub(crate) const VALIDATIONS: &str = "resource_validations";

/// Spellings of each group: of the API, and of the Helm chart.
const GROUPS: [(&str, &[&str]); 3] = [
    (POOLS, &[POOLS]),
    (TEMPLATES, &[TEMPLATES, "podTemplates"]),
    (VALIDATIONS, &[VALIDATIONS, "resourceValidations"]),
];

/// Fields that OSMO fills in itself.
const FILLED: [&str; 9] = [
    "status",
    "download_type",
    "last_heartbeat",
    "parsed_resource_validations",
    "parsed_pod_template",
    "parsed_pod_template_for_accounting",
    "parsed_group_templates",
    "labels",
    "tolerations",
];

const POOL_REFUSALS: &[Refusal] = &[
    (
        "resources",
        "a pool has hosts of its own; shares are those of subjects in it: write `reserved`, `limit` and `weight` of policies, and remove it",
    ),
    (
        "topology_keys",
        "levels are those of the cluster: write `kind: topology`, and remove it",
    ),
    (
        "default_exit_actions",
        "a failed step starts again by `retries`, whatever its exit code: write `defaults: {retries: 2}` of the pool, and remove it",
    ),
    (
        "common_group_templates",
        "there is no Kubernetes below: remove it",
    ),
];

/// Whether a document has the shape of OSMO's.
pub(super) fn is_one(fields: &Map<String, Value>) -> bool {
    let has_group = |fields: &Map<String, Value>| {
        let mut names = GROUPS.iter().flat_map(|(_, names)| names.iter());
        names.any(|name| fields.get(*name).is_some_and(Value::is_object))
    };
    let is_chart = chart(fields).is_some_and(has_group);
    !fields.contains_key("kind") && (has_group(fields) || is_chart)
}

/// Returns the configuration in the values of OSMO's Helm chart.
fn chart(fields: &Map<String, Value>) -> Option<&Map<String, Value>> {
    fields.get("services")?.get("configs")?.as_object()
}

pub(crate) fn translate(fields: Map<String, Value>) -> Result<Translation, String> {
    let mut translation = Translation::default();
    let fields = match chart(&fields) {
        None => fields,
        Some(configs) => {
            let note = "services: of the values of the chart only `services.configs` is read";
            translation.notes.push(note.to_owned());
            configs.clone()
        }
    };
    let mut file = ForeignFields::new(TOOL, fields);
    file.flag("enabled")?;
    let mut groups = Vec::new();
    for (_, names) in GROUPS {
        let mut found = Vec::new();
        for name in names {
            found.extend(file.take_map(name)?);
        }
        groups.push(found);
    }
    file.end()?;
    let mut groups = groups.into_iter();
    let mut next = || groups.next().unwrap_or_default();
    let (pools, templates, validations) = (next(), next(), next());
    for (name, rules) in validations {
        let assertions = assertion::all(&name, rules)?;
        translation.add(
            "validation",
            [("name", name.into()), ("assertions", assertions)],
        );
    }
    let templates = read_templates(templates, &mut translation)?;
    if pools.is_empty() {
        for (name, template) in &templates {
            if template.selects() {
                let way = "a template does not choose hosts: apply it in one file with the pools whose platforms name it";
                return Err(format!("{TEMPLATES}.{}.spec: {way}", safe(name)));
            }
            translation.template(name, template, &Variables::default())?;
        }
    }
    for (name, pool) in pools {
        let pool = object(TOOL, &format!("{POOLS}.{}", safe(&name)), pool)?;
        read_pool(name, pool, &templates, &mut translation)?;
    }
    Ok(translation)
}

fn object(tool: &'static str, path: &str, value: Value) -> Result<ForeignFields, String> {
    match value {
        Value::Object(fields) => Ok(ForeignFields::below(tool, path.to_owned(), fields)),
        _ => Err(format!("{path}: write a mapping")),
    }
}

type Templates = BTreeMap<String, ForeignTemplate>;

fn read_templates(
    found: Vec<(String, Value)>,
    translation: &mut Translation,
) -> Result<Templates, String> {
    let mut templates = Templates::new();
    for (name, template) in found {
        let fields = object(TOOL, &format!("{TEMPLATES}.{}", safe(&name)), template)?;
        templates.insert(name, ForeignTemplate::read(fields, &mut translation.notes)?);
    }
    Ok(templates)
}

impl Translation {
    /// Adds a template of ours for one that a pool names, if anything of it is left.
    fn template(
        &mut self,
        name: &str,
        template: &ForeignTemplate,
        variables: &Variables,
    ) -> Result<bool, String> {
        let fields = template.fields(variables)?;
        if fields.is_empty() {
            return Ok(false);
        }
        let mut fields: Map<String, Value> = fields;
        fields.insert("kind".to_owned(), "template".into());
        fields.insert("name".to_owned(), name.into());
        let document = TranslationItem::Document(fields);
        if !self.documents.contains(&document) {
            self.documents.push(document);
        }
        Ok(true)
    }
}

fn read_pool(
    name: String,
    mut pool: ForeignFields,
    templates: &Templates,
    translation: &mut Translation,
) -> Result<(), String> {
    FILLED.iter().for_each(|name| drop(pool.take(name)));
    pool.text("name")?;
    if pool.text("backend")?.is_some() {
        let path = pool.path("backend");
        translation.notes.push(format!(
            "{path}: hosts join a pool by themselves: it is left out"
        ));
    }
    let mut ours = Map::from_iter([
        ("kind".to_owned(), "pool".into()),
        ("name".to_owned(), name.clone().into()),
    ]);
    let mut put = |key: &str, value: Option<String>| {
        let value = value.filter(|text| !text.is_empty());
        ours.extend(value.map(|text| (key.to_owned(), text.into())));
    };
    put("description", pool.text("description")?);
    put("default_platform", pool.text("default_platform")?);
    let is_closed = pool.flag("enable_maintenance")? == Some(true);
    put(
        "maintenance",
        is_closed.then(|| "the pool is in maintenance".to_owned()),
    );
    let times = |pool: &mut ForeignFields, run, wait| -> Result<Map<String, Value>, String> {
        let (run, wait) = (pool.text(run)?, pool.text(wait)?);
        let times = [("timeout", run), ("queue_timeout", wait)].into_iter();
        let times = times.filter_map(|(key, text)| {
            Some((key.to_owned(), text.filter(|it| !it.is_empty())?.into()))
        });
        Ok(times.collect())
    };
    let defaults = times(&mut pool, "default_exec_timeout", "default_queue_timeout")?;
    let max = times(&mut pool, "max_exec_timeout", "max_queue_timeout")?;
    pool.refuse_unless_empty(POOL_REFUSALS)?;
    let validations = pool.texts("common_resource_validations")?;
    let variables = Variables::read(&mut pool, "common_default_variables")?;
    let named = pool.texts("common_pod_template")?;
    let platforms = pool.map("platforms")?;
    pool.end()?;
    for (key, table) in [("defaults", defaults), ("max", max)] {
        if !table.is_empty() {
            ours.insert(key.to_owned(), table.into());
        }
    }
    if !validations.is_empty() {
        ours.insert("validations".to_owned(), json!(validations));
    }
    let common = common_templates(&name, &named, &variables, templates, translation)?;
    if !common.names.is_empty() {
        ours.insert("templates".to_owned(), json!(common.names));
    }
    translation.documents.push(TranslationItem::Document(ours));
    for (platform, fields) in platforms {
        let platform = read_platform(&name, platform, fields, &variables, &common, templates)?;
        translation
            .documents
            .push(TranslationItem::Document(platform));
    }
    Ok(())
}

/// Result of the templates that a pool names.
#[derive(Default)]
struct PoolTemplates {
    /// Templates of ours, in order.
    names: Vec<String>,
    /// Templates that choose hosts, which platforms do here.
    selecting: Vec<ForeignTemplate>,
}

fn common_templates(
    pool: &str,
    named: &[String],
    variables: &Variables,
    templates: &Templates,
    translation: &mut Translation,
) -> Result<PoolTemplates, String> {
    let mut common = PoolTemplates::default();
    if let Some(amounts) = variables.amounts()? {
        let name = format!("{pool}-defaults");
        let fields = [("name", name.clone().into()), ("resources", amounts.into())];
        translation.add("template", fields);
        common.names.push(name);
    }
    for name in named {
        let Some(template) = templates.get(name) else {
            // One of the cluster.
            common.names.push(name.clone());
            continue;
        };
        // One with variables of the pool is a template of the pool.
        let own = match template.has_variables() {
            true => format!("{pool}-{name}"),
            false => name.clone(),
        };
        if translation.template(&own, template, variables)? {
            common.names.push(own);
        }
        if template.selects() {
            translation.notes.push(format!(
                "{POOLS}.{}.common_pod_template: `{}` chooses hosts: here its platforms do, and nodes are moved to a pool by \
                 `sluice move node NODE --pool {}`",
                safe(pool),
                safe(name),
                safe(pool)
            ));
            common.selecting.push(template.clone());
        }
    }
    Ok(common)
}

fn read_platform(
    pool: &str,
    name: String,
    mut fields: ForeignFields,
    of_pool: &Variables,
    common: &PoolTemplates,
    templates: &Templates,
) -> Result<Map<String, Value>, String> {
    FILLED.iter().for_each(|name| drop(fields.take(name)));
    let description = fields.text("description")?;
    let own = Variables::read(&mut fields, "default_variables")?;
    let variables = of_pool.with(&own);
    let mut overrides = Map::new();
    for (theirs, ours) in [
        ("host_network_allowed", "host_network_allowed"),
        ("privileged_allowed", "privileged_allowed"),
    ] {
        let allowed = fields.flag(theirs)?;
        overrides.extend(allowed.map(|it| (ours.to_owned(), it.into())));
    }
    for (theirs, ours) in [
        ("allowed_mounts", "allowed_mounts"),
        ("default_mounts", "mounts"),
    ] {
        let paths = fields.texts(theirs)?.into_iter();
        let paths: Vec<Value> = paths.map(|path| json!({"source": path})).collect();
        if !paths.is_empty() {
            overrides.insert(ours.to_owned(), paths.into());
        }
    }
    overrides.extend(own.amounts()?.map(|it| ("resources".to_owned(), it.into())));
    let validations = fields.texts("resource_validations")?;
    let named = fields.texts("override_pod_template")?;
    let mut chosen: Vec<&ForeignTemplate> = common.selecting.iter().collect();
    for template in &named {
        let found = templates.get(template).ok_or_else(|| {
            let way = "it is written into each platform that names it: put it into the same file, under `pod_templates`";
            fields.wrong("override_pod_template", &template.clone().into(), way)
        })?;
        pod_template::merge(&mut overrides, found.fields(&variables)?);
        chosen.push(found);
    }
    fields.end()?;
    let selector = pod_template::selector(&chosen, &variables)?;
    let mut ours = Map::from_iter([
        ("kind".to_owned(), "platform".into()),
        ("pool".to_owned(), pool.into()),
        ("name".to_owned(), name.into()),
        ("selector".to_owned(), selector.into()),
    ]);
    if chosen.iter().any(|template| template.tolerates) {
        ours.insert("taint".to_owned(), true.into());
    }
    let description = description.filter(|text| !text.is_empty());
    ours.extend(description.map(|text| ("description".to_owned(), text.into())));
    if !overrides.is_empty() {
        ours.insert("override".to_owned(), overrides.into());
    }
    if !validations.is_empty() {
        ours.insert("validations".to_owned(), json!(validations));
    }
    Ok(ours)
}
