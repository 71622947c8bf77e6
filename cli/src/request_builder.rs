//! Builds requests from the flags of `run` and `submit`, or from the documents of a file. Values are checked here by
//! the API's own rules, so that errors name the flags.

pub(crate) mod names;

use std::path::{Path, PathBuf};

use sluice_common::error_code::ErrorCode;
use sluice_common::request::{FieldError, ResourceSettings, StepRequest};

use crate::args::{StepFlags, parse_moment};
use crate::context::ContextFile;
use crate::documents::{listed_steps, values};
use crate::env_file;
use crate::failure::Failure;

/// Digits and letters that are easy to distinguish.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Characters of a random id: 60 bits, so that ten million steps of a cluster do not collide.
const ID_CHARS: usize = 12;

/// Defaults for what a request leaves out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    subject: Option<String>,
    workdir: Option<String>,
}

impl Defaults {
    /// Takes the subject from the context and, if steps run on this machine, the current directory.
    pub(crate) fn of(context: &ContextFile) -> Result<Self, Failure> {
        let workdir = context.local.then(current_dir).transpose()?;
        Ok(Self {
            subject: context.subject.clone(),
            workdir,
        })
    }

    fn fill(&self, mut request: StepRequest) -> Result<StepRequest, Failure> {
        // The pipeline's own settings go before those of the context.
        let pipeline = request.defaults.as_deref();
        if pipeline.is_none_or(|it| it.subject.is_none()) {
            request.subject = request.subject.or_else(|| self.subject.clone());
        }
        request.workdir = match request.workdir {
            Some(dir) => Some(self.absolute(dir)?),
            None if pipeline.is_some_and(|it| it.workdir.is_some()) => None,
            None => self.workdir.clone(),
        };
        if request.id.is_none() {
            request.id = Some(fresh_id()?);
        }
        Ok(request)
    }

    /// Makes a directory absolute, which is possible only if steps run on this machine.
    fn absolute(&self, dir: String) -> Result<String, Failure> {
        match &self.workdir {
            Some(base) if !Path::new(&dir).is_absolute() => utf8(Path::new(base).join(dir)),
            _ => Ok(dir),
        }
    }
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
    getrandom::fill(&mut bytes)
        .map_err(|e| Failure::Failed(format!("no randomness to be had: {e}")))?;
    Ok(bytes
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
        .collect())
}

/// Builds the request of flags and command.
pub(crate) fn from_flags(
    flags: StepFlags,
    command: Vec<String>,
    defaults: &Defaults,
) -> Result<StepRequest, Failure> {
    let from_files = env_file::read_all(&flags.env_files)?;
    let request = defaults.fill(StepRequest {
        id: flags.id,
        name: flags.name,
        subject: flags.subject,
        pool: flags.pool,
        platform: flags.platform,
        command,
        env: from_files.into_iter().chain(flags.env).collect(),
        workdir: flags.workdir,
        resources: ResourceSettings {
            gpu_count: flags.gpus,
            mig: flags.mig,
            cpu_count: flags.cpus,
            memory: flags.memory,
            storage: flags.storage,
            preemptible: flags.non_preemptible.then_some(false),
            pool_resources: flags.resources.into_iter().collect(),
            ..ResourceSettings::default()
        },
        nodes: flags.nodes,
        within: flags.within.clone(),
        prefer_within: flags.prefer_within.clone(),
        priority: flags.priority,
        retries: flags.retries,
        timeout: flags.timeout.map(|span| span.to_string()),
        grace_period: flags.grace.map(|span| span.to_string()),
        queue_timeout: flags.queue_timeout.map(|span| span.to_string()),
        begin: flags.begin.map(|at| at.to_string()),
        deadline: flags.deadline.map(|at| at.to_string()),
        after: flags.after.iter().map(ToString::to_string).collect(),
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
        ..StepRequest::default()
    })?;
    check(&request).map_err(|e| Failure::Usage(format!("{}: {}", flag_of(&e.field), e.message)))?;
    Ok(request)
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
        after if after.starts_with("after") => "--after".to_owned(),
        other => format!("--{}", other.replace('_', "-")),
    }
}

/// Builds the requests of a YAML file's documents, in order.
pub(crate) fn from_yaml(
    text: &str,
    file: &str,
    defaults: &Defaults,
) -> Result<Vec<StepRequest>, Failure> {
    let documents: Vec<StepRequest> = match listed_steps(text, file) {
        Some(told) => told?,
        None => values(text, file)?,
    };
    if documents.is_empty() {
        return Err(Failure::Failed(format!(
            "{file}: there is no step in it: write `kind: step` and a `command`"
        )));
    }
    let several = documents.len() > 1;
    let at = |i: usize, e: FieldError| {
        let place = if several {
            format!("{file}, document {}", i + 1)
        } else {
            file.to_owned()
        };
        Failure::Failed(format!("{place}: {e}"))
    };
    let documents = documents.into_iter();
    let filled: Result<Vec<StepRequest>, Failure> = documents.map(|it| defaults.fill(it)).collect();
    let mut requests = filled?;
    names::resolve(&mut requests).map_err(|(i, e)| at(i, e))?;
    for (i, request) in requests.iter_mut().enumerate() {
        resolve_times(request).map_err(|e| at(i, e))?;
        check(request).map_err(|e| at(i, e))?;
    }
    Ok(requests)
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
    use crate::args::{Args, Command};
    use clap::Parser;

    fn typed(line: &str, defaults: &Defaults) -> Result<StepRequest, Failure> {
        let words = ["sluice", "run"].into_iter().chain(line.split(' '));
        let Command::Run(run) = Args::try_parse_from(words).unwrap().command else {
            panic!("`run` was typed");
        };
        from_flags(run.step, run.command, defaults)
    }

    fn local() -> Defaults {
        Defaults {
            subject: Some("dev".into()),
            workdir: Some("/home/me".into()),
        }
    }

    #[test]
    fn every_flag_finds_its_field() {
        let line = "--gpus 2 --cpus 0.5 --cpu-mode weight --memory 16GiB --resource tensorrt_sessions=3 --non-preemptible --pool p \
                    --platform h100 --nodes 2 --subject s --retries 1 --timeout 2h --grace 90s --on-preempt fail --suspend-timeout 3h --queue-timeout 0s \
                    --env A=1 --env B=x=y --label team=vision --allow-pending --workdir /w --name n --priority -5 --id mine -- python train.py";
        let request = typed(line, &local()).unwrap();
        let expected = serde_json::json!({
            "id": "mine", "name": "n", "subject": "s", "pool": "p", "platform": "h100",
            "command": ["python", "train.py"], "env": {"A": "1", "B": "x=y"}, "workdir": "/w",
            "resources": {"gpu_count": 2, "cpu_count": 0.5, "memory": "16GiB", "preemptible": false,
                          "pool_resources": {"tensorrt_sessions": 3}},
            "nodes": 2, "priority": -5, "retries": 1, "timeout": "2h", "grace_period": "1m30s", "suspend_timeout": "3h", "queue_timeout": "0s",
            "on_preempt": "fail", "labels": {"team": "vision"}, "cpu_mode": "weight", "allow_pending": true,
        });
        assert_eq!(serde_json::to_value(&request).unwrap(), expected);
    }

    #[test]
    fn a_local_cluster_gets_directory_and_subject_of_the_caller() {
        let request = typed("-- true", &local()).unwrap();
        assert_eq!(request.workdir.as_deref(), Some("/home/me"));
        assert_eq!(request.subject.as_deref(), Some("dev"));
        let request = typed("--workdir sub -- true", &local()).unwrap();
        assert_eq!(request.workdir.as_deref(), Some("/home/me/sub"));
        let request = typed("-- true", &Defaults::default()).unwrap();
        assert_eq!((request.workdir, request.subject), (None, None));
    }

    #[test]
    fn settings_of_the_pipeline_go_before_those_of_the_context() {
        let text = "kind: step\ncommand: [a]\ndefaults: {subject: prod, workdir: /srv}\n---\nkind: step\ncommand: [b]\ndefaults: {timeout: 1h}\n";
        let requests = from_yaml(text, "f", &local()).unwrap();
        let set = |it: &StepRequest| (it.subject.clone(), it.workdir.clone());
        assert_eq!(set(&requests[0]), (None, None));
        let own = (Some("dev".to_owned()), Some("/home/me".to_owned()));
        assert_eq!(set(&requests[1]), own);
    }

    #[test]
    fn ids_are_fresh_and_well_formed() {
        let ids: std::collections::BTreeSet<_> = (0..100)
            .map(|_| typed("-- true", &local()).unwrap().chosen_id().unwrap())
            .collect();
        assert_eq!(ids.len(), 100);
    }

    #[test]
    fn bad_values_are_usage_errors_in_the_words_of_the_flags() {
        for (line, words) in [
            ("--memory 8gb -- true", "--memory: `8gb`"),
            ("--cpus=1e12 -- true", "--cpus: 1000000000000"),
            ("--nodes 0 -- true", "--nodes: 0 hosts"),
            ("--env SLUICE_X=1 -- true", "--env SLUICE_X: "),
            ("--resource A=1 -- true", "--resource A: "),
            ("--label sluice/x=1 -- true", "--label sluice/x: "),
            ("--id ../x -- true", "--id: "),
        ] {
            let error = typed(line, &local()).unwrap_err();
            assert!(matches!(error, Failure::Usage(_)), "{line}");
            assert!(error.to_string().contains(words), "{line}: {error}");
        }
        let error = typed("--workdir sub -- true", &Defaults::default()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("--workdir: `sub` is not an absolute path"),
            "{error}"
        );
    }

    #[test]
    fn documents_become_requests_in_order() {
        let text = "kind: step\nname: a\ncommand: [sleep, 10]\nenv: {N: \"1\"}\nresources: {gpu_count: 1, cpu_count: 1}\n\
                    ---\nkind: step\nname: b\ncommand: [python, train.py]\nworkdir: /w\nsubject: s\n";
        let requests = from_yaml(text, "f", &local()).unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0].command, ["sleep", "10"]);
        assert_eq!(requests[0].workdir.as_deref(), Some("/home/me"));
        assert_eq!(requests[1].workdir.as_deref(), Some("/w"));
        assert_eq!(requests[1].subject.as_deref(), Some("s"));
        assert!(requests.iter().all(|request| request.id.is_some()));
    }

    #[test]
    fn a_bad_document_is_named_with_its_field() {
        for (text, words) in [
            (
                "kind: step\ncommand: [a]\n---\nkind: pool\ncommand: [a]\n",
                "f, document 2: kind: `pool`",
            ),
            ("command: [a]\ngpus: 1\n", "gpus"),
            (
                "command: [a]\nresources: {memory: 8 GB}\n",
                "f: resources.memory: `8 GB`",
            ),
            ("command: [a\n", "f:1: "),
            ("", "there is no step in it"),
        ] {
            let error = from_yaml(text, "f", &local()).unwrap_err();
            assert!(matches!(error, Failure::Failed(_)));
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
    }
}
