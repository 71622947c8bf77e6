//! Flags that describe a step, shared by `run` and `submit`.

use jiff::Timestamp;
use sluice_common::array::ArraySpec;
use sluice_common::dependency::Dependency;
use sluice_common::inputs::InputFile;
use sluice_common::label::{LabelChange, LabelChangeError};
use sluice_common::mig::MigRequest;
use sluice_common::processors::CpuMode;
use sluice_common::step::{OnPreempt, PriorityClass, WorkKind};
use sluice_common::template::Mount;
use sluice_common::time::Span;

use super::moment::parse_moment;
use crate::slurm_time;

/// The flags of `run` and `submit` for a step.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StepFlags {
    /// Whole GPUs on each host.
    #[arg(long, value_name = "N", value_parser = whole_gpus, allow_hyphen_values = true, help_heading = "Resources")]
    pub(crate) gpus: Option<u64>,
    /// Slices (MIG instances) of this profile on each host instead of whole GPUs, such as 3g.40gb or 1g.10gb:2; a CUDA process uses one.
    #[arg(long, value_name = "PROFILE[:N]", help_heading = "Resources")]
    pub(crate) mig: Option<MigRequest>,
    /// Cores on each host, such as 4 or 0.5.
    #[arg(short, long, value_name = "X", value_parser = cores, allow_hyphen_values = true, help_heading = "Resources")]
    pub(crate) cpus: Option<f64>,
    /// Sharing of its cores: at most that many (limit, the default), a share in proportion and more while others
    /// are idle (weight), or whole cores of its own (pinned).
    #[arg(long, value_name = "MODE", value_parser = words::<CpuMode, _>(CpuMode::ALL.map(CpuMode::as_str)), help_heading = "Resources")]
    pub(crate) cpu_mode: Option<CpuMode>,
    /// Memory on each host, such as 16GiB.
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub(crate) memory: Option<String>,
    /// Disk space on each host, such as 100GiB.
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub(crate) storage: Option<String>,
    /// An amount of a custom resource; may be repeated.
    #[arg(long = "resource", value_name = "KEY=N", value_parser = key_amount, help_heading = "Resources")]
    pub(crate) resources: Vec<(String, u64)>,
    /// Never preempt it.
    #[arg(long, help_heading = "Placement")]
    pub(crate) non_preemptible: bool,
    /// The one pool that it may run in.
    #[arg(short, long, value_name = "POOL", help_heading = "Placement")]
    pub(crate) pool: Option<String>,
    /// The kind of hardware, such as h100; or several, the best first, such as h100,a100; or any.
    #[arg(long, value_name = "PLATFORM", help_heading = "Placement")]
    pub(crate) platform: Option<String>,
    /// On how many hosts it runs at once, all of one platform.
    #[arg(long, value_name = "N", help_heading = "Placement")]
    pub(crate) nodes: Option<u32>,
    /// Level of the topology within which all its hosts must be, such as rack.
    #[arg(long, value_name = "LEVEL", help_heading = "Placement")]
    pub(crate) within: Option<String>,
    /// Level within which its hosts are if one domain of it has room.
    #[arg(
        long,
        value_name = "LEVEL",
        help_heading = "Placement",
        conflicts_with = "within"
    )]
    pub(crate) prefer_within: Option<String>,
    /// Queue it, rather than reject it, while no known host could hold it.
    #[arg(long, help_heading = "Placement")]
    pub(crate) allow_pending: bool,
    /// Subject on whose behalf it runs.
    #[arg(long, value_name = "SUBJECT", help_heading = "Step")]
    pub(crate) subject: Option<String>,
    /// Most retries after a failure of its own.
    #[arg(long, value_name = "N", help_heading = "Life")]
    pub(crate) retries: Option<u32>,
    /// Longest run time, such as 2h; also as Slurm writes it: 90 (minutes), 90:00, 2:00:00, 1-12 or 1-12:00:00.
    #[arg(
        short,
        long,
        visible_aliases = ["time-limit", "time"],
        value_name = "DURATION",
        value_parser = run_time,
        help_heading = "Life"
    )]
    pub(crate) timeout: Option<Span>,
    /// Longest time in the queue before it fails, such as 10m; 0s is to start at once or not at all.
    #[arg(long, value_name = "DURATION", value_parser = span, help_heading = "Life")]
    pub(crate) queue_timeout: Option<Span>,
    /// Time before which it does not start: a duration from now such as 2h, 18:30, a date, or a date with a time.
    #[arg(long, value_name = "TIME", value_parser = moment, help_heading = "Life")]
    pub(crate) begin: Option<Timestamp>,
    /// Time after which it does not start any more, in the forms of --begin.
    #[arg(long, value_name = "TIME", value_parser = moment, help_heading = "Life")]
    pub(crate) deadline: Option<Timestamp>,
    /// A step that must have succeeded before this one starts, or must have ended (ID:any) or failed (ID:failed); with
    /// ID:each, each part of an array starts after the part of that array with the same index; may be repeated.
    #[arg(
        long,
        value_name = "ID[:each][:ok|any|failed]",
        value_delimiter = ',',
        help_heading = "Life"
    )]
    pub(crate) after: Vec<Dependency>,
    /// Run it once for each of these indexes, such as 0-999, 0-15:4 or 1,3,5-7, as the parts of an array; with %N, at most N
    /// of them at once. Each finds its index in SLUICE_ARRAY_INDEX.
    #[arg(long, value_name = "INDEXES[%N]", help_heading = "Step")]
    pub(crate) array: Option<ArraySpec>,
    /// Grace period between the stop signal and the kill, such as 30s.
    #[arg(long, value_name = "DURATION", value_parser = span, help_heading = "Life")]
    pub(crate) grace: Option<Span>,
    /// Action when it is preempted: it is stopped and queued again (requeue, the default), frozen and resumed
    /// later (suspend), or stopped for good (fail).
    #[arg(long, value_name = "ACTION", value_parser = words::<OnPreempt, _>(["requeue", "suspend", "fail"]), help_heading = "Placement")]
    pub(crate) on_preempt: Option<OnPreempt>,
    /// Whether it can be preempted, and its order among its subject's steps: high (1000) and normal (0) are never
    /// preempted, low (-1000) borrows and can be.
    #[arg(long, value_name = "CLASS", value_parser = words::<PriorityClass, _>(["high", "normal", "low"]), help_heading = "Placement")]
    pub(crate) priority_class: Option<PriorityClass>,
    /// The kind of work, which sets defaults for preemption and retries.
    #[arg(long, value_name = "WORK", value_parser = words::<WorkKind, _>(WorkKind::ALL.map(WorkKind::as_str)), help_heading = "Step")]
    pub(crate) work: Option<WorkKind>,
    /// Longest suspension before it is stopped and requeued, such as 2h; 1h if absent.
    #[arg(long, value_name = "DURATION", value_parser = span, help_heading = "Placement")]
    pub(crate) suspend_timeout: Option<Span>,
    /// A file of variables, NAME=value a line, or - for standard input; may be repeated. Unlike --env, whose values every
    /// user of this machine can read while the command runs.
    #[arg(long = "env-file", value_name = "FILE", help_heading = "Step")]
    pub(crate) env_files: Vec<String>,
    /// An environment variable, which overrides those of files; NAME alone copies yours; may be repeated.
    #[arg(short, long = "env", value_name = "NAME[=VALUE]", value_parser = variable, help_heading = "Step")]
    pub(crate) env: Vec<VariableRequest>,
    /// Copy your environment, without what describes your session or belongs to Sluice. --env-file and --env override it.
    #[arg(long, help_heading = "Step")]
    pub(crate) env_all: bool,
    /// A label, which lists and rules can select; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label, help_heading = "Step")]
    pub(crate) labels: Vec<(String, String)>,
    /// The directory that it starts in, on the host; a relative one is below yours. `none` is an empty one of its own. Yours if
    /// absent, where the host has it and its user may enter it; else an empty one, and a line says so.
    #[arg(short, long, value_name = "DIR", help_heading = "Step")]
    pub(crate) workdir: Option<String>,
    /// A file or directory of yours that it finds in its own directory when it starts; may be repeated. FILE:NAME gives it another
    /// name or place there.
    #[arg(long = "input", value_name = "FILE[:NAME]", help_heading = "Step")]
    pub(crate) inputs: Vec<String>,
    /// A file or directory in its own directory that its host keeps after the end, for `sluice cp`; with `*`, `?` and `**`; may be
    /// repeated.
    #[arg(long, value_name = "PATTERN", help_heading = "Step")]
    pub(crate) keep: Vec<String>,
    /// A port of each of its hosts for it, by a name such as `http`; its number is in SLUICE_PORT_HTTP, and the first one's in
    /// SLUICE_PORT; may be repeated.
    #[arg(long = "port", value_name = "NAME", help_heading = "Step")]
    pub(crate) ports: Vec<String>,
    /// Call it ready once its port answers: `http:/health` requests /health at its port http, and `http` alone connects to it.
    #[arg(long, value_name = "PORT[:/PATH]", help_heading = "Step")]
    pub(crate) ready_when: Option<String>,
    /// The files that were found for `inputs`.
    #[arg(skip)]
    pub(crate) input_files: Vec<InputFile>,
    /// The image that it runs in, on a host with a container runtime for it: docker.io/library/python:3.12, or the path of a
    /// .sif or .sqsh file or of a directory with a root file system on the host.
    #[arg(long, value_name = "IMAGE", help_heading = "Step")]
    pub(crate) image: Option<String>,
    /// A directory of the host for its wrapper to mount; may be repeated.
    #[arg(long = "mount", value_name = "SOURCE[:TARGET][:ro]", value_parser = mount, help_heading = "Step")]
    pub(crate) mounts: Vec<Mount>,
    /// Ask its wrapper for root's rights, if its pool allows that.
    #[arg(long, help_heading = "Step")]
    pub(crate) privileged: bool,
    /// Ask its wrapper for the host's network, if its pool allows that.
    #[arg(long, help_heading = "Step")]
    pub(crate) host_network: bool,
    /// A file of the host that is its standard input, below your directory unless absolute. Without it `run` passes on its own,
    /// `submit` none.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "terminal",
        help_heading = "Step"
    )]
    pub(crate) stdin: Option<String>,
    /// A file of the host that gets its standard output too, below its directory unless absolute: %j is its id, %x its name, %A
    /// its array, %a its index, %N the node, %t the rank, %u the user.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "terminal",
        help_heading = "Step"
    )]
    pub(crate) stdout: Option<String>,
    /// A file of the host that gets its standard error too; may be that of --stdout.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "terminal",
        help_heading = "Step"
    )]
    pub(crate) stderr: Option<String>,
    /// Append to the files of --stdout and --stderr instead of emptying them at the start.
    #[arg(long, help_heading = "Step")]
    pub(crate) append: bool,
    /// Give the program a terminal; `-it` is the same. It lasts until the program ends: Enter, ~ and . leave it, and
    /// `sluice attach -it` comes back.
    #[arg(long, help_heading = "Step")]
    pub(crate) terminal: bool,
    /// A name for people; the program's or the script's if absent.
    #[arg(short, long, value_name = "NAME", help_heading = "Step")]
    pub(crate) name: Option<String>,
    /// Order among the steps of the same subject; higher goes first.
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Placement"
    )]
    pub(crate) priority: Option<i64>,
    /// An id of your own choice, which makes repeats harmless.
    #[arg(long, value_name = "ID", help_heading = "Step")]
    pub(crate) id: Option<String>,
}

/// A variable of `--env`, with its value unless it is copied from the caller.
pub(crate) type VariableRequest = (String, Option<String>);

fn variable(text: &str) -> Result<VariableRequest, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), Some(value.into()))),
        None if !text.is_empty() && !text.contains(char::is_whitespace) => Ok((text.into(), None)),
        Some(_) | None => Err(
            "write NAME=VALUE, such as `MODE=fast`, or NAME for yours, such as `HF_HOME`".into(),
        ),
    }
}

/// Parses a time limit, also in the forms of Slurm's `--time`.
fn run_time(text: &str) -> Result<Span, String> {
    text.parse().or_else(|e: sluice_common::time::SpanError| {
        slurm_time::parse(text)
            .ok_or_else(|| format!("{e}, or as Slurm writes it, such as `1-12:00:00`"))
    })
}

pub(super) fn span(text: &str) -> Result<Span, String> {
    text.parse()
        .map_err(|e: sluice_common::time::SpanError| e.to_string())
}

fn moment(text: &str) -> Result<Timestamp, String> {
    parse_moment(text, &jiff::Zoned::now())
}

fn whole_gpus(text: &str) -> Result<u64, String> {
    let way_out = "write a whole number of GPUs on each host, such as `2`; a step cannot have a part of a GPU";
    text.parse().map_err(|_| way_out.to_owned())
}

fn cores(text: &str) -> Result<f64, String> {
    let cores = text.parse().ok();
    let cores = cores.filter(|cores: &f64| cores.is_finite() && *cores >= 0.0);
    cores.ok_or_else(|| {
        "write a number of cores that is not negative, such as `4` or `0.5`".to_owned()
    })
}

/// Parses a mount, which is named by its target, so that it overrides one of a template with that name.
fn mount(text: &str) -> Result<Mount, String> {
    let way_out =
        || "write SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro, such as `/data:/data:ro`".to_owned();
    let (paths, read_only) = match text.rsplit_once(':') {
        Some((paths, "ro")) => (paths, true),
        Some((paths, "rw")) => (paths, false),
        Some(_) | None => (text, false),
    };
    let (source, target) = match paths.split_once(':') {
        Some((source, target)) => (source, Some(target)),
        None => (paths, None),
    };
    let bad = |path: &str| path.is_empty() || path.contains(':');
    if bad(source) || target.is_some_and(bad) {
        return Err(way_out());
    }
    let name = target.unwrap_or(source).replace('.', "_");
    Ok(Mount {
        name: Some(name),
        source: source.to_owned(),
        target: target.map(str::to_owned),
        read_only: read_only.then_some(true),
    })
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("write NAME=VALUE, such as `MODE=fast`".into()),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let label: Result<LabelChange, _> = text.parse();
    match label {
        Ok(LabelChange::Set(key, value)) => Ok((key.to_string(), value.to_string())),
        Ok(LabelChange::Remove(_)) => Err("write KEY=VALUE, such as `team=vision`".into()),
        Err(LabelChangeError::Form(_)) => Err("write KEY=VALUE, such as `team=vision`".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn key_amount(text: &str) -> Result<(String, u64), String> {
    let way_out = || "write KEY=N with a whole number, such as `tensorrt_sessions=2`".to_owned();
    let (key, amount) = key_value(text).map_err(|_| way_out())?;
    Ok((key, amount.parse().map_err(|_| way_out())?))
}

/// Returns a parser of words, each of which the API knows by the same name.
pub(super) fn words<T, const N: usize>(
    all: [&'static str; N],
) -> impl clap::builder::TypedValueParser<Value = T>
where
    T: serde::de::DeserializeOwned + Clone + Send + Sync + 'static,
{
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(all).try_map(|word| serde_json::from_value(word.into()))
}
