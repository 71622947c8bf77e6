//! Files of Determined: configs of experiments and tasks, of which each is one step, and the pools of `master.yaml`.
//! `sluice-agent join --from` reads `agent.yaml`.

use serde_json::{Map, Value, json};

use super::fields::{ForeignFields, Refusal};
use super::translation::{Translation, TranslationItem};

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
        true => master(file),
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
        // What is left are fields of ours, or mistakes that the step's own check names.
        let mut amounts = asked.rest();
        amounts.extend(gpus.map(|count| ("gpu_count".to_owned(), count.into())));
        put("resources", amounts.into());
    }
    if let Some(environment) = file.object("environment")? {
        let (image, env) = surroundings(environment, gpus.is_some())?;
        put("image", image);
        put("env", env);
    }
    put("mounts", mounts(&mut file)?);
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
        labels.insert("project".to_owned(), project.into());
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
fn surroundings(mut about: ForeignFields, has_gpus: bool) -> Result<(Value, Value), String> {
    let kinds: [&'static str; 2] = match has_gpus {
        true => ["cuda", "gpu"],
        false => ["cpu", "cpu"],
    };
    let image = match about.take("image") {
        Some(Value::Object(images)) => {
            let found = kinds.iter().find_map(|kind| images.get(*kind));
            found.cloned().unwrap_or_default()
        }
        image => image.unwrap_or_default(),
    };
    let mut lines = match about.take("environment_variables") {
        Some(Value::Object(mut by_kind)) => {
            let found = kinds.iter().find_map(|kind| by_kind.remove(*kind));
            found.unwrap_or_default()
        }
        lines => lines.unwrap_or_default(),
    };
    let mut env = Map::new();
    for line in lines.as_array_mut().into_iter().flatten() {
        // The value may be a secret, so it is not shown.
        let variable = line.as_str().and_then(|line| line.split_once('='));
        let (name, value) = variable.ok_or_else(|| {
            format!(
                "{}: write a list of `NAME=VALUE`",
                about.path("environment_variables")
            )
        })?;
        env.insert(name.to_owned(), value.into());
    }
    about.flag("force_pull_image")?;
    about.refuse(ENVIRONMENT_REFUSALS)?;
    about.end()?;
    let env = match env.is_empty() {
        true => Value::Null,
        false => env.into(),
    };
    Ok((image, env))
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

/// Translates the pools of `master.yaml`, and which of them steps get that name none.
fn master(mut file: ForeignFields) -> Result<Translation, String> {
    let mut translation = Translation::default();
    let mut scheduler = Map::new();
    if let Some(mut manager) = file.object("resource_manager")? {
        let kind = manager.text("type")?.unwrap_or_else(|| "agent".to_owned());
        if kind != "agent" {
            let way = "Sluice has agents of its own: let the hosts join, and write `type: agent`";
            return Err(manager.wrong("type", &kind.into(), way));
        }
        if let Some(rules) = manager.object("scheduler")? {
            scheduler = rules_of(rules)?;
        }
        let cpu = manager.text("default_aux_resource_pool")?;
        let gpu = manager.text("default_compute_resource_pool")?;
        manager.end()?;
        if cpu.is_some() || gpu.is_some() {
            translation.add(
                "cluster",
                [("default_pool", json!({"cpu": cpu, "gpu": gpu}))],
            );
        }
    }
    for pool in file.objects("resource_pools")? {
        resource_pool(pool, &scheduler, &mut translation)?;
    }
    let other = file.rest();
    match other.keys().next() {
        None => Ok(translation),
        Some(name) => Err(format!(
            "{}: only `resource_manager` and `resource_pools` of a master's config have a counterpart: copy them into a \
             file of their own; `sluice-coordinator` has a config of its own",
            crate::render::safe(name)
        )),
    }
}

fn resource_pool(
    mut about: ForeignFields,
    scheduler: &Map<String, Value>,
    translation: &mut Translation,
) -> Result<(), String> {
    let name = about.needed("pool_name")?;
    let description = about.text("description")?;
    let rules = match about.object("scheduler")? {
        Some(rules) => rules_of(rules)?,
        None => scheduler.clone(),
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
    let mut env = Map::new();
    for line in defaults.texts("environment_variables")? {
        let Some((name, value)) = line.split_once('=') else {
            let path = defaults.path("environment_variables");
            return Err(format!("{path}: write a list of `NAME=VALUE`"));
        };
        env.insert(name.to_owned(), value.into());
    }
    let template = "write it into a template of the pool (`sluice help apply`, docs/templates.md), and remove it";
    let rest = defaults.rest();
    match rest.keys().next() {
        None => Ok(env),
        Some(name) => {
            let name = crate::render::safe(name);
            Err(format!("task_container_defaults.{name}: {template}"))
        }
    }
}

/// Returns the rules of a pool for a scheduler's.
fn rules_of(mut rules: ForeignFields) -> Result<Map<String, Value>, String> {
    let mut pool = Map::new();
    let preempts = rules.flag("preemption")? == Some(true);
    match rules.text("type")?.as_deref() {
        None => {}
        // There, a higher priority waits unless `preemption` says otherwise.
        Some("priority") if !preempts => {
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
