//! Commands of other tools that need a translation: `create -f`, ZenML's changes of pools and policies, OSMO's `config
//! update`. Each makes documents and applies them as `sluice apply` does.

use serde_json::{Map, Value, json};
use sluice_common::api::{ApplyRequest, PoolView, PutDocument};
use sluice_common::document::{ClusterObjectId, PolicyId, SpecDocument};
use sluice_common::pool::{PolicySpec, PoolHosts, PoolSpec, ResourceTable};
use sluice_common::pool_rules::StepDefaults;
use sluice_common::request::{FieldError, StepRequest};

use super::apply::{self, ChangeOptions};
use super::{outage_note, submit};
use crate::args::{
    ConfigArgs, ConfigCommand, ConfigKind, CreateArgs, PolicyFields, PolicyName, PoolFields,
    ResourcePoolArgs, ResourcePoolCommand, SubmitArgs,
};
use crate::client::{ApiError, Client, RetryLimit};
use crate::documents::{self, Document, LocatedDocument};
use crate::elsewhere::{osmo, zenml};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::safe;
use crate::request_builder::Defaults;
use crate::step_source;

/// Runs `sluice submit`, which applies the services of a file of another tool.
pub(crate) fn submit(client: &Client, args: SubmitArgs, out: Out) -> Result<u8, Failure> {
    submit::run(client, args, out, |services, dry_run| {
        let options = ChangeOptions {
            dry_run,
            force: false,
        };
        apply::documents(client, services.into_iter(), options, out)
    })
}

/// Runs `sluice create -f`: checks all files, applies their documents, and then submits their steps.
pub(crate) fn create(client: &Client, args: &CreateArgs, out: Out) -> Result<u8, Failure> {
    let mut all = Vec::new();
    for file in &args.file {
        let (text, shown) = (documents::read_file(file)?, documents::shown(file));
        all.extend(documents::placed(&text, &shown)?);
    }
    for it in &mut all {
        if let Document::Step(step) | Document::Service(step) = &mut it.document {
            step.subject = step.subject.take().or_else(|| args.namespace.clone());
        }
    }
    let is_step = |it: &LocatedDocument| matches!(it.document, Document::Step(_));
    let (steps, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_step);
    let defaults = Defaults::of(&client.context().file);
    let steps = documents::of_documents(steps)?;
    let mut steps = step_source::from_documents(steps, &StepRequest::default(), &defaults, out)?;
    let mut code = 0;
    if !others.is_empty() {
        let options = ChangeOptions {
            dry_run: args.dry_run,
            force: false,
        };
        code = apply::documents(client, others.into_iter(), options, out)?;
    }
    if code != 0 && !steps.is_empty() {
        out.error("no step was submitted, because the documents could not be applied in full");
    }
    if code != 0 || steps.is_empty() {
        return Ok(code);
    }
    submit::fill_subject(client, &mut steps, out)?;
    submit::send(client, steps, args.dry_run, out)
}

/// Runs the commands of `sluice resource-pool` that change pools and policies.
pub(crate) fn pool(client: &Client, args: ResourcePoolArgs, out: Out) -> Result<u8, Failure> {
    let of_hosts = match &args.command {
        ResourcePoolCommand::Create { name, no_hosts, .. } if !no_hosts => Some(safe(name)),
        _ => None,
    };
    let document = match args.command {
        ResourcePoolCommand::Create {
            name,
            no_hosts,
            fields,
        } => new_pool(client, name, no_hosts, &fields, out)?,
        ResourcePoolCommand::Update { name, fields } => changed_pool(client, name, &fields, out)?,
        ResourcePoolCommand::AttachPolicy { policy, fields } => {
            new_policy(client, policy, &fields, out)?
        }
        ResourcePoolCommand::UpdatePolicy { policy, fields } => {
            changed_policy(client, policy, &fields, out)?
        }
        ResourcePoolCommand::Describe { .. }
        | ResourcePoolCommand::List
        | ResourcePoolCommand::Delete { .. }
        | ResourcePoolCommand::DetachPolicy { .. }
        | ResourcePoolCommand::ListPolicies { .. }
        | ResourcePoolCommand::Requests { .. } => {
            unreachable!("each of them is read as a command of ours")
        }
    };
    let request = ApplyRequest {
        put: vec![document],
        ..ApplyRequest::default()
    };
    let options = ChangeOptions {
        dry_run: false,
        force: false,
    };
    let code = apply::make(client, &request, options, out)?;
    if let Some(name) = of_hosts.filter(|_| code == 0) {
        out.notice(&format!(
            "its steps run on hosts that have `pool: {name}` in their config; with `--no-hosts` a pool counts units such as \
             licences alone, for allocations"
        ));
    }
    Ok(code)
}

/// Reads a thing; `None` if there is none.
fn known<T>(
    client: &Client,
    out: Out,
    read: impl Fn() -> Result<T, ApiError>,
) -> Result<Option<T>, Failure> {
    match client.keep_trying(RetryLimit::READ, outage_note(out), read) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn new_pool(
    client: &Client,
    name: String,
    no_hosts: bool,
    fields: &PoolFields,
    out: Out,
) -> Result<PutDocument, Failure> {
    if known(client, out, || client.pool(&name))?.is_some() {
        let name = safe(&name);
        return Err(Failure::Failed(format!(
            "there is a pool `{name}` already: `sluice resource-pool update {name}` changes it"
        )));
    }
    let mut spec = PoolSpec::of_new_pool();
    if no_hosts {
        spec.hosts = PoolHosts::None;
        spec.defaults = StepDefaults::default();
    }
    put_pool(name, spec, 0, fields)
}

fn changed_pool(
    client: &Client,
    name: String,
    fields: &PoolFields,
    out: Out,
) -> Result<PutDocument, Failure> {
    if fields.capacity.is_none() && fields.description.is_none() {
        let way = "nothing to change: write --capacity or --description";
        return Err(Failure::Usage(way.to_owned()));
    }
    let read = || client.pool(&name);
    let view = client.keep_trying(RetryLimit::READ, outage_note(out), read)?;
    let version = view.version;
    put_pool(name, spec_of(view), version, fields)
}

/// Returns the spec by which a pool stays as it is.
pub(super) fn spec_of(view: PoolView) -> PoolSpec {
    PoolSpec {
        capacity: view.declared,
        unmatched_platform: view.unmatched_platform,
        platforms: Some(view.declared_platforms),
        ..view.spec
    }
}

/// Returns the document of a pool with these fields changed.
fn put_pool(
    name: String,
    mut spec: PoolSpec,
    version: u64,
    fields: &PoolFields,
) -> Result<PutDocument, Failure> {
    for (key, units) in table("--capacity", fields.capacity.as_deref())?.unwrap_or_default() {
        match units {
            0 => spec.capacity.remove(&key),
            units => spec.capacity.insert(key, units),
        };
    }
    if let Some(description) = &fields.description {
        spec.description.clone_from(description);
    }
    Ok(PutDocument::Pool(SpecDocument {
        version: Some(version),
        ..SpecDocument::new(ClusterObjectId { name }, Box::new(spec))
    }))
}

fn new_policy(
    client: &Client,
    name: PolicyName,
    fields: &PolicyFields,
    out: Out,
) -> Result<PutDocument, Failure> {
    let read = || client.policy(&name.pool, &name.subject);
    if known(client, out, read)?.is_some() {
        let (pool, subject) = (safe(&name.pool), safe(&name.subject));
        return Err(Failure::Failed(format!(
            "`{subject}` has a policy in pool `{pool}` already: `sluice resource-pool update-policy {pool} {subject}` \
             changes it"
        )));
    }
    put_policy(name, PolicySpec::default(), 0, fields)
}

fn changed_policy(
    client: &Client,
    name: PolicyName,
    fields: &PolicyFields,
    out: Out,
) -> Result<PutDocument, Failure> {
    let read = || client.policy(&name.pool, &name.subject);
    let view = client.keep_trying(RetryLimit::READ, outage_note(out), read)?;
    put_policy(name, view.spec, view.version, fields)
}

/// Returns the document of a policy with these fields changed.
fn put_policy(
    PolicyName { pool, subject, .. }: PolicyName,
    before: PolicySpec,
    version: u64,
    fields: &PolicyFields,
) -> Result<PutDocument, Failure> {
    let reserved = table("--reserved", fields.reserved.as_deref())?;
    let limit = table("--limit", fields.limit.as_deref())?;
    let spec = PolicySpec {
        priority: fields.priority.unwrap_or(before.priority),
        reserved: reserved.unwrap_or(before.reserved),
        limit: limit.unwrap_or(before.limit),
        weight: before.weight,
    };
    Ok(PutDocument::Policy(SpecDocument {
        version: Some(version),
        ..SpecDocument::new(PolicyId { pool, subject }, spec)
    }))
}

/// Reads the amounts of a flag, if it is given.
fn table(flag: &str, text: Option<&str>) -> Result<Option<ResourceTable>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let values: Vec<Value> = documents::values(text, flag)?;
    let value = match values.as_slice() {
        [value] => value,
        _ => &Value::Null,
    };
    let amounts = json!({"reserved": zenml::amounts(flag, value)?});
    let spec: Result<PolicySpec, _> = serde_json::from_value(amounts);
    let spec = spec.map_err(|error| {
        let error = error.to_string();
        let wrong = FieldError::from_serde(&error).map_or(error, |wrong| wrong.message);
        Failure::Usage(format!("{flag}: {wrong}"))
    });
    Ok(Some(spec?.reserved))
}

/// Runs `sluice config update`.
pub(crate) fn config(client: &Client, args: &ConfigArgs, out: Out) -> Result<u8, Failure> {
    let ConfigCommand::Update {
        kind,
        name,
        file,
        dry_run,
    } = &args.command;
    let (text, shown) = (documents::read_file(file)?, documents::shown(file));
    let mut values: Vec<Value> = documents::values(&text, &shown)?;
    let (Some(value), true) = (values.pop(), values.is_empty()) else {
        return Err(Failure::Failed(format!("{shown}: write one JSON value")));
    };
    let group = match kind {
        ConfigKind::Pool => osmo::POOLS,
        ConfigKind::PodTemplate => osmo::TEMPLATES,
        ConfigKind::ResourceValidation => osmo::VALIDATIONS,
    };
    let translation = osmo::translate(config_of(group, name.as_deref(), value));
    let documents = documents::of_translation(translation, &text, &shown)?;
    let options = ChangeOptions {
        dry_run: *dry_run,
        force: false,
    };
    apply::documents(client, documents.into_iter(), options, out)
}

/// Puts a configuration into its group by name, as `sluice apply -f` takes it.
fn config_of(group: &str, name: Option<&str>, value: Value) -> Map<String, Value> {
    let of = |key: &str, value| Map::from_iter([(key.to_owned(), value)]);
    match (name, value) {
        (Some(name), value) => of(group, of(name, value).into()),
        (None, Value::Object(fields)) if fields.contains_key(group) => fields,
        (None, by_name) => of(group, by_name),
    }
}
