//! Builds requests from the flags of `run` and `submit` over a command, a script or a document. Values are checked here
//! by the API's own rules, so that errors name the flags.

pub(crate) mod names;

use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_common::error_code::ErrorCode;
use sluice_common::keep::needs_own_directory;
use sluice_common::probe::{HttpProbe, ProbeRequest, ProbesRequest};
use sluice_common::request::{FieldError, ResourceSettings, StepRequest};

use crate::args::{StepFlags, parse_moment};
use crate::context::ContextFile;
use crate::environment;
use crate::failure::Failure;

/// Digits and letters that are easy to distinguish.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Characters of a random id: 60 bits, so that ten million steps of a cluster do not collide.
const ID_CHARS: usize = 12;

/// Defaults for what a request leaves out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    subject: Option<String>,
    pool: Option<String>,
    /// Directory of the caller, if it has a name that can be sent.
    prefer_workdir: Option<String>,
}

/// Word for the directory that a step gets of its own.
const OWN_DIRECTORY: &str = "none";

impl Defaults {
    /// Takes subject and pool from the context, and the current directory.
    pub(crate) fn of(context: &ContextFile) -> Self {
        Self {
            subject: context.subject.clone(),
            pool: context.pool.clone(),
            prefer_workdir: current_dir().ok(),
        }
    }

    fn fill(&self, mut request: StepRequest) -> Result<StepRequest, Failure> {
        // The pipeline's own settings go before those of the context.
        let pipeline = request.defaults.as_deref().cloned();
        let pipeline = pipeline.as_ref();
        // An allocation has its own subject and pool.
        let is_outside = request.inside.is_none();
        if is_outside && pipeline.is_none_or(|it| it.subject.is_none()) {
            request.subject = request.subject.or_else(|| self.subject.clone());
        }
        if is_outside && pipeline.is_none_or(|it| it.pool.is_none()) {
            request.pool = request.pool.or_else(|| self.pool.clone());
        }
        match request.workdir.take() {
            Some(dir) if dir == OWN_DIRECTORY => {
                request.prefer_workdir = None;
                if let Some(pipeline) = &mut request.defaults {
                    (pipeline.workdir, pipeline.prefer_workdir) = (None, None);
                }
            }
            Some(dir) => request.workdir = Some(absolute(dir)?),
            None if pipeline.is_some_and(names_directory) => {}
            None if needs_own_directory(&request.inputs, &request.keep) => {
                request.prefer_workdir = None
            }
            None => {
                let own = request.prefer_workdir.take();
                request.prefer_workdir = own.or_else(|| self.prefer_workdir.clone());
            }
        }
        // `-` is what `run` sends.
        let file = request.stdin.take_if(|stdin| stdin != "-");
        if let Some(file) = file {
            request.stdin = Some(absolute(file)?);
        }
        if request.id.is_none() {
            request.id = Some(fresh_id()?);
        }
        Ok(request)
    }
}

fn names_directory(settings: &StepRequest) -> bool {
    settings.workdir.is_some() || settings.prefer_workdir.is_some()
}

/// Makes a path absolute, below the caller's directory.
fn absolute(path: String) -> Result<String, Failure> {
    if path.is_empty() || Path::new(&path).is_absolute() {
        return Ok(path);
    }
    utf8(Path::new(&current_dir()?).join(path))
}

fn current_dir() -> Result<String, Failure> {
    let dir = std::env::current_dir()
        .map_err(|e| Failure::Failed(format!("cannot tell the current directory: {e}")))?;
    utf8(dir)
}

fn utf8(path: PathBuf) -> Result<String, Failure> {
    path.into_os_string().into_string().map_err(|path| {
        let shown = path.to_string_lossy().into_owned();
        Failure::Usage(format!(
            "`{shown}` is not UTF-8: choose another directory with --workdir"
        ))
    })
}

/// Returns a random id.
pub(crate) fn fresh_id() -> Result<String, Failure> {
    random_text(ID_CHARS)
}

/// Returns an unguessable text of digits and letters with five random bits in each.
pub(crate) fn random_text(chars: usize) -> Result<String, Failure> {
    let mut bytes = vec![0; chars];
    fill_random(&mut bytes)?;
    Ok(bytes
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
        .collect())
}

/// Fills a buffer with unguessable bytes.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), Failure> {
    let filled = getrandom::fill(bytes);
    filled.map_err(|e| Failure::Failed(format!("the system has no random numbers: {e}")))
}

/// Returns the fields that flags set, to be laid over a command, a script or a document.
pub(crate) fn layer(flags: StepFlags) -> Result<StepRequest, Failure> {
    let resources = resources(&flags);
    let env = environment::chosen(flags.env_all, &flags.env_files, flags.env)?;
    Ok(StepRequest {
        id: flags.id,
        name: flags.name,
        subject: flags.subject,
        pool: flags.pool,
        platform: flags.platform,
        env: env.into_iter().collect(),
        workdir: flags.workdir,
        image: flags.image,
        resources: resources.into(),
        nodes: flags.nodes,
        within: flags.within,
        prefer_within: flags.prefer_within,
        priority: flags.priority,
        retries: flags.retries,
        timeout: flags.timeout.map(|span| span.to_string()),
        grace_period: flags.grace.map(|span| span.to_string()),
        queue_timeout: flags.queue_timeout.map(|span| span.to_string()),
        begin: flags.begin.map(|at| at.to_string()),
        deadline: flags.deadline.map(|at| at.to_string()),
        after: flags.after.iter().map(ToString::to_string).collect(),
        array: flags.array.map(|array| array.to_string()),
        suspend_timeout: flags.suspend_timeout.map(|span| span.to_string()),
        on_preempt: flags.on_preempt,
        priority_class: flags.priority_class,
        work: flags.work,
        allow_pending: flags.allow_pending.then_some(true),
        labels: flags.labels.into_iter().collect(),
        cpu_mode: flags.cpu_mode,
        mounts: (!flags.mounts.is_empty()).then(|| flags.mounts.into()),
        privileged: flags.privileged.then_some(true),
        host_network: flags.host_network.then_some(true),
        stdin: flags.stdin,
        stdout: flags.stdout,
        stderr: flags.stderr,
        append: flags.append.then_some(true),
        terminal: flags.terminal.then_some(true),
        inputs: flags.input_files,
        keep: flags.keep,
        ports: flags.ports,
        probes: flags.ready_when.as_deref().map(ready_when),
        ..StepRequest::default()
    })
}

/// The probe of `--ready-when`.
fn ready_when(written: &str) -> ProbesRequest {
    let mut probe = ProbeRequest::default();
    match written.split_once(':') {
        Some((port, path)) => {
            let (path, port) = (path.to_owned(), port.to_owned());
            probe.http = Some(HttpProbe { path, port });
        }
        None => probe.tcp = Some(written.to_owned()),
    }
    ProbesRequest {
        readiness: Some(probe),
        liveness: None,
    }
}

fn resources(flags: &StepFlags) -> ResourceSettings {
    ResourceSettings {
        gpu_count: flags.gpus,
        mig: flags.mig.clone(),
        cpu_count: flags.cpus,
        memory: flags.memory.clone(),
        storage: flags.storage.clone(),
        preemptible: flags.non_preemptible.then_some(false),
        pool_resources: flags.resources.iter().cloned().collect(),
        ..ResourceSettings::default()
    }
}

/// Lays the flags over what they change, fills in the defaults and checks the whole.
///
/// # Errors
/// If a field is invalid: in the words of the flag that sets it, or else as `elsewhere` puts it.
pub(crate) fn settle(
    flags: StepRequest,
    below: StepRequest,
    defaults: &Defaults,
    elsewhere: impl Fn(&FieldError) -> Failure,
) -> Result<StepRequest, Failure> {
    let sets = serde_json::to_value(&flags).unwrap_or_default();
    // Neither is inherited, because both are a document's own.
    let own = StepRequest {
        id: flags.id.clone().or_else(|| below.id.clone()),
        kind: below.kind.clone().filter(|_| flags.work.is_none()),
        ..flags
    };
    let mut request = defaults.fill(own.over(below))?;
    match resolve_times(&mut request).and_then(|()| check(&request)) {
        Ok(()) => Ok(request),
        Err(e) if is_set(&sets, &e.field) => {
            let flag = flag_of(&e.field);
            Err(Failure::Usage(format!("{flag}: {}", e.message)))
        }
        Err(e) => Err(elsewhere(&e)),
    }
}

/// Whether a request sets the field of this path. A key may contain dots.
fn is_set(request: &Value, field: &str) -> bool {
    let Value::Object(fields) = request else {
        return false;
    };
    let whole = field.split('[').next().unwrap_or(field);
    match (fields.get(whole), whole.split_once('.')) {
        (Some(Value::Object(keys)), _) => !keys.is_empty(),
        (Some(Value::Array(items)), _) => !items.is_empty(),
        (Some(_), _) => true,
        (None, Some((first, rest))) => fields.get(first).is_some_and(|below| is_set(below, rest)),
        (None, None) => false,
    }
}

fn check(request: &StepRequest) -> Result<(), FieldError> {
    request.chosen_id()?;
    request.clone().check().map(drop)
}

/// Returns the flag of a field.
fn flag_of(field: &str) -> String {
    if let Some(key) = field.strip_prefix("resources.pool_resources.") {
        return format!("--resource {key}");
    }
    if let Some(name) = field.strip_prefix("env.") {
        return format!("--env {name}");
    }
    if let Some(key) = field.strip_prefix("labels.") {
        return format!("--label {key}");
    }
    match field {
        "command" => "the command".to_owned(),
        "resources.gpu_count" => "--gpus".to_owned(),
        mig if mig.starts_with("resources.mig") => "--mig".to_owned(),
        "resources.cpu_count" => "--cpus".to_owned(),
        "resources.memory" => "--memory".to_owned(),
        "resources.storage" => "--storage".to_owned(),
        mounts if mounts.starts_with("mounts") => "--mount".to_owned(),
        "grace_period" => "--grace".to_owned(),
        inputs if inputs.starts_with("inputs") => "--input".to_owned(),
        keep if keep.starts_with("keep") => "--keep".to_owned(),
        ports if ports.starts_with("ports") => "--port".to_owned(),
        probes if probes.starts_with("probes") => "--ready-when".to_owned(),
        after if after.starts_with("after") => "--after".to_owned(),
        other => format!("--{}", other.replace('_', "-")),
    }
}

/// Puts points in time in place of `2h`, `18:30` and the other forms that the command line takes.
fn resolve_times(request: &mut StepRequest) -> Result<(), FieldError> {
    let now = jiff::Zoned::now();
    let times = [
        ("begin", &mut request.begin),
        ("deadline", &mut request.deadline),
    ];
    for (field, time) in times {
        if let Some(text) = time {
            let at = parse_moment(text, &now);
            let at = at.map_err(|e| FieldError::new(ErrorCode::InvalidTime, field, e))?;
            *text = at.to_string();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_path_whatever_its_key_holds() {
        let request = serde_json::json!({
            "resources": {"memory": "8gb", "pool_resources": {}},
            "labels": {"example.com/x": "1"}, "command": [],
        });
        for (field, expected) in [
            ("resources.memory", true),
            ("resources.gpu_count", false),
            ("labels.example.com/x", true),
            ("command", false),
            ("nodes", false),
        ] {
            assert_eq!(is_set(&request, field), expected, "{field}");
        }
    }
}
