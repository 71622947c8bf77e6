//! Files of gpuctl: pools with their nodes, quotas of namespaces, and jobs of four kinds, of which some are services
//! ([`serving`]).

mod serving;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluice_common::amount::parse_memory;
use sluice_common::api::{GpuView, NodeView};
use sluice_common::platform::slug;
use sluice_common::pool::PolicySpec;
use sluice_common::step::WorkKind;

use super::fields::{ForeignFields, Refusal};
use super::translation::{ForeignDocument, PoolNodes, Quota, Translation, TranslationItem};
use crate::render::safe;

const TOOL: &str = "gpuctl";

/// The label by which gpuctl puts a node into a pool.
pub(crate) const POOL_LABEL: &str = "runwhere.ai/pool";

/// Spellings of the kind of a GPU.
const GPU_TYPE: [&str; 3] = ["gpu-type", "gpuType", "gpu_type"];

/// Order among the steps of a namespace.
const PRIORITIES: [(&str, Option<i64>); 3] =
    [("high", Some(100)), ("medium", None), ("low", Some(-100))];

const JOB_REFUSALS: &[Refusal] = &[
    (
        "epochs",
        "gpuctl does not read it either: write it into `environment.args`",
    ),
    (
        "batch_size",
        "gpuctl does not read it either: write it into `environment.args`",
    ),
];

/// Whether a document has the shape of gpuctl's.
pub(super) fn is_one(fields: &Map<String, Value>) -> bool {
    let is_object = |name: &str| fields.get(name).is_some_and(Value::is_object);
    let Some(kind) = fields.get("kind").and_then(Value::as_str) else {
        return false;
    };
    match kind {
        "pool" => is_object("pool"),
        "resource" | "quota" => true,
        kind => {
            let has_version = fields.get("version").is_some_and(Value::is_string);
            kind.parse::<WorkKind>().is_ok()
                && (has_version || is_object("job") || is_object("environment"))
        }
    }
}

pub(super) fn translate(fields: Map<String, Value>) -> Result<Translation, String> {
    let mut file = ForeignFields::new(TOOL, fields);
    let kind = file.needed("kind")?;
    // gpuctl reads no version either.
    file.text("version")?;
    match kind.as_str() {
        "pool" | "resource" => pool(file),
        "quota" => quotas(file),
        _ => job(&kind, file),
    }
}

fn pool(mut file: ForeignFields) -> Result<Translation, String> {
    let mut about = file
        .object("pool")?
        .ok_or("pool: it is missing: write `pool: {name: ...}`")?;
    let pool = about.needed("name")?;
    let description = about.text("description")?;
    about.end()?;
    let mut nodes = BTreeMap::new();
    for (name, mut node) in file.map("nodes")? {
        let kind = node.take_spelled(&GPU_TYPE)?;
        let kind = match kind {
            None => None,
            Some(Value::String(kind)) => Some(kind),
            Some(other) => return Err(node.wrong(GPU_TYPE[0], &other, "write a text")),
        };
        node.end()?;
        nodes.insert(name, kind);
    }
    file.end()?;
    Ok(Translation::of(ForeignDocument::PoolNodes(PoolNodes {
        pool,
        description,
        nodes,
    })))
}

fn quotas(mut file: ForeignFields) -> Result<Translation, String> {
    let mut translation = Translation::default();
    if let Some(mut about) = file.object("quota")? {
        about.text("name")?;
        if about.text("description")?.is_some() {
            let note = "quota.description: limits have no description: it is left out";
            translation.notes.push(note.to_owned());
        }
        about.end()?;
    }
    let mut all = file.map("namespace")?;
    if let Some(default) = file.object("default")? {
        if all.iter().any(|(name, _)| name == "default") {
            return Err(file.twice("default", "namespace.default"));
        }
        all.push(("default".to_owned(), default));
    }
    file.end()?;
    if all.is_empty() {
        return Err(
            "namespace: it is missing: name a namespace with its `cpu`, `memory` and `gpu`"
                .to_owned(),
        );
    }
    for (subject, mut amounts) in all {
        let mut limit = Map::new();
        if let Some(cpu) = amounts.take("cpu") {
            limit.insert("cpu".to_owned(), cores(&amounts, "cpu", &cpu)?);
        }
        if let Some(memory) = amounts.text("memory")? {
            limit.insert("memory".to_owned(), memory.into());
        }
        if let Some(gpus) = amounts.count("gpu")? {
            limit.insert("gpu".to_owned(), gpus.into());
        }
        let path = amounts.path_of_all();
        amounts.end()?;
        let limit = json!({"limit": limit});
        let policy: PolicySpec =
            serde_json::from_value(limit).map_err(|e| format!("{path}: {e}"))?;
        let limit = policy.limit;
        let quota = ForeignDocument::Quota(Quota { subject, limit });
        translation.documents.push(TranslationItem::Foreign(quota));
    }
    Ok(translation)
}

/// Reads cores, as Kubernetes writes them.
fn cores(fields: &ForeignFields, name: &str, value: &Value) -> Result<Value, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let (number, parts) = match text.strip_suffix('m') {
        Some(thousandths) => (thousandths, 1000.0),
        None => (text.as_str(), 1.0),
    };
    let cores = number.parse::<f64>().ok().map(|number| number / parts);
    let cores = cores.filter(|cores| cores.is_finite() && *cores >= 0.0);
    let wrong = || {
        fields.wrong(
            name,
            value,
            "write a number of cores, such as `8`, `0.5` or `500m`",
        )
    };
    cores.map(|cores| json!(cores)).ok_or_else(wrong)
}

fn job(kind: &str, mut file: ForeignFields) -> Result<Translation, String> {
    let mut translation = Translation::default();
    let mut job = file
        .object("job")?
        .ok_or("job: it is missing: write `job: {name: ...}`")?;
    let name = job.needed("name")?;
    let subject = job.text("namespace")?;
    let priority = priority(&mut job)?;
    if job.text("description")?.is_some() {
        let note = "job.description: steps have no description: it is left out";
        translation.notes.push(note.to_owned());
    }
    job.refuse(JOB_REFUSALS)?;
    job.end()?;
    let mut program = program(&mut file)?;
    let resources = resources(&mut file, &mut translation.notes)?;
    let work: WorkKind = kind.parse().map_err(|e| format!("kind: {e}"))?;
    let notes = &mut translation.notes;
    let service = serving::fields(work, &mut file, &mut program, notes)?;
    let mounts = mounts(&mut file)?;
    file.refuse(&[(
        "model",
        "no registry of models is read: let `environment.command` load the model",
    )])?;
    file.end()?;
    let step = [
        ("name", name.into()),
        ("subject", subject.into()),
        ("priority", priority.into()),
        ("mounts", mounts),
    ];
    let step = step.into_iter().chain(program.fields()).chain(resources);
    match service {
        Some(service) => translation.add("service", step.chain(service)),
        None => translation.add(kind, step),
    }
    Ok(translation)
}

/// Returns the order among the steps of the namespace. Whether a step may be preempted does not follow from it: in gpuctl
/// each job may be preempted by one of a higher priority.
fn priority(job: &mut ForeignFields) -> Result<Option<i64>, String> {
    let Some(word) = job.text("priority")? else {
        return Ok(None);
    };
    let known = PRIORITIES.iter().find(|(known, _)| *known == word);
    let wrong = || {
        job.wrong(
            "priority",
            &word.clone().into(),
            "write `high`, `medium` or `low`",
        )
    };
    known.map(|(_, number)| *number).ok_or_else(wrong)
}

type NamedValues = Vec<(&'static str, Value)>;

/// The program of a job, and its image.
struct JobProgram {
    image: Option<String>,
    /// JobProgram and arguments; not empty.
    command: Vec<String>,
    env: Map<String, Value>,
}

impl JobProgram {
    fn fields(self) -> NamedValues {
        let env = match self.env.is_empty() {
            true => Value::Null,
            false => self.env.into(),
        };
        vec![
            ("image", self.image.into()),
            ("command", self.command.into()),
            ("env", env),
        ]
    }
}

fn program(file: &mut ForeignFields) -> Result<JobProgram, String> {
    let mut program = file
        .object("environment")?
        .ok_or("environment: it is missing: write `environment: {command: [...]}`")?;
    let image = program.text("image")?;
    let mut command = program.texts("command")?;
    command.extend(program.texts("args")?);
    if command.is_empty() {
        let way =
            "it is missing: write the program, because the one that an image names is not run";
        return Err(format!("{}: {way}", program.path("command")));
    }
    let mut env = Map::new();
    for mut variable in program.objects("env")? {
        let name = variable.needed("name")?;
        let value = variable.take("value").unwrap_or_default();
        let value = match value {
            Value::String(text) => text,
            Value::Null => String::new(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            // The value may be a secret.
            Value::Array(_) | Value::Object(_) => {
                return Err(format!("{}: write a text", variable.path("value")));
            }
        };
        if env.contains_key(&name) {
            return Err(variable.wrong("name", &name.into(), "it is there twice: write it once"));
        }
        variable.end()?;
        env.insert(name, value.into());
    }
    let login = "a step uses the login of its host's container runtime: give the host's user that login, and remove the field";
    program.refuse(&[("imagePullSecret", login), ("image_pull_secret", login)])?;
    program.end()?;
    Ok(JobProgram {
        image,
        command,
        env,
    })
}

/// Reads the amounts of a job, with its pool and platform.
fn resources(file: &mut ForeignFields, notes: &mut Vec<String>) -> Result<NamedValues, String> {
    let Some(mut asked) = file.object("resources")? else {
        return Ok(Vec::new());
    };
    let pool = asked.text("pool")?;
    let mut amounts = Map::new();
    // A higher priority preempts a lower one in gpuctl, whatever the kind of job.
    amounts.insert("preemptible".to_owned(), true.into());
    let (gpus, accelerators) = (asked.count("gpu")?, asked.count("accelerator_count")?);
    if accelerators.is_some() && gpus.is_some_and(|gpus| Some(gpus) != accelerators) {
        return Err(asked.twice("accelerator_count", "gpu"));
    }
    if let Some(gpus) = gpus.or(accelerators).filter(|gpus| *gpus > 0) {
        amounts.insert("gpu_count".to_owned(), gpus.into());
    }
    if let Some(cpu) = asked.take("cpu") {
        amounts.insert("cpu_count".to_owned(), cores(&asked, "cpu", &cpu)?);
    }
    if let Some(memory) = asked.text("memory")? {
        amounts.insert("memory".to_owned(), memory.into());
    }
    let platform = match asked.take_spelled(&GPU_TYPE)? {
        None => None,
        Some(Value::String(kind)) if kind.is_empty() => None,
        Some(Value::String(kind)) => Some(platform(&asked, &kind, notes)?),
        Some(other) => return Err(asked.wrong(GPU_TYPE[0], &other, "write a text")),
    };
    let share = "GPUs are granted whole, or in slices that hardware keeps apart: ask for a slice by `sluice submit --mig PROFILE`, or remove the field";
    asked.refuse(&[
        ("gpuShare", share),
        ("gpu_share", share),
        ("gpu-share", share),
    ])?;
    asked.end()?;
    Ok(vec![
        ("pool", pool.into()),
        ("platform", platform.into()),
        ("resources", amounts.into()),
    ])
}

/// Returns the platform of a kind of GPU, such as `a100` of `A100-80G`.
fn platform(asked: &ForeignFields, kind: &str, notes: &mut Vec<String>) -> Result<String, String> {
    let (model, memory) = split_kind(kind);
    let platform = platform_of(model);
    if platform.is_empty() {
        let way = "write a model, such as `A100-80G`";
        return Err(asked.wrong(GPU_TYPE[0], &kind.into(), way));
    }
    if memory.is_some() {
        notes.push(format!(
            "{}: `{}` is read as platform `{platform}`, whatever its memory: declare a platform with `gpu_memory` to tell \
             them apart",
            asked.path(GPU_TYPE[0]),
            safe(kind)
        ));
    }
    Ok(platform)
}

/// Returns the short name of a model as the agent derives it, of `RTX4090` too.
fn platform_of(model: &str) -> String {
    let name = slug(model);
    match name.strip_prefix("rtx") {
        Some(number) if number.starts_with(|c: char| c.is_ascii_digit()) => format!("rtx-{number}"),
        _ => name,
    }
}

fn mounts(file: &mut ForeignFields) -> Result<Value, String> {
    let Some(mut storage) = file.object("storage")? else {
        return Ok(Value::Null);
    };
    let mut mounts = Vec::new();
    for mut dir in storage.objects("workdirs")? {
        mounts.push(json!({"source": dir.needed("path")?}));
        dir.end()?;
    }
    storage.end()?;
    Ok(match mounts.is_empty() {
        true => Value::Null,
        false => mounts.into(),
    })
}

/// Splits a kind of GPU such as `A100-80G` into the model and the memory in bytes, if that is told.
fn split_kind(kind: &str) -> (&str, Option<u64>) {
    let parts = kind.rsplit_once('-').and_then(|(model, memory)| {
        let number = memory.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = memory[number.len()..].to_ascii_uppercase();
        let is_memory = ["G", "GB", "GI", "GIB"].contains(&unit.as_str());
        let bytes = parse_memory(&format!("{number}GiB")).ok();
        Some((model, bytes.filter(|_| is_memory)?))
    });
    match parts {
        Some((model, bytes)) => (model, Some(bytes)),
        None => (kind, None),
    }
}

/// Explains how the GPUs of a node differ from the declared kind, if they do. Makers round memory up, so a tenth less is
/// the same.
pub(crate) fn difference(declared: &str, node: &NodeView) -> Option<String> {
    let (model, memory) = split_kind(declared.trim());
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', ' ', '_'], "");
    let wanted = plain(&platform_of(model));
    let same = |gpu: &GpuView| {
        let named = plain(&gpu.platform) == wanted || plain(&gpu.model) == plain(declared);
        let near = |bytes: u64| gpu.memory_bytes.abs_diff(bytes) <= bytes / 10;
        named && memory.is_none_or(near)
    };
    let other: Vec<_> = node
        .inventory
        .gpus
        .iter()
        .filter(|gpu| !same(gpu))
        .collect();
    let has = match other.first() {
        None if node.inventory.gpus.is_empty() && !declared.is_empty() => "no GPU".to_owned(),
        None => return None,
        Some(gpu) => format!("{} of {} GiB", safe(&gpu.model), gpu.memory_bytes >> 30),
    };
    let declared = match declared {
        "" => "no GPU".to_owned(),
        declared => format!("`{}`", safe(declared)),
    };
    Some(format!("the file says {declared}, and the host has {has}"))
}
