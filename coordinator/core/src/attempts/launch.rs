//! Builds the assignment that starts a step on a host: the step's own command, environment and directory on top of
//! the templates of the place where it was granted, with variables filled in.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::amount::{BYTES_PER_MEGABYTE, MCPU, MEMORY_MB, STORAGE_MB};
use sluice_common::array::ArraySpec;
use sluice_common::container::{Container, ContainerMount};
use sluice_common::directory_refusal::DirectoryRefusal;
use sluice_common::environment::Environment;
use sluice_common::id::AttemptId;
use sluice_common::inventory::Gpu;
use sluice_common::keep::needs_own_directory;
use sluice_common::probe::Probes;
use sluice_common::step::StepSpec;
use sluice_common::streams::{PathVariable, StepStreams};
use sluice_common::submitter::Submitter;
use sluice_common::template::Mount;
use sluice_common::template::origin::MergedTemplate;
use sluice_common::template::variable::Variable;
use sluice_common::warrant::SealedWarrant;
use sluice_common::wire::{Assignment, Gang};

use crate::model::node::Node;
use crate::model::step::{Attempt, Part, Step};
use crate::state::State;
use crate::state::granted::of_model;

/// Argument of NUMA programs if the nodes of the GPUs are unknown.
const EVERY_NUMA_NODE: &str = "all";

/// Builds the assignment of one part of an attempt.
pub(crate) fn assignment(
    id: &AttemptId,
    (step, attempt, part): (&Step, &Attempt, &Part),
    state: &State,
    gang: Gang,
) -> Assignment {
    let spec = &step.spec;
    let node = state.node(&part.node);
    let platforms = state.granted(step, attempt, part);
    let merged = step.provenance.at(&attempt.pool, &platforms);
    let nothing = MergedTemplate::default();
    let template = &merged.unwrap_or(&nothing).template;
    let platform = platforms.first().cloned();
    let platform = platform.or_else(|| node.map(|node| of_model(part, node)));
    let cluster = state.epoch().map(|epoch| epoch.cluster.to_string());
    let value = |variable| match variable == Variable::Platform {
        true => platform.as_ref().map(ToString::to_string),
        false if variable == Variable::Cluster => cluster.clone(),
        false => value(variable, id, (step, attempt, part), node, &gang),
    };
    let in_own = needs_own_directory(&spec.inputs, &spec.keep);
    let workdir = match in_own {
        true => None,
        false => template.workdir_of(spec, value),
    };
    let prefer_workdir = spec.prefer_workdir.clone();
    let is_free = workdir.is_none() && !in_own && !template.uses_workdir();
    let value = |variable| match variable == Variable::Workdir {
        true => workdir.clone(),
        false => value(variable),
    };
    let launch = template.launch(spec, value);
    let streams = streams(id, step, part, gang.rank);
    Assignment {
        streams,
        container: container(spec, || template.mounts_of(spec, value)),
        attempt: id.clone(),
        pool: attempt.pool.clone(),
        command: spec.command.clone(),
        env: with_index(state, step),
        gpus: part.gpus.clone(),
        timeout: spec.timeout,
        grace: spec.grace,
        subject: spec.subject.clone(),
        // The driver of the core seals the submitter.
        submitter: spec.submitted_by.clone().map(Submitter::from),
        resources: spec.request.clone(),
        cpu_mode: spec.cpu_mode,
        workdir,
        prefer_workdir: prefer_workdir.filter(|_| is_free),
        gang,
        launch,
        inputs: spec.inputs.clone(),
        keep: spec.keep.clone(),
        ports: spec.ports.clone(),
        probes: Probes::clone(&spec.probes),
        is_measured: spec.service.is_some(),
        // The driver of the core seals the warrant: see `State::warrant`.
        warrant: SealedWarrant::default(),
    }
}

/// Why a part that runs does not work in the directory that its step prefers, if so: for a reason of its host, or
/// because of a template.
pub(crate) fn workdir_refused(
    state: &State,
    (step, attempt, part): (&Step, &Attempt, &Part),
) -> Option<DirectoryRefusal> {
    let started = part.started?;
    step.spec.prefer_workdir.as_ref()?;
    if !step.provenance.uses_workdir() {
        return started.workdir_refused;
    }
    let platforms = state.granted(step, attempt, part);
    let merged = step.provenance.at(&attempt.pool, &platforms);
    let template = merged.map(|merged| &merged.template);
    let is_used = template.is_some_and(|it| it.workdir.is_none() && it.uses_workdir());
    is_used
        .then_some(DirectoryRefusal::Template)
        .or(started.workdir_refused)
}

/// The container of a step with an image. The host chooses the runtime.
fn container(spec: &StepSpec, mounts: impl Fn() -> Vec<Mount>) -> Option<Container> {
    let image = spec.image.clone()?;
    Some(Container {
        image,
        runtime: None,
        mounts: mounts().iter().map(ContainerMount::from).collect(),
    })
}

fn granted_gpus<'a>(part: &'a Part, node: &'a Node) -> impl Iterator<Item = &'a Gpu> {
    let gpus = node.inventory.gpus.iter();
    gpus.filter(|gpu| part.gpus.contains(&gpu.uuid))
}

/// The streams of one part of an attempt. The host knows the user that runs it. Attempts after the first append to files,
/// because those have the output of the attempts before.
fn streams(id: &AttemptId, step: &Step, part: &Part, rank: u32) -> StepStreams {
    let of_array = step.part_of.as_ref();
    let streams = step.spec.streams.of_rank(rank);
    let streams = streams.filled(|letter| {
        Some(match letter {
            PathVariable::Array => of_array.map_or(&id.step, |it| &it.array).to_string(),
            PathVariable::Index => of_array?.index.to_string(),
            PathVariable::Step => id.step.to_string(),
            PathVariable::Node => part.node.to_string(),
            PathVariable::Rank => rank.to_string(),
            PathVariable::Name => step.spec.name.clone(),
            PathVariable::User => return None,
        })
    });
    StepStreams {
        append: streams.append || id.number > 1,
        ..streams
    }
}

/// The variables of a step; those of a part of an array tell its index and the array, those of a step inside an allocation
/// tell that.
fn with_index(state: &State, step: &Step) -> Environment {
    let mut env = step.spec.env.clone();
    let inside = step.spec.inside.iter();
    env.extend(inside.map(|id| (String::from("SLUICE_ALLOCATION"), id.to_string())));
    let Some(part) = &step.part_of else {
        return env;
    };
    let array = state.step(&part.array);
    let spec = array.and_then(|array| array.spec.array.as_ref());
    let of_array = |spec: &ArraySpec| {
        let (first, last) = (spec.indexes.first(), spec.indexes.last());
        [
            ("SLUICE_ARRAY_SIZE", Some(spec.len())),
            ("SLUICE_ARRAY_MIN", first),
            ("SLUICE_ARRAY_MAX", last),
        ]
    };
    let numbers = spec.map(of_array).into_iter().flatten();
    let numbers = numbers.filter_map(|(name, number)| Some((name, number?.to_string())));
    let own = [
        ("SLUICE_ARRAY_ID", part.array.to_string()),
        ("SLUICE_ARRAY_INDEX", part.index.to_string()),
    ];
    let all = numbers.chain(own);
    env.extend(all.map(|(name, value)| (name.to_string(), value)));
    env
}

/// Returns the value of a variable; `None` if the coordinator does not know it.
fn value(
    variable: Variable,
    id: &AttemptId,
    (step, attempt, part): (&Step, &Attempt, &Part),
    node: Option<&Node>,
    gang: &Gang,
) -> Option<String> {
    let spec = &step.spec;
    let bytes = |key: &str| {
        let megabytes = spec.request.get(key);
        megabytes.saturating_mul(BYTES_PER_MEGABYTE).to_string()
    };
    Some(match variable {
        Variable::Step => id.step.to_string(),
        Variable::Attempt => id.number.to_string(),
        Variable::Name => spec.name.clone(),
        Variable::Subject => spec.subject.to_string(),
        Variable::Pool => attempt.pool.to_string(),
        Variable::Node => part.node.to_string(),
        Variable::Rank => gang.rank.to_string(),
        Variable::Nodes => gang.hosts.len().to_string(),
        Variable::Gpus => part.gpus.join(","),
        Variable::GpuCount => spec.gpu_count().to_string(),
        Variable::CpuCount => cores(spec.request.get(MCPU)),
        Variable::Memory => bytes(MEMORY_MB),
        Variable::Storage => bytes(STORAGE_MB),
        Variable::Numa => numa(part, node),
        // Set above, or known to the host, the wrapper or a mount.
        Variable::Cluster
        | Variable::Platform
        | Variable::Workdir
        | Variable::EnvFile
        | Variable::Mounts
        | Variable::Privileged
        | Variable::HostNetwork
        | Variable::Source
        | Variable::Target
        | Variable::Mode => return None,
    })
}

/// Formats thousandths as a decimal: `1.5`, `2`.
fn cores(mcpu: u64) -> String {
    let (whole, rest) = (mcpu / 1000, mcpu % 1000);
    match rest {
        0 => whole.to_string(),
        rest => {
            let decimal = format!("{whole}.{rest:03}");
            decimal.trim_end_matches('0').to_string()
        }
    }
}

fn numa(part: &Part, node: Option<&Node>) -> String {
    let gpus = node.into_iter().flat_map(|node| granted_gpus(part, node));
    let nodes: Option<BTreeSet<u32>> = gpus.map(|gpu| gpu.numa_node).collect();
    let nodes: Vec<String> = nodes.iter().flatten().map(ToString::to_string).collect();
    match nodes.is_empty() {
        true => EVERY_NUMA_NODE.to_string(),
        false => nodes.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_written_as_a_decimal() {
        for (mcpu, text) in [
            (0, "0"),
            (500, "0.5"),
            (1500, "1.5"),
            (2000, "2"),
            (1001, "1.001"),
        ] {
            assert_eq!(cores(mcpu), text);
        }
    }
}
