//! Pools of `master.yaml`, with the rules of its schedulers, and the pools of steps that name none.

use std::fmt::Display;

use serde_json::{Map, Value, json};
use sluice_common::cluster::DefaultPool;
use sluice_common::id::PoolName;

use super::super::fields::{ForeignFields, Refusal};
use super::super::translation::{ForeignDocument, Translation, TranslationItem};
use super::POLICY_PRIORITY;
use crate::render::safe;

const POOL_REFUSALS: &[Refusal] = &[
    (
        "provider",
        "hosts are not made on demand: let them join (`sluice token create --pool POOL`), and remove it",
    ),
    (
        "max_aux_containers_per_agent",
        "a step without GPUs counts by its `cpu_count` and `memory`: remove it",
    ),
    (
        "max_cpu_containers_per_agent",
        "a step without GPUs counts by its `cpu_count` and `memory`: remove it",
    ),
    (
        "agent_reconnect_wait",
        "the coordinator's config has the times after which a host is lost: remove it",
    ),
    (
        "agent_reattach_enabled",
        "steps outlive their agent and the coordinator always: remove it",
    ),
    (
        "kubernetes_namespace",
        "there is no Kubernetes below: remove it",
    ),
];

/// Translates the pools of `master.yaml`, and which of them steps get that name none.
pub(super) fn translate(mut file: ForeignFields) -> Result<Translation, String> {
    let mut translation = Translation::default();
    let mut scheduler = None;
    if let Some(mut manager) = file.object("resource_manager")? {
        let kind = manager.text("type")?.unwrap_or_else(|| "agent".to_owned());
        if kind != "agent" {
            let way = "Sluice has agents of its own: let the hosts join, and write `type: agent`";
            return Err(manager.wrong("type", &kind.into(), way));
        }
        scheduler = manager.object("scheduler")?.map(rules_of).transpose()?;
        let pools = DefaultPool {
            cpu: pool_name(&mut manager, "default_aux_resource_pool")?,
            gpu: pool_name(&mut manager, "default_compute_resource_pool")?,
        };
        manager.end()?;
        if !pools.is_empty() {
            let pools = ForeignDocument::DefaultPool(pools);
            translation.documents.push(TranslationItem::Foreign(pools));
        }
    }
    let pools = file.objects("resource_pools")?;
    if scheduler.is_some() && pools.is_empty() {
        let note = "resource_manager.scheduler: there is no pool in the file whose rules it could be: it is left out";
        translation.notes.push(note.to_owned());
    }
    for pool in pools {
        resource_pool(pool, scheduler.as_ref(), &mut translation)?;
    }
    let other = file.rest();
    match other.keys().next() {
        None => Ok(translation),
        Some(name) => Err(format!(
            "{}: only `resource_manager` and `resource_pools` of a master's config have a counterpart: copy them into a \
             file of their own; `sluice-coordinator` has a config of its own",
            safe(name)
        )),
    }
}

fn pool_name(manager: &mut ForeignFields, field: &'static str) -> Result<Option<PoolName>, String> {
    let Some(text) = manager.text(field)? else {
        return Ok(None);
    };
    let name = PoolName::new(text.as_str());
    let wrong = |e: &dyn Display| manager.wrong(field, &text.clone().into(), &e.to_string());
    name.map(Some).map_err(|e| wrong(&e))
}

fn resource_pool(
    mut about: ForeignFields,
    scheduler: Option<&Map<String, Value>>,
    translation: &mut Translation,
) -> Result<(), String> {
    let name = about.needed("pool_name")?;
    let description = about.text("description")?;
    let rules = match about.object("scheduler")? {
        Some(rules) => rules_of(rules)?,
        None => scheduler.cloned().unwrap_or_default(),
    };
    about.refuse(POOL_REFUSALS)?;
    let env = match about.object("task_container_defaults")? {
        Some(defaults) => container_defaults(defaults)?,
        None => Map::new(),
    };
    about.end()?;
    let mut pool = Map::from_iter([
        ("kind".to_owned(), "pool".into()),
        ("name".to_owned(), name.clone().into()),
    ]);
    pool.extend(description.map(|text| ("description".to_owned(), text.into())));
    pool.extend(rules);
    if !env.is_empty() {
        let template = format!("{name}-defaults");
        translation.add(
            "template",
            [("name", template.clone().into()), ("env", env.into())],
        );
        pool.insert("templates".to_owned(), json!([template]));
    }
    translation.documents.push(TranslationItem::Document(pool));
    Ok(())
}

/// Reads variables of every task of a pool.
fn container_defaults(mut defaults: ForeignFields) -> Result<Map<String, Value>, String> {
    let lines = defaults.take("environment_variables").unwrap_or_default();
    let env = ForeignFields::variables(lines, &defaults.path("environment_variables"))?;
    let template = "write it into a template of the pool (`sluice help apply`, docs/templates.md), and remove it";
    let rest = defaults.rest();
    match rest.keys().next() {
        None => Ok(env),
        Some(name) => {
            let name = safe(name);
            Err(format!("task_container_defaults.{name}: {template}"))
        }
    }
}

/// Returns the rules of a pool for a scheduler's.
fn rules_of(mut rules: ForeignFields) -> Result<Map<String, Value>, String> {
    let mut pool = Map::new();
    let preemption = rules.flag("preemption")?;
    let kind = rules.text("type")?;
    if let Some(preempts) = preemption.filter(|_| kind.as_deref() != Some("priority")) {
        let way = "it belongs to `type: priority`: write that, or remove it";
        return Err(rules.wrong("preemption", &preempts.into(), way));
    }
    match kind.as_deref() {
        None => {}
        // There, a higher priority waits unless `preemption` says otherwise.
        Some("priority") if preemption != Some(true) => {
            pool.insert("priority_preemption".to_owned(), "off".into());
        }
        Some("priority") => {}
        Some("fair_share") => {
            pool.insert("fair_share".to_owned(), json!({"half_life": "7d"}));
        }
        Some(other) => {
            let way = "write `priority` or `fair_share`";
            return Err(rules.wrong("type", &other.into(), way));
        }
    }
    match rules.text("fitting_policy")?.as_deref() {
        None | Some("best") => {}
        Some("worst") => {
            pool.insert("placement".to_owned(), "spread".into());
        }
        Some(other) => {
            let way = "write `best` or `worst`";
            return Err(rules.wrong("fitting_policy", &other.into(), way));
        }
    }
    rules.refuse(&[
        ("default_priority", POLICY_PRIORITY),
        (
            "allow_heterogeneous_fits",
            "each host of a step holds the same amounts: remove it",
        ),
    ])?;
    rules.end()?;
    Ok(pool)
}
