//! A step as submitted in JSON or YAML, and the validation that turns it into a [`StepSpec`].
//!
//! Errors come from two layers: serde rejects unknown fields and wrong types, and [`StepRequest::check`] rejects
//! invalid values with the field, the value and what to write instead.

mod allocation;
mod autoscaling;
mod command;
mod cpu_mode;
mod demand;
mod inside_allocation;
mod labels;
mod layers;
mod placement;
mod resources;
mod service;
mod streams;
mod times;
mod work_kind;
mod zenml;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

pub use crate::field_error::FieldError;
pub use autoscaling::AutoscalingRequest;
pub(crate) use command::check_command;
use command::{check_directory, check_surroundings};
pub use demand::{ResourceDemand, ResourceDemands};
use placement::{check_image, check_nodes, check_platform, check_within};
pub use resources::ResourceSettings;
pub use service::{RolloutRequest, load_milli, replicas};
use times::{check_grace, check_queue_timeout, check_suspend_timeout, check_timeout, check_times};

use crate::allocation::ReclaimTolerance;
use crate::amount::{
    Amounts, MCPU, MEMORY_MB, MGPU, MGPU_A_GPU, ResourceKey, STEP_RUN, STORAGE_MB,
    ceil_thousandths, megabytes_up, parse_memory,
};
use crate::array::{ArraySpec, MAX_ARRAY_ID_BYTES};
use crate::dependency::check_dependencies;
use crate::environment::Environment;
use crate::error_code::ErrorCode;
use crate::id::{PoolName, StepId, Subject};
use crate::inputs::{InputFile, check_inputs};
use crate::keep::check_keep;
use crate::limit::MAX_AMOUNT;
use crate::pool::HostPlacement;
use crate::port::check_ports;
use crate::probe::{ProbesRequest, check_probes};
use crate::processors::CpuMode;
use crate::quantity::quantity;
use crate::shared::Shared;
use crate::step::{OnPreempt, PriorityClass, StepSpec, WorkKind};
use crate::template::{LayeredList, Mount, check::check_mounts};

/// Request body of a submit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct StepRequest {
    /// Kind of the document: `step`, or a kind of work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Step id chosen by the client, so that a repeated submit is harmless; generated if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Display name; the program's name if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The subject on whose behalf the step is submitted; `default` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The only pool that the step may run in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Platform, or several separated by `,` with the most preferred first; `any` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment variables of the step.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: Environment,
    /// Working directory: an absolute path on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Working directory if neither the step nor a template names one, the host has it and the step's user may enter it;
    /// else a directory of its own. An absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer_workdir: Option<String>,
    /// Image in which the program runs, on hosts that have a container runtime for it: a reference such as
    /// `docker.io/library/python:3.12`, or the absolute path of a `.sif` or `.sqsh` file or of a directory with a root file
    /// system on the host. The host itself if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Requested resources per host.
    pub resources: Shared<ResourceSettings>,
    /// Number of hosts; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Level of the topology within which all hosts must be, such as `rack`: the step waits until one domain of the level
    /// has room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Level of the topology within which all hosts are if one domain of the level has room; else the step starts on hosts
    /// of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer_within: Option<String>,
    /// Order among the steps of the same subject, higher first; 0 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Number of retries after own failures; 0 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Longest run time, such as `2h`; unlimited if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Time between the stop signal and the kill; `30s` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<String>,
    /// Action taken on preemption; `requeue` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_preempt: Option<OnPreempt>,
    /// Whether to wait, instead of being rejected, while no host could hold the step; `false` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_pending: Option<bool>,
    /// If true (default), preemptions and lost hosts do not count against `retries`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_preemptions: Option<bool>,
    /// Shorthand for `resources.preemptible` and `priority`: `high` and `normal` stay in the reserved share and are not
    /// preemptible, `low` borrows and is preemptible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<PriorityClass>,
    /// Kind of work, which determines defaults of other fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkKind>,
    /// Settings inherited from what the step belongs to, such as its pipeline. The step's own fields override them one
    /// by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Box<StepRequest>>,
    /// Longest time suspended before the step is stopped and queued again, such as `2h`. If absent, one hour, or
    /// unlimited while a user holds the step suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend_timeout: Option<String>,
    /// Longest time in the queue before the step fails, such as `10m`; unlimited if absent. Counted from each time the
    /// step is queued. With `0s` the step starts at once or fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<String>,
    /// Time before which the step does not start, such as `2026-12-01T08:00:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<String>,
    /// Time after which the step does not start any more, such as `2026-12-01T20:00:00Z`: it fails if it is queued then,
    /// for the first time or again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Steps after which this one starts: `ID` or `ID:ok` if that one must have succeeded, `ID:any` if it must have ended
    /// in any way, `ID:failed` if it must have ended in any other way than success.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Indexes of an array, such as `0-999%50`: the step is run once for each index, as a part of the array with the id
    /// `ID.INDEX`, and at most as many parts as follow `%` are at work at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// Labels in the grammar of Kubernetes, for filters and validation rules.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Mode in which the step gets the cores of `resources.cpu_count`: at most that much CPU time (`limit`, the
    /// default), a share by `weight`, or whole cores of its own (`pinned`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_mode: Option<CpuMode>,
    /// Mounts for the step's wrapper, added to those of the pool's templates and overriding them by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounts: Option<LayeredList<Mount>>,
    /// Whether the wrapper should give the step root privileges; `false` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
    /// Whether the wrapper should leave the step in the host's network; `false` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
    /// Standard input: a file of the host as an absolute path, opened as the step's user, or `-` for what callers send
    /// while the step runs, as `sluice run` does; empty if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// File of the host that gets standard output too, opened as the step's user: an absolute path, or one below `workdir`.
    /// `%j` stands for the id of the step, `%x` for its name, `%A` for the id of its array, `%a` for its index there, `%N`
    /// for the node, `%t` for the rank, `%u` for the user of the host, `%%` for `%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// File of the host that gets standard error too; may be that of `stdout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Whether the files of `stdout` and `stderr` keep what they have; `false` if absent. Attempts after the first always
    /// append.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append: Option<bool>,
    /// Whether the program gets a terminal as its three streams; `false` if absent. Callers send its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<bool>,
    /// Files that the step gets into its own directory before its program starts; not together with `workdir`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputFile>,
    /// Files in the step's own directory that its host keeps after the end, such as `out/*.pt`; not together with `workdir`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// Names of the ports that the step gets on each host, such as `http`; their numbers are in its variables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Probes by which its hosts find out whether it is ready, and whether it still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbesRequest>,
    /// Time until its holder must renew it, such as `2m`. With it, this is an allocation: it has no command, and holds its
    /// resources until it is released or no longer renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Terms on which an allocation may be taken back from its holder; a short form of `resources.preemptible` and `grace_period`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_tolerance: Option<ReclaimTolerance>,
    /// Id of an allocation: the step runs inside it, with resources of it, on its hosts, and ends with it at the latest. A step
    /// that asks for no resources gets all that the allocation has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// Number of replicas of a service; `resources.min_replicas` and `max_replicas` instead if it is to change by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u64>,
    /// Terms of a change of a service to another version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutRequest>,
    /// Hosts of the replicas of a service: with `spread` (the default) those without another replica first, with `pack` those
    /// that any step of the pool would get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<HostPlacement>,
    /// Terms by which the number of replicas of a service follows its load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<AutoscalingRequest>,
}

impl StepRequest {
    /// The id that the client chose, if any.
    ///
    /// # Errors
    /// If it is not a well-formed id.
    pub fn chosen_id(&self) -> Result<Option<StepId>, FieldError> {
        let wrong = |e: &dyn core::fmt::Display| FieldError::new(ErrorCode::InvalidId, "id", e);
        let id = self.id.as_ref().map(|id| StepId::new(id.as_str()));
        let id = id.transpose().map_err(|e| wrong(&e))?;
        let is_long = |id: &&StepId| id.as_str().len() > MAX_ARRAY_ID_BYTES;
        if let Some(id) = id.as_ref().filter(is_long).filter(|_| self.array.is_some()) {
            return Err(wrong(&format!(
                "`{id}` is too long for an array, whose parts have the ids `{id}.INDEX`: write at most {MAX_ARRAY_ID_BYTES} bytes"
            )));
        }
        Ok(id)
    }

    /// Checks every field and fills in every default.
    ///
    /// # Errors
    /// The first invalid field, in the order of this type.
    pub fn check(self) -> Result<StepSpec, FieldError> {
        let inherited = self.inherited();
        let spec = self.with_defaults()?.check_with_defaults()?;
        Ok(StepSpec { inherited, ..spec })
    }

    fn check_with_defaults(mut self) -> Result<StepSpec, FieldError> {
        self.refuse_service_fields()?;
        self.take_zenml_settings()?;
        let lease = self.take_lease()?;
        let inside = self.take_inside()?;
        self.work = self.work_kind()?;
        let subject = self.subject.as_deref().unwrap_or("default");
        let subject = Subject::new(subject)
            .map_err(|e| FieldError::new(ErrorCode::InvalidSubject, "subject", e))?;
        if subject.is_everyone() {
            let why = "`*` is for policies alone: name the subject of this step";
            return Err(FieldError::new(ErrorCode::InvalidSubject, "subject", why));
        }
        let pool = self.pool.clone();
        let pool = pool
            .map(PoolName::new)
            .transpose()
            .map_err(|e| FieldError::new(ErrorCode::InvalidPool, "pool", e))?;
        check_platform(self.platform.as_deref())?;
        self.check_program(lease.is_some())?;
        let request = self.resources.demand()?;
        let cpu_mode = self.checked_cpu_mode(&request)?;
        let name = self.title()?;
        let preemptible = self.is_preemptible()?;
        let (priority, retries) = (self.own_priority(), self.own_retries());
        let (begin, deadline) = check_times(self.begin.as_deref(), self.deadline.as_deref())?;
        let streams = self.checked_streams()?;
        let ports = check_ports(&self.ports)?;
        let inputs = check_inputs(core::mem::take(&mut self.inputs), self.workdir.is_some())?;
        Ok(StepSpec {
            keep: check_keep(&self.keep, self.workdir.is_some())?,
            unset: self.unset_settings(),
            name,
            subject,
            // Set by the API, which authenticates the caller.
            submitted_by: None,
            pool,
            platform: self.platform,
            command: self.command,
            env: self.env,
            prefer_workdir: self.prefer_workdir.filter(|_| self.workdir.is_none()),
            workdir: self.workdir,
            image: check_image(self.image.as_deref())?,
            request,
            preemptible,
            resources: self.resources,
            nodes: check_nodes(self.nodes, inside.is_some())?,
            within: check_within(self.within, self.prefer_within)?,
            priority,
            retries,
            suspend_timeout: check_suspend_timeout(self.suspend_timeout.as_deref())?,
            queue_timeout: check_queue_timeout(self.queue_timeout.as_deref())?,
            begin,
            deadline,
            after: check_dependencies(&self.after, self.array.is_some())?,
            array: ArraySpec::check(self.array.as_deref())?,
            timeout: check_timeout(self.timeout.as_deref())?,
            grace: check_grace(self.grace_period.as_deref())?,
            on_preempt: self.on_preempt.unwrap_or_default(),
            allow_pending: self.allow_pending.unwrap_or(false),
            free_preemptions: self.free_preemptions.unwrap_or(true),
            priority_class: self.priority_class,
            work: self.work,
            labels: labels::checked(self.labels)?,
            cpu_mode,
            mounts: check_mounts("mounts", self.mounts)?,
            privileged: self.privileged.unwrap_or(false),
            host_network: self.host_network.unwrap_or(false),
            streams: streams.into(),
            inputs,
            inputs_by: None,
            probes: check_probes(self.probes, &ports)?.into(),
            ports,
            lease,
            inside,
            service: None,
            inherited: BTreeSet::new(),
        })
    }

    /// Checks the command, with the environment and the directory in which it runs.
    fn check_program(&self, is_allocation: bool) -> Result<(), FieldError> {
        check_directory("prefer_workdir", self.prefer_workdir.as_deref())?;
        let workdir = self.workdir.as_deref().or(self.prefer_workdir.as_deref());
        match is_allocation {
            true => check_surroundings(&[], &self.env, workdir),
            false => check_command(&self.command, &self.env, workdir),
        }
    }

    /// The display name: the own one, or else that of the program.
    fn title(&self) -> Result<String, FieldError> {
        let name = match (&self.name, self.command.first()) {
            (Some(name), _) => name.clone(),
            (None, Some(program)) => default_name(program),
            (None, None) => "allocation".to_owned(),
        };
        if name.is_empty() || name.chars().count() > MAX_TITLE_CHARS {
            return Err(FieldError::new(
                ErrorCode::InvalidName,
                "name",
                format!("write 1 to {MAX_TITLE_CHARS} characters"),
            ));
        }
        Ok(name)
    }
}

/// Longest display name, in characters.
const MAX_TITLE_CHARS: usize = 200;

fn default_name(program: &str) -> String {
    let file = program
        .rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or("step");
    file.chars().take(MAX_TITLE_CHARS).collect()
}

impl ResourceSettings {
    /// Demand per host in units of the resource keys, rounded up to whole units.
    ///
    /// # Errors
    /// If a field is invalid.
    pub fn demand(&self) -> Result<Amounts, FieldError> {
        let mut demand = Amounts::new();
        for (name, amount) in &self.pool_resources {
            let field = || format!("resources.pool_resources.{}", name.escape_default());
            let of_field = |code, e: &dyn core::fmt::Display| FieldError::new(code, field(), e);
            let (key, amount) = match name.as_str() {
                "cpu" => (MCPU, amount.saturating_mul(1000)),
                "gpu" => (MGPU, amount.saturating_mul(MGPU_A_GPU)),
                "memory" | "storage" => {
                    let why = format!("write `resources.{name}` with a unit, such as `64GiB`");
                    return Err(of_field(ErrorCode::InvalidAmount, &why));
                }
                name => (name, *amount),
            };
            let key = ResourceKey::new(key);
            let key = key.map_err(|e| of_field(ErrorCode::InvalidResourceKey, &e))?;
            demand.set(key, check_amount(amount, field)?);
        }
        if let Some(gpus) = self.gpu_count {
            check_amount(gpus, || "resources.gpu_count".to_owned())?;
            demand = demand.with_gpus(gpus);
        }
        if let Some(mig) = &self.mig {
            refuse_both(demand.get(MGPU))?;
            let slices = check_slices(mig.count)?;
            demand = demand.with(MGPU, slices.saturating_mul(mig.profile.mgpu()));
        }
        if let Some(cores) = self.cpu_count {
            demand = demand.with(MCPU, millicores(cores)?);
        }
        if let Some(memory) = &self.memory {
            let bytes = parse_memory(memory)
                .map_err(|e| FieldError::new(ErrorCode::InvalidMemory, "resources.memory", e))?;
            demand = demand.with(MEMORY_MB, megabytes_up(bytes));
        }
        if let Some(storage) = &self.storage {
            let bytes = parse_memory(storage)
                .map_err(|e| FieldError::new(ErrorCode::InvalidStorage, "resources.storage", e))?;
            demand = demand.with(STORAGE_MB, megabytes_up(bytes));
        }
        Ok(demand.with(STEP_RUN, 1))
    }
}

/// A request is for whole GPUs or for slices of them.
fn refuse_both(mgpu: u64) -> Result<(), FieldError> {
    if mgpu == 0 {
        return Ok(());
    }
    let message = format!(
        "the step asks for {} as well: CUDA does not use slices and whole GPUs together, so leave out \
         `mig` or `gpu_count`",
        quantity(MGPU, mgpu)
    );
    Err(FieldError::new(
        ErrorCode::InvalidAmount,
        "resources.mig",
        message,
    ))
}

fn check_slices(count: u64) -> Result<u64, FieldError> {
    let field = || "resources.mig.count".to_owned();
    if count == 0 {
        let message = "0 slices: write 1 or more, or leave out `mig`";
        return Err(FieldError::new(ErrorCode::InvalidAmount, field(), message));
    }
    check_amount(count, field)
}

fn check_amount(amount: u64, field: impl Fn() -> String) -> Result<u64, FieldError> {
    if amount <= MAX_AMOUNT {
        return Ok(amount);
    }
    Err(FieldError::new(
        ErrorCode::InvalidAmount,
        field(),
        format!("{amount} is more than can be counted: the maximum is {MAX_AMOUNT}"),
    ))
}

/// Converts cores to thousandths, rounded up. Decimals occur only in requests; everywhere else amounts are integers.
fn millicores(cores: f64) -> Result<u64, FieldError> {
    const MOST: f64 = 1_000_000_000.0;
    if !(cores.is_finite() && (0.0..=MOST).contains(&cores)) {
        let message =
            format!("{cores} is not a number of cores: write 0 to {MOST}, in steps of 0.001");
        return Err(FieldError::new(
            ErrorCode::InvalidCpuCount,
            "resources.cpu_count",
            message,
        ));
    }
    Ok(ceil_thousandths(cores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::DEFAULT_GRACE;
    use crate::time::Span;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn request(json: &str) -> StepRequest {
        serde_json::from_str(json).unwrap()
    }

    fn refusal(json: &str) -> FieldError {
        request(json).check().unwrap_err()
    }

    #[test]
    fn a_full_request_becomes_its_demand() {
        let spec = request(
            r#"{"command":["python","train.py"],"resources":{"gpu_count":3,"cpu_count":0.5,"memory":"16GiB",
               "pool_resources":{"gpu":9,"tensorrt_sessions":2}},"timeout":"1h","nodes":2}"#,
        )
        .check()
        .unwrap();
        let request = &spec.request;
        assert_eq!(
            request.get(MGPU),
            3000,
            "the typed field wins over the custom key"
        );
        assert_eq!(request.get(MCPU), 500);
        assert_eq!(request.get(MEMORY_MB), 17_180);
        assert_eq!(request.get("tensorrt_sessions"), 2);
        assert_eq!(request.get(STEP_RUN), 1);
        assert!(spec.preemptible);
        assert_eq!(spec.timeout, Some(Span::from_secs(3600)));
        assert_eq!(spec.grace, DEFAULT_GRACE);
        assert_eq!((spec.name.as_str(), spec.nodes), ("python", 2));
    }

    #[test]
    fn each_bad_field_is_named_with_its_code() {
        for (json, code, field) in [
            (r#"{"command":[]}"#, "invalid_command", "command"),
            (r#"{"command":[""]}"#, "invalid_command", "command"),
            (
                r#"{"command":["a"],"resources":{"memory":"8gb"}}"#,
                "invalid_memory",
                "resources.memory",
            ),
            (
                r#"{"command":["a"],"resources":{"cpu_count":-1}}"#,
                "invalid_cpu_count",
                "resources.cpu_count",
            ),
            (
                r#"{"command":["a"],"resources":{"gpu_count":9223372036854775808}}"#,
                "invalid_amount",
                "resources.gpu_count",
            ),
            (
                r#"{"command":["a"],"resources":{"min_replicas":1}}"#,
                "unsupported_field",
                "resources.min_replicas",
            ),
            (
                r#"{"command":["a"],"replicas":2}"#,
                "unsupported_field",
                "replicas",
            ),
            (
                r#"{"command":["a"],"env":{"SLUICE_X":"1"}}"#,
                "reserved_env",
                "env.SLUICE_X",
            ),
            (
                r#"{"command":["a"],"workdir":"here"}"#,
                "invalid_workdir",
                "workdir",
            ),
            (
                r#"{"command":["a"],"platform":"h100,,a100"}"#,
                "invalid_platform",
                "platform",
            ),
            (r#"{"command":["a"],"nodes":0}"#, "invalid_nodes", "nodes"),
            (
                r#"{"command":["a"],"timeout":"0s"}"#,
                "invalid_duration",
                "timeout",
            ),
            (
                r#"{"command":["a"],"subject":"a/b"}"#,
                "invalid_subject",
                "subject",
            ),
            (r#"{"command":["a"],"kind":"pool"}"#, "invalid_kind", "kind"),
        ] {
            let error = refusal(json);
            assert_eq!(
                (error.code.as_str(), error.field.as_str()),
                (code, field),
                "{json}"
            );
        }
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        let error = serde_json::from_str::<StepRequest>(r#"{"resources":{"gpus":1}}"#)
            .unwrap_err()
            .to_string();
        assert!(error.contains("unknown field `gpus`"), "{error}");
    }

    #[test]
    fn defaults_of_services_are_accepted() {
        let json = r#"{"command":["a"],"resources":{"min_replicas":0,"autoscaling_metric":null}}"#;
        assert!(request(json).check().is_ok());
    }

    #[test]
    fn millicores_round_up_but_not_by_a_float_s_last_bit() {
        for (cores, expected) in [
            (0.1, 100),
            (0.0001, 1),
            (1.0, 1000),
            (2.5, 2500),
            (0.3, 300),
            (1.0005, 1001),
        ] {
            assert_eq!(millicores(cores).unwrap(), expected, "{cores}");
        }
        assert!(millicores(f64::NAN).is_err());
        assert_eq!(default_name("/usr/bin/"), "bin");
        assert_eq!(vec![default_name("/")], vec!["step"]);
    }

    proptest! {
        #[test]
        fn thousandths_are_exact(n in 0u64..1_000_000_000) {
            prop_assert_eq!(millicores(n as f64 / 1000.0).unwrap(), n);
        }
    }
}
