//! Files of Determined: configs of experiments and tasks, of which each is one step, and the pools of `master.yaml`
//! (`determined/master.rs`). `sluice-agent join --from` reads `agent.yaml`.

mod master;

use serde_json::{Map, Value, json};

use super::fields::{ForeignFields, Refusal};
use super::translation::{Translation, TranslationItem};
use crate::render::safe;

const TOOL: &str = "Determined";

/// Amounts of a trial or task by which a config is known.
const AMOUNTS: [&str; 3] = ["slots", "slots_per_trial", "resource_pool"];

/// Parts of `master.yaml`.
const MASTER: [&str; 2] = ["resource_manager", "resource_pools"];

const POLICY_PRIORITY: &str = "the priority is that of a subject in a pool, of which the larger goes first: write it into its policy (`sluice apply -f`), and remove the field";
const NO_TRIALS: &str =
    "no trial reports to Sluice: remove it, and let the program save what it needs";

const RESOURCES_REFUSALS: &[Refusal] = &[
    ("priority", POLICY_PRIORITY),
    (
        "weight",
        "the weight is that of a subject in a pool: write it into its policy (`sluice apply -f`), and remove the field",
    ),
    (
        "max_slots",
        "a step takes all of its GPUs at once: bound the parts of an array with `array: 0-9%2`, or the subject with `limit` of its policy",
    ),
    (
        "shm_size",
        "/dev/shm is that of the host or of the container: bound `memory`, and remove the field",
    ),
    (
        "devices",
        "a step gets the device nodes of its GPUs: name others in the host's `agent.toml`, and remove the field",
    ),
    (
        "agent_label",
        "write a platform with a selector of labels, and `platform: NAME`",
    ),
    (
        "native_parallel",
        "start the processes in `entrypoint`, and remove the field",
    ),
];

const ENVIRONMENT_REFUSALS: &[Refusal] = &[
    (
        "registry_auth",
        "a step uses the login of its host's container runtime: remove it",
    ),
    (
        "ports",
        "a step listens in the network of its host: remove it",
    ),
    (
        "proxy_ports",
        "a step listens in the network of its host: remove it",
    ),
    (
        "pod_spec",
        "there are no pods: write a template of the pool",
    ),
    (
        "add_capabilities",
        "write a template with a wrapper for privileged steps",
    ),
    (
        "drop_capabilities",
        "write a template with a wrapper for containers",
    ),
    ("slurm", "there is no Slurm below: remove it"),
    ("pbs", "there is no PBS below: remove it"),
];

const EXPERIMENT_REFUSALS: &[Refusal] = &[
    (
        "hyperparameters",
        "write them into `entrypoint`; a fixed sweep is an array: `array: 0-2` and `$SLUICE_ARRAY_INDEX`",
    ),
    (
        "checkpoint_storage",
        "write checkpoints to a directory that hosts share, and touch `$SLUICE_CHECKPOINT_FILE` after each",
    ),
    ("checkpoint_policy", NO_TRIALS),
    ("min_checkpoint_period", NO_TRIALS),
    ("min_validation_period", NO_TRIALS),
    ("perform_initial_validation", NO_TRIALS),
    ("records_per_epoch", NO_TRIALS),
    ("scheduling_unit", NO_TRIALS),
    ("optimizations", NO_TRIALS),
    ("profiling", NO_TRIALS),
    (
        "reproducibility",
        "pass the seed in `environment.environment_variables`, and remove it",
    ),
    (
        "data",
        "pass it in `environment.environment_variables`, and remove it",
    ),
    (
        "data_layer",
        "mount the data by `bind_mounts`, and remove it",
    ),
    (
        "log_policies",
        "`retries` bounds how often a failed step starts again: remove it",
    ),
    (
        "retention_policy",
        "how long output is kept is a setting of the host: remove it",
    ),
    ("integrations", NO_TRIALS),
    ("slurm", "there is no Slurm below: remove it"),
    ("pbs", "there is no PBS below: remove it"),
];

/// Fields of a step of ours, with those of Determined that say the same.
const COUNTERPARTS: [(&str, &str); 7] = [
    ("command", "entrypoint"),
    ("subject", "workspace"),
    ("retries", "max_restarts"),
    ("pool", "resources.resource_pool"),
    ("image", "environment.image"),
    ("env", "environment.environment_variables"),
    ("mounts", "bind_mounts"),
];

/// Kinds of slot by which an image and variables may differ.
const SLOT_KINDS: [&str; 4] = ["cpu", "cuda", "gpu", "rocm"];

/// Whether a document has the shape of Determined's.
pub(super) fn is_one(fields: &Map<String, Value>) -> bool {
    let kind = fields.get("kind").and_then(Value::as_str);
    let amounts = fields.get("resources").and_then(Value::as_object);
    let amounts = amounts.is_some_and(|it| AMOUNTS.iter().any(|name| it.contains_key(*name)));
    let is_config = fields.contains_key("entrypoint") || fields.contains_key("searcher");
    match kind {
        None => amounts || is_config || MASTER.iter().any(|name| fields.contains_key(*name)),
        Some(kind) => kind == "step" && amounts,
    }
}

pub(super) fn translate(mut fields: Map<String, Value>) -> Result<Translation, String> {
    fields.remove("kind");
    let is_master = MASTER.iter().any(|name| fields.contains_key(*name));
    let file = ForeignFields::new(TOOL, fields);
    match is_master {
        true => master::translate(file),
        false => step(file),
    }
}

/// Translates the config of an experiment or a task. Fields of our steps may stand in it too.
fn step(mut file: ForeignFields) -> Result<Translation, String> {
    let mut translation = Translation::default();
    let mut step = Map::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            step.insert(name.to_owned(), value);
        }
    };
    if file.text("description")?.is_some() {
        let note = "description: steps have no description: it is left out";
        translation.notes.push(note.to_owned());
    }
    put("command", entrypoint(&mut file)?);
    put("subject", file.text("workspace")?.into());
    put("retries", file.count("max_restarts")?.into());
    put("labels", labels(&mut file)?);
    file.refuse(EXPERIMENT_REFUSALS)?;
    searcher(&mut file, &mut translation.notes)?;
    let mut gpus = None;
    if let Some(mut asked) = file.object("resources")? {
        put("pool", asked.text("resource_pool")?.into());
        gpus = slots(&mut asked)?;
        asked.refuse(RESOURCES_REFUSALS)?;
        if asked.flag("is_single_node")? == Some(false) {
            let way = "GPUs of several hosts are asked for by host: write `nodes: 2` and the slots of one host";
            return Err(asked.wrong("is_single_node", &false.into(), way));
        }
        if gpus.is_some() && asked.take("gpu_count").is_some() {
            return Err(asked.twice("gpu_count", "slots"));
        }
        // What is left are fields of ours, or mistakes that the step's own check names.
        let mut amounts = asked.rest();
        amounts.extend(gpus.map(|count| ("gpu_count".to_owned(), count.into())));
        put("resources", amounts.into());
    }
    if let Some(environment) = file.object("environment")? {
        let has_gpus = gpus.is_some();
        let (image, env) = surroundings(environment, has_gpus, &mut translation.notes)?;
        put("image", image);
        put("env", env);
    }
    put("mounts", mounts(&mut file)?);
    for (ours, theirs) in COUNTERPARTS {
        if step.contains_key(ours) && file.take(ours).is_some() {
            return Err(file.twice(ours, theirs));
        }
    }
    let mut all = file.rest();
    all.extend(step);
    all.insert("kind".to_owned(), "step".into());
    translation.documents.push(TranslationItem::Document(all));
    Ok(translation)
}

/// Returns the command: a text is a line of a shell, as in Determined.
fn entrypoint(file: &mut ForeignFields) -> Result<Value, String> {
    match file.take("entrypoint") {
        None => Ok(Value::Null),
        Some(Value::String(line)) => Ok(json!(["sh", "-c", line])),
        Some(Value::Array(words)) => {
            let words = words.into_iter().map(|word| match word {
                Value::Number(number) => number.to_string().into(),
                word => word,
            });
            Ok(words.collect())
        }
        Some(other) => Err(file.wrong("entrypoint", &other, "write a text or a list of texts")),
    }
}

/// Reads labels: a list has no values, so each is `true`.
fn labels(file: &mut ForeignFields) -> Result<Value, String> {
    let mut labels = match file.take("labels") {
        None => Map::new(),
        Some(Value::Object(labels)) => labels,
        Some(Value::Array(names)) => {
            let names = names.into_iter().map(|name| match name {
                Value::String(name) => Ok((name, "true".into())),
                other => Err(file.wrong("labels", &other, "write a list of texts")),
            });
            names.collect::<Result<_, _>>()?
        }
        Some(other) => return Err(file.wrong("labels", &other, "write a list of texts")),
    };
    if let Some(project) = file.text("project")? {
        let known = labels.insert("project".to_owned(), project.into());
        if known.is_some() {
            return Err(file.twice("project", "labels.project"));
        }
    }
    Ok(match labels.is_empty() {
        true => Value::Null,
        false => labels.into(),
    })
}

fn searcher(file: &mut ForeignFields, notes: &mut Vec<String>) -> Result<(), String> {
    let Some(mut searcher) = file.object("searcher")? else {
        return Ok(());
    };
    let name = searcher.needed("name")?;
    if name != "single" {
        let way = "only `single` is one step: write a fixed sweep as an array, or a program that submits steps";
        return Err(searcher.wrong("name", &name.into(), way));
    }
    if !searcher.rest().is_empty() {
        let note = "searcher: a single trial is one step; its metric and length are not read";
        notes.push(note.to_owned());
    }
    Ok(())
}

/// Returns the GPUs of a host; none for a task without slots.
fn slots(asked: &mut ForeignFields) -> Result<Option<u64>, String> {
    let (slots, per_trial) = (asked.count("slots")?, asked.count("slots_per_trial")?);
    match (slots, per_trial) {
        (Some(slots), Some(per_trial)) if slots != per_trial => {
            let way = "it is there as `slots` too: write it once";
            Err(asked.wrong("slots_per_trial", &per_trial.into(), way))
        }
        (slots, per_trial) => Ok(slots.or(per_trial).filter(|count| *count > 0)),
    }
}

/// Reads the image and the variables, each of which may differ by the kind of slot.
fn surroundings(
    mut about: ForeignFields,
    has_gpus: bool,
    notes: &mut Vec<String>,
) -> Result<(Value, Value), String> {
    let image = of_slot(&mut about, "image", has_gpus, notes)?;
    let lines = of_slot(&mut about, "environment_variables", has_gpus, notes)?;
    let env = ForeignFields::variables(lines, &about.path("environment_variables"))?;
    if about.flag("force_pull_image")? == Some(true) {
        let path = about.path("force_pull_image");
        notes.push(format!(
            "{path}: the container runtime of the host pulls an image if it has none: it is left out"
        ));
    }
    about.refuse(ENVIRONMENT_REFUSALS)?;
    about.end()?;
    let env = match env.is_empty() {
        true => Value::Null,
        false => env.into(),
    };
    Ok((image, env))
}

/// Takes a field that may be a mapping by the kind of slot: the value for GPUs, or for none.
fn of_slot(
    about: &mut ForeignFields,
    name: &'static str,
    has_gpus: bool,
    notes: &mut Vec<String>,
) -> Result<Value, String> {
    let mut by_kind = match about.take(name) {
        Some(Value::Object(by_kind)) => by_kind,
        value => return Ok(value.unwrap_or_default()),
    };
    let path = about.path(name);
    if let Some(kind) = by_kind
        .keys()
        .find(|kind| !SLOT_KINDS.contains(&kind.as_str()))
    {
        let (kind, kinds) = (safe(kind), SLOT_KINDS.join(", "));
        return Err(format!(
            "{path}.{kind}: there is no such kind of slot: write {kinds}"
        ));
    }
    let kinds: &[&str] = match has_gpus {
        true => &["cuda", "gpu"],
        false => &["cpu"],
    };
    let mut found = kinds.iter().filter_map(|kind| by_kind.remove(*kind));
    let value = found.next().unwrap_or_default();
    if found.next().is_some() {
        return Err(format!(
            "{path}.gpu: it is there as `cuda` too: write it once"
        ));
    }
    if value.is_null() && !by_kind.is_empty() {
        let kind = kinds[0];
        notes.push(format!(
            "{path}: nothing of it is for `{kind}` slots: it is left out"
        ));
    }
    Ok(value)
}

fn mounts(file: &mut ForeignFields) -> Result<Value, String> {
    let mut mounts = Vec::new();
    for mut mount in file.objects("bind_mounts")? {
        let source = mount.needed("host_path")?;
        let target = mount.text("container_path")?;
        let read_only = mount.flag("read_only")?;
        mount.refuse(&[("propagation", "mounts are private to a step: remove it")])?;
        mount.end()?;
        mounts.push(json!({"source": source, "target": target, "read_only": read_only}));
    }
    Ok(match mounts.is_empty() {
        true => Value::Null,
        false => mounts.into(),
    })
}
