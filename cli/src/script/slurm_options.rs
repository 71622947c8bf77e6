//! The options of Slurm's `sbatch`, each with its effect here.

use sluice_common::array::{ArrayError, ArraySpec};
use sluice_common::dependency::{Dependency, ExpectedEnd};
use sluice_common::id::StepId;
use sluice_common::nearest::nearest;
use sluice_common::step::OnPreempt;
use sluice_common::streams::OutputPath;
use sluice_common::time::Span;

use super::sbatch::{ScriptLines, in_kib};
use crate::environment;
use crate::slurm_time;

/// Effect of an option.
#[derive(Clone, Copy)]
pub(super) enum LineEffect {
    /// The value sets a field.
    Translate(fn(&mut ScriptLines, &str) -> Result<(), String>),
    /// The option sets a field and has no value.
    Switch(fn(&mut ScriptLines)),
    /// Nothing that runs depends on it; the note says what there is instead.
    Ignore(&'static str),
    /// Refused: the run depends on it, and there is no counterpart.
    Refuse(&'static str),
    /// Slurm has no such option that is known here.
    Unknown(Option<&'static str>),
}

impl LineEffect {
    /// Whether a word after the option is its value.
    pub(super) fn takes_value(self) -> bool {
        !matches!(self, Self::Switch(_))
    }
}

/// Short options with their long forms.
const SHORT: [(&str, &str); 27] = [
    ("-A", "account"),
    ("-a", "array"),
    ("-b", "begin"),
    ("-C", "constraint"),
    ("-c", "cpus-per-task"),
    ("-D", "chdir"),
    ("-d", "dependency"),
    ("-e", "error"),
    ("-F", "nodefile"),
    ("-G", "gpus"),
    ("-H", "hold"),
    ("-i", "input"),
    ("-J", "job-name"),
    ("-L", "licenses"),
    ("-M", "clusters"),
    ("-N", "nodes"),
    ("-n", "ntasks"),
    ("-o", "output"),
    ("-p", "partition"),
    ("-q", "qos"),
    ("-Q", "quiet"),
    ("-s", "oversubscribe"),
    ("-t", "time"),
    ("-v", "verbose"),
    ("-W", "wait"),
    ("-w", "nodelist"),
    ("-x", "exclude"),
];

/// Way out for options that name hosts.
const HOSTS: &str = "the scheduler chooses the hosts: choose them by `--platform` or `--pool`";
/// Way out for options about a part of a host.
const WHOLE_TASK: &str = "a step has one task on each host: write `--cpus` and `--gpus` for it";

/// Every option that is known, by its long form.
const OPTIONS: [(&str, LineEffect); 60] = [
    (
        "account",
        LineEffect::Translate(|it, value| set(&mut it.request.subject, value)),
    ),
    (
        "chdir",
        LineEffect::Translate(|it, value| set(&mut it.request.workdir, value)),
    ),
    ("cpus-per-task", LineEffect::Translate(cpus)),
    (
        "error",
        LineEffect::Translate(|it, value| set_output(&mut it.request.stderr, value)),
    ),
    ("export", LineEffect::Translate(export)),
    ("gpus", LineEffect::Translate(gpus)),
    ("gpus-per-node", LineEffect::Translate(gpus_per_node)),
    ("gpus-per-task", LineEffect::Translate(gpus_per_node)),
    ("gres", LineEffect::Translate(gres)),
    (
        "input",
        LineEffect::Translate(|it, value| set(&mut it.request.stdin, value)),
    ),
    (
        "job-name",
        LineEffect::Translate(|it, value| set(&mut it.request.name, value)),
    ),
    ("mem", LineEffect::Translate(memory)),
    (
        "mem-per-cpu",
        LineEffect::Translate(|it, value| kib(value).map(|kib| it.amounts.kib_per_cpu = Some(kib))),
    ),
    (
        "mem-per-gpu",
        LineEffect::Translate(|it, value| kib(value).map(|kib| it.amounts.kib_per_gpu = Some(kib))),
    ),
    ("nodes", LineEffect::Translate(nodes)),
    (
        "ntasks",
        LineEffect::Translate(|it, value| number(value).map(|n| it.amounts.tasks = Some(n))),
    ),
    (
        "ntasks-per-node",
        LineEffect::Translate(|it, value| {
            number(value).map(|n| it.amounts.tasks_per_node = Some(n))
        }),
    ),
    ("open-mode", LineEffect::Translate(open_mode)),
    (
        "output",
        LineEffect::Translate(|it, value| set_output(&mut it.request.stdout, value)),
    ),
    ("partition", LineEffect::Translate(partition)),
    ("time", LineEffect::Translate(time)),
    (
        "no-requeue",
        LineEffect::Switch(|it| {
            it.request.on_preempt = Some(OnPreempt::Fail);
            it.request.free_preemptions = Some(false);
        }),
    ),
    (
        "requeue",
        LineEffect::Switch(|it| {
            it.request.on_preempt = Some(OnPreempt::Requeue);
            it.request.free_preemptions = None;
        }),
    ),
    ("acctg-freq", LineEffect::Ignore("")),
    ("comment", LineEffect::Ignore("")),
    ("get-user-env", LineEffect::Ignore("")),
    ("mail-type", LineEffect::Ignore("")),
    ("mail-user", LineEffect::Ignore("")),
    (
        "nice",
        LineEffect::Ignore("`--priority` orders the steps of a subject"),
    ),
    ("parsable", LineEffect::Ignore("")),
    (
        "priority",
        LineEffect::Ignore("`--priority` orders the steps of a subject"),
    ),
    ("profile", LineEffect::Ignore("")),
    (
        "qos",
        LineEffect::Ignore("`--priority-class` says whether a step may be preempted"),
    ),
    ("quiet", LineEffect::Ignore("")),
    ("verbose", LineEffect::Ignore("")),
    ("wait", LineEffect::Ignore("`sluice wait` waits for steps")),
    ("wckey", LineEffect::Ignore("")),
    (
        "array",
        LineEffect::Translate(|it, value| {
            let array: ArraySpec = value.parse().map_err(|e: ArrayError| e.to_string())?;
            it.request.array = Some(array.to_string());
            Ok(())
        }),
    ),
    (
        "begin",
        LineEffect::Translate(|it, value| moment(value).map(|at| it.request.begin = Some(at))),
    ),
    (
        "clusters",
        LineEffect::Refuse("choose the cluster by `sluice --context`"),
    ),
    ("constraint", LineEffect::Refuse(HOSTS)),
    (
        "container",
        LineEffect::Refuse("the wrapper of a pool's template starts containers"),
    ),
    ("core-spec", LineEffect::Refuse(WHOLE_TASK)),
    ("cores-per-socket", LineEffect::Refuse(WHOLE_TASK)),
    (
        "deadline",
        LineEffect::Refuse(
            "Slurm's is a time by which a job must end: `--deadline` of `sluice submit` is one by which it must start",
        ),
    ),
    ("dependency", LineEffect::Translate(dependency)),
    ("exclude", LineEffect::Refuse(HOSTS)),
    (
        "exclusive",
        LineEffect::Refuse("a step shares its host: ask for all of its cores or GPUs"),
    ),
    ("gpu-bind", LineEffect::Refuse(WHOLE_TASK)),
    (
        "hold",
        LineEffect::Refuse("submit the step, then hold it by `sluice suspend`"),
    ),
    (
        "licenses",
        LineEffect::Refuse("ask for a resource of the pool by `--resource KEY=N`"),
    ),
    ("nodefile", LineEffect::Refuse(HOSTS)),
    ("nodelist", LineEffect::Refuse(HOSTS)),
    ("ntasks-per-gpu", LineEffect::Refuse(WHOLE_TASK)),
    ("ntasks-per-socket", LineEffect::Refuse(WHOLE_TASK)),
    (
        "oversubscribe",
        LineEffect::Refuse("`--cpu-mode weight` shares cores with other steps"),
    ),
    (
        "reservation",
        LineEffect::Refuse("choose what is reserved for you by `--pool` and `--subject`"),
    ),
    (
        "signal",
        LineEffect::Refuse(
            "a step is told by SIGTERM and SLUICE_NOTICE_FILE, `--grace` before it is killed",
        ),
    ),
    (
        "tmp",
        LineEffect::Refuse("ask for disk space by `--storage`"),
    ),
    ("wrap", LineEffect::Refuse("a script is its own command")),
];

/// Returns what becomes of an option, which is named with its dashes.
pub(super) fn effect(name: &str) -> LineEffect {
    let long = SHORT.iter().find(|(short, _)| *short == name);
    let long = long.map(|(_, long)| *long).or(name.strip_prefix("--"));
    let known = |long| OPTIONS.iter().find(|(name, _)| *name == long);
    match long.and_then(known) {
        Some((_, effect)) => *effect,
        None => {
            let near = long.and_then(|long| nearest(long, OPTIONS.map(|(name, _)| name)));
            let mut names = OPTIONS.iter().map(|(name, _)| *name);
            LineEffect::Unknown(near.and_then(|near| names.find(|name| *name == near)))
        }
    }
}

fn set(field: &mut Option<String>, value: &str) -> Result<(), String> {
    *field = Some(value.to_owned());
    Ok(())
}

fn set_output(field: &mut Option<String>, value: &str) -> Result<(), String> {
    OutputPath::new(value).map_err(|e| e.to_string())?;
    set(field, value)
}

fn open_mode(it: &mut ScriptLines, value: &str) -> Result<(), String> {
    it.request.append = Some(match value {
        "append" | "a" => true,
        "truncate" | "t" => false,
        _ => {
            let value = value.escape_debug();
            return Err(format!("`{value}`: write `append` or `truncate`"));
        }
    });
    Ok(())
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = text.parse().ok().filter(|_| !text.starts_with('+'));
    parsed.ok_or_else(|| format!("`{}` is not a whole number", text.escape_debug()))
}

fn cpus(it: &mut ScriptLines, value: &str) -> Result<(), String> {
    let cores = u32::try_from(number(value)?).map_err(|_| "there is no such host".to_owned())?;
    it.request.resources.cpu_count = Some(f64::from(cores));
    Ok(())
}

/// Reads a number of hosts, which Slurm also writes as a range.
fn nodes(it: &mut ScriptLines, value: &str) -> Result<(), String> {
    let (least, most) = value.split_once('-').unwrap_or((value, value));
    if least != most {
        return Err(format!(
            "`{}`: a step runs on a fixed number of hosts: write one number",
            value.escape_debug()
        ));
    }
    let nodes = u32::try_from(number(least)?);
    it.request.nodes = Some(nodes.map_err(|_| "there are not so many hosts".to_owned())?);
    Ok(())
}

fn partition(it: &mut ScriptLines, value: &str) -> Result<(), String> {
    if value.contains(',') {
        return Err(
            "a step names one pool or none: without it, every pool is tried that you may use"
                .to_owned(),
        );
    }
    set(&mut it.request.pool, value)
}

fn time(it: &mut ScriptLines, value: &str) -> Result<(), String> {
    let endless = ["UNLIMITED", "INFINITE"]
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word));
    let span = match endless {
        true => Span::ZERO,
        false => slurm_time::parse(value).ok_or_else(|| {
            format!(
                "`{}` is not a time: write minutes, such as `90`, or `2:00:00` or `1-12:00:00`",
                value.escape_debug()
            )
        })?,
    };
    // Slurm's zero is no limit.
    it.request.timeout = (span != Span::ZERO).then(|| span.to_string());
    Ok(())
}

fn moment(value: &str) -> Result<String, String> {
    let at = slurm_time::moment(value, &jiff::Zoned::now());
    at.map(|at| at.to_string())
}

/// Reads the jobs after which it starts, all of which must have ended as asked.
fn dependency(it: &mut ScriptLines, value: &str) -> Result<(), String> {
    let way_out = "only `afterok`, `afterany` and `afternotok` with ids of steps, and commas between, can be translated";
    if value.contains('?') {
        return Err(format!("`{}`: {way_out}", value.escape_debug()));
    }
    let mut after = Vec::new();
    for one in value.split(',') {
        let (kind, ids) = one.split_once(':').unwrap_or((one, ""));
        let end = match kind {
            "afterok" => ExpectedEnd::Ok,
            "afterany" => ExpectedEnd::Any,
            "afternotok" => ExpectedEnd::Failed,
            _ => return Err(format!("`{}`: {way_out}", one.escape_debug())),
        };
        for id in ids.split(':') {
            let step = StepId::new(id).map_err(|e| e.to_string())?;
            after.push(
                Dependency {
                    step,
                    each: false,
                    end,
                }
                .to_string(),
            );
        }
    }
    it.request.after = after;
    Ok(())
}

/// Reads an amount in KiB. Slurm's units are powers of 1024, and MiB if none is written.
fn kib(text: &str) -> Result<u64, String> {
    let upper = text.to_ascii_uppercase();
    let upper = upper.strip_suffix('B').unwrap_or(&upper);
    let units = [("K", 1), ("M", 1 << 10), ("G", 1 << 20), ("T", 1 << 30)];
    let unit = units
        .iter()
        .find_map(|(unit, size)| Some((upper.strip_suffix(unit)?, *size)));
    let (digits, size) = unit.unwrap_or((upper, 1 << 10));
    let wrong = || {
        format!(
            "`{}` is not an amount: write one such as `16G`",
            text.escape_debug()
        )
    };
    let amount: u64 = number(digits).map_err(|_| wrong())?;
    match amount.checked_mul(size) {
        Some(0) => {
            Err("0 is all memory of the host for Slurm: write the amount that it needs".to_owned())
        }
        Some(kib) => Ok(kib),
        None => Err(wrong()),
    }
}

fn memory(it: &mut ScriptLines, value: &str) -> Result<(), String> {
    it.request.resources.memory = Some(in_kib(kib(value)?));
    Ok(())
}

/// Reads GPUs as `N`, `TYPE` or `TYPE:N`.
fn gpu_count(it: &mut ScriptLines, value: &str) -> Result<u64, String> {
    let starts_with_digit = value.starts_with(|c: char| c.is_ascii_digit());
    let (model, count) = match value.split_once(':') {
        Some((model, count)) => (Some(model), count),
        None if starts_with_digit => (None, value),
        None => (Some(value), "1"),
    };
    let count = number(count)?;
    if let Some(model) = model {
        it.request.platform = Some(model.to_ascii_lowercase());
    }
    Ok(count)
}

fn gpus(it: &mut ScriptLines, value: &str) -> Result<(), String> {
    it.amounts.gpus = Some(gpu_count(it, value)?);
    Ok(())
}

fn gpus_per_node(it: &mut ScriptLines, value: &str) -> Result<(), String> {
    it.request.resources.gpu_count = Some(gpu_count(it, value)?);
    Ok(())
}

/// Reads generic resources, of which only GPUs have a counterpart.
fn gres(it: &mut ScriptLines, value: &str) -> Result<(), String> {
    match value
        .strip_prefix("gpu")
        .map(|rest| rest.strip_prefix(':').unwrap_or(rest))
    {
        Some("") => gpus_per_node(it, "1"),
        Some(rest) if !rest.contains(',') => gpus_per_node(it, rest),
        Some(_) | None => Err(format!(
            "`{}`: only `gpu`, `gpu:N` and `gpu:TYPE:N` can be translated: ask for other resources by `--resource KEY=N`",
            value.escape_debug()
        )),
    }
}

fn export(it: &mut ScriptLines, value: &str) -> Result<(), String> {
    let words = || value.split(',').filter(|word| !word.is_empty());
    let all = words().any(|word| word == "ALL");
    let names = words().filter(|word| !["ALL", "NONE", "NIL"].contains(word));
    let names = names.map(|word| match word.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (word.to_owned(), None),
    });
    let chosen = environment::chosen(all, &[], names.collect());
    it.request.env = chosen.map_err(|e| e.to_string())?.into_iter().collect();
    Ok(())
}
