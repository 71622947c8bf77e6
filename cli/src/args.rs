//! The command-line arguments. `request_builder` and the commands interpret them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use sluice_common::state::StepState;

use crate::failure::{FAILED, RUN_FAILED};
pub(crate) use crate::format::{Format, ListFormat, OutputFormat};

mod access;
mod admin;
mod allocate;
mod bench;
mod context;
mod describe;
mod elsewhere;
mod examples;
mod exec;
mod gateway;
mod get;
mod hint;
mod kind;
mod logs;
mod machine;
mod moment;
mod recovery;
mod replay;
mod script;
mod selection;
mod service;
mod simulate;
mod step;
mod submit;
mod token;
mod values;

pub(crate) use access::{
    ApiTokenArgs, ApiTokenCommand, ApiTokenCreateArgs, AuthArgs, AuthCommand, LoginArgs,
};
pub(crate) use describe::{DescribeArgs, DescribeKind};
pub(crate) use elsewhere::{
    ConfigArgs, ConfigCommand, ConfigKind, CreateArgs, PolicyFields, PolicyName, PoolFields,
    ResourceArgs, ResourcePoolArgs, ResourcePoolCommand, ResourceRequestArgs,
};
pub(crate) use script::ScriptFlags;

pub(crate) use admin::{
    ApplyArgs, CordonArgs, DeleteArgs, DeleteKind, DrainArgs, LabelArgs, LabelKind, MoveArgs,
    MoveKind, MoveNodeArgs, MoveStepArgs, UncordonArgs,
};
pub(crate) use allocate::{AllocationArgs, ReleaseArgs, RenewalArgs};
pub(crate) use bench::BenchArgs;
pub(crate) use context::{ContextArgs, ContextCommand};
pub(crate) use examples::GUIDE;
pub(crate) use exec::{AttachArgs, CopyArgs, ExecArgs, OpenArgs};
pub(crate) use gateway::GatewayArgs;
pub(crate) use get::{GetArgs, GetSince};
pub(crate) use hint::hint;
pub(crate) use kind::GetKind;
pub(crate) use logs::LogsArgs;
pub(crate) use machine::{DetectArgs, DoctorArgs};
pub(crate) use moment::parse_moment;
pub(crate) use recovery::{RecoveryAction, RecoveryArgs};
pub(crate) use replay::ReplayArgs;
pub(crate) use selection::{ChangeFlags, StepSelector};
pub(crate) use service::{RolloutAction, RolloutArgs, RolloutStatusArgs, ScaleArgs};
pub(crate) use simulate::{SimulateArgs, TraceFlags};
pub(crate) use step::{StepFlags, VariableRequest};
pub(crate) use submit::SubmitArgs;
pub(crate) use token::{RevokeArgs, TokenAction, TokenArgs, TokenCreateArgs};
pub(crate) use values::step_id;
use values::{duration, state_parser};

/// A scheduler for shared GPU hosts: submit steps, follow them, see where they run.
#[derive(Debug, Parser)]
#[command(
    name = "sluice",
    version,
    max_term_width = 100,
    subcommand_required = true
)]
pub(crate) struct Args {
    /// The context, which names the cluster and your credentials: its name, or its file.
    #[arg(long, global = true, value_name = "NAME|FILE", env = "SLUICE_CONTEXT")]
    pub(crate) context: Option<PathBuf>,

    /// Output format of results.
    #[arg(short, long, global = true, value_enum, default_value_t = OutputFormat::Table, value_name = "FORMAT")]
    pub(crate) output: OutputFormat,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole cluster on this machine until this command is stopped.
    #[command(after_help = examples::DEV)]
    Dev(DevArgs),
    /// Submit a step, follow its output and exit with its exit code. Ctrl-C cancels it.
    #[command(after_help = examples::RUN, override_usage = submit::RUN_USAGE)]
    Run(SubmitArgs),
    /// Submit a step, a script or the steps of a file, and print the ids.
    #[command(after_help = examples::SUBMIT, override_usage = submit::SUBMIT_USAGE)]
    Submit(SubmitArgs),
    /// Hold resources while something else works with them: ask for them, and run a program of this machine meanwhile.
    #[command(after_help = examples::ALLOCATE)]
    Allocate(AllocationArgs),
    /// Renew an allocation, which ends if that is not done in time.
    #[command(after_help = examples::RENEW)]
    Renew(RenewalArgs),
    /// Release allocations: their resources are granted again.
    #[command(after_help = examples::RELEASE)]
    Release(ReleaseArgs),
    /// List things of one kind: steps, nodes, pools, policies, events and the others below.
    #[command(after_help = examples::GET)]
    Get(GetArgs),
    /// Show all details of one step, service, node, pool, platform, template, validation or role.
    #[command(after_help = examples::DESCRIBE)]
    Describe(DescribeArgs),
    /// Explain why a step or a service is in its state, and what would help.
    #[command(after_help = examples::EXPLAIN)]
    Explain(ExplainArgs),
    /// Print the output of a step.
    #[command(after_help = examples::LOGS)]
    Logs(LogsArgs),
    /// Follow the output of a running step. Ctrl-C leaves the step running.
    #[command(after_help = examples::ATTACH)]
    Attach(AttachArgs),
    /// Run a program in a running step: as its user, within its limits, with its environment and GPUs.
    #[command(after_help = examples::EXEC)]
    Exec(ExecArgs),
    /// Open a port of a running step or service here: listen at 127.0.0.1, and forward connections to it.
    #[command(after_help = examples::OPEN)]
    Open(OpenArgs),
    /// Copy files and directories to and from a running step, or those that an ended one has kept.
    #[command(after_help = examples::CP)]
    Cp(CopyArgs),
    /// Cancel steps by id, name, pattern or filters. A step that has ended already is left as it is.
    #[command(after_help = examples::CANCEL)]
    Cancel(CancelArgs),
    /// Freeze running steps, or hold queued ones, until they are resumed.
    #[command(after_help = examples::SUSPEND)]
    Suspend(StepActionArgs),
    /// Resume suspended steps.
    #[command(after_help = examples::RESUME)]
    Resume(StepActionArgs),
    /// Stop steps and queue them again in their old place.
    #[command(after_help = examples::REQUEUE)]
    Requeue(StepActionArgs),
    /// Wait until steps have ended, or have reached a state.
    #[command(after_help = examples::WAIT)]
    Wait(WaitArgs),
    /// Give nodes no new steps. Running steps run on.
    #[command(after_help = examples::CORDON)]
    Cordon(CordonArgs),
    /// Let nodes take steps again, after a cordon or a drain.
    #[command(after_help = examples::UNCORDON)]
    Uncordon(UncordonArgs),
    /// Drain nodes: give them no new steps, stop and requeue preemptible ones, let the others end.
    #[command(after_help = examples::DRAIN)]
    Drain(DrainArgs),
    /// Move nodes, or steps that wait, to another pool.
    #[command(after_help = examples::MOVE)]
    Move(MoveArgs),
    /// Set or remove labels of a node.
    #[command(after_help = examples::LABEL)]
    Label(LabelArgs),
    /// Apply the pools, policies and other documents of YAML files, all of them or none, and show what changes.
    #[command(after_help = examples::APPLY)]
    Apply(ApplyArgs),
    /// Set the number of replicas of a service.
    #[command(after_help = examples::SCALE)]
    Scale(ScaleArgs),
    /// See how the change of a service to another version goes, or go back to an earlier one.
    #[command(after_help = examples::ROLLOUT)]
    Rollout(RolloutArgs),
    /// Run a gateway: HAProxy in front of the replicas of services, until this command is stopped.
    #[command(after_help = examples::GATEWAY)]
    Gateway(GatewayArgs),
    /// Delete documents, and forget nodes that are gone for good.
    #[command(after_help = examples::DELETE)]
    Delete(DeleteArgs),
    /// Apply the documents of files and submit their steps, as gpuctl and kubectl do.
    #[command(after_help = examples::CREATE, hide = true)]
    Create(CreateArgs),
    /// Manage pools and policies by ZenML's commands.
    #[command(after_help = examples::RESOURCE_POOL, hide = true)]
    ResourcePool(ResourcePoolArgs),
    /// List, describe and end steps and allocations by ZenML's commands.
    #[command(after_help = examples::RESOURCE_REQUEST, hide = true)]
    ResourceRequest(ResourceRequestArgs),
    /// Apply OSMO's configuration by its command.
    #[command(after_help = examples::CONFIG, hide = true)]
    Config(ConfigArgs),
    /// List and describe nodes by OSMO's commands.
    #[command(after_help = examples::RESOURCE, hide = true)]
    Resource(ResourceArgs),
    /// Create, list and revoke API tokens.
    #[command(after_help = examples::API_TOKEN)]
    ApiToken(ApiTokenArgs),
    /// Write the context of a cluster, after the cluster has answered, and use it.
    #[command(after_help = examples::LOGIN)]
    Login(LoginArgs),
    /// Delete the context in use, with its credentials.
    #[command(after_help = examples::LOGOUT)]
    Logout,
    /// List, choose and change your contexts, each for one cluster.
    #[command(after_help = examples::CONTEXT)]
    Context(ContextArgs),
    /// See who you are to the cluster, and what you may do.
    #[command(after_help = examples::AUTH)]
    Auth(AuthArgs),
    /// Create, list and revoke join tokens for hosts.
    #[command(after_help = examples::TOKEN)]
    Token(TokenArgs),
    /// Revoke the access of hosts at once, and close their links.
    #[command(after_help = examples::REVOKE)]
    Revoke(RevokeArgs),
    /// Show whether the coordinator was restored from an earlier state and waits for its hosts, or end the wait.
    #[command(after_help = examples::RECOVERY)]
    Recovery(RecoveryArgs),
    /// Print what this host would report. Needs no coordinator.
    #[command(after_help = examples::DETECT)]
    Detect(DetectArgs),
    /// Find problems of this machine, each with a fix.
    #[command(after_help = examples::DOCTOR)]
    Doctor(DoctorArgs),
    /// Measure how fast this machine and the cluster are, with steps of /bin/true.
    #[command(after_help = examples::BENCH)]
    Bench(BenchArgs),
    /// Simulate the scheduler on declared hosts. Needs no coordinator.
    #[command(after_help = examples::SIMULATE)]
    Simulate(SimulateArgs),
    /// Show the history in the data directory of a stopped coordinator. Needs no coordinator.
    #[command(after_help = examples::REPLAY)]
    Replay(ReplayArgs),
    /// Print shell completions.
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory, for packages.
    #[command(hide = true)]
    Man {
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

impl Args {
    /// Parses a command line, its first word being the program.
    pub(crate) fn read(mut typed: Vec<OsString>) -> Result<Self, clap::Error> {
        spell_out_terminal(&mut typed);
        spell_out_columns(&mut typed);
        let mut args = Self::try_parse_from(&typed)?;
        if let Command::Run(step) | Command::Submit(step) = &mut args.command {
            step.note_dashes(&typed);
        }
        match args.command.ours() {
            None => Ok(args),
            Some(words) => {
                let words = std::iter::once("sluice".to_owned()).chain(words);
                let Self { command, .. } = Self::try_parse_from(words)?;
                Ok(Self { command, ..args })
            }
        }
    }
}

/// Writes `-it` before `--` as `--terminal`: by itself `-t` is a time limit.
fn spell_out_terminal(typed: &mut [OsString]) {
    let takes_it = |word: &OsString| {
        ["run", "submit", "exec", "attach"]
            .iter()
            .any(|it| word == it)
    };
    if !typed
        .iter()
        .skip(1)
        .take_while(|word| *word != "--")
        .any(takes_it)
    {
        return;
    }
    let flags = typed.iter_mut().take_while(|word| *word != "--");
    for word in flags.filter(|word| *word == "-it" || *word == "-ti") {
        *word = OsString::from("--terminal");
    }
}

/// Writes `-o custom=COLUMNS` of `get`, in the words of kubectl `-o custom-columns=COLUMNS`, as `--columns COLUMNS`.
fn spell_out_columns(typed: &mut [OsString]) {
    if typed.get(1).is_none_or(|command| command != "get") {
        return;
    }
    for at in 2..typed.len() {
        let text = |at: usize| typed.get(at).and_then(|word| word.to_str());
        let columns = |format: Option<&str>| {
            let columns = format?.strip_prefix("custom")?;
            let columns = columns.strip_prefix("-columns").unwrap_or(columns);
            columns.strip_prefix('=').map(OsString::from)
        };
        let word = text(at).unwrap_or_default();
        let inside = word.strip_prefix("--output=");
        let inside = columns(inside.or_else(|| word.strip_prefix("-o")));
        let next = columns(text(at + 1)).filter(|_| ["-o", "--output"].contains(&word));
        if let Some(columns) = inside {
            typed[at] = OsString::from("--columns=");
            typed[at].push(columns);
        } else if let Some(columns) = next {
            typed[at] = OsString::from("--columns");
            typed[at + 1] = columns;
        }
    }
}

impl Command {
    /// Returns our spelling of a command of another tool, if it is one that needs no translation.
    fn ours(&self) -> Option<Vec<String>> {
        match self {
            Command::ResourcePool(args) => args.command.ours(),
            Command::ResourceRequest(args) => Some(args.command.ours()),
            Command::Resource(args) => Some(args.command.ours()),
            _ => None,
        }
    }

    /// Returns the name of a command without an output format of its own.
    pub(crate) fn formatless(&self) -> Option<&'static str> {
        match self {
            Command::Dev(_) => Some("dev"),
            Command::Run(_) => Some("run"),
            Command::Attach(_) => Some("attach"),
            Command::Exec(_) => Some("exec"),
            Command::Gateway(_) => Some("gateway"),
            Command::Open(_) => Some("open"),
            Command::Cp(_) => Some("cp"),
            Command::Logs(_) => Some("logs"),
            Command::Completions { .. } => Some("completions"),
            Command::Login(_) => Some("login"),
            Command::Logout => Some("logout"),
            Command::Man { .. } => Some("man"),
            _ => None,
        }
    }

    /// Returns the exit code for failures that are not the caller's. `run` has its own, so that it is not taken for the
    /// step's.
    pub(crate) fn own_failure_code(&self) -> u8 {
        match self {
            Command::Run(_) | Command::Attach(_) | Command::Exec(_) | Command::Allocate(_) => {
                RUN_FAILED
            }
            _ => FAILED,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct DevArgs {
    /// Keep the state in this folder (made if absent) instead of a temporary one.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address of the HTTP API; port 0 picks a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) http: std::net::SocketAddr,
    /// Address for agents; port 0 picks a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) quic: std::net::SocketAddr,
    /// Start with the hosts, pools, policies and steps of this YAML file; `-` is stdin. Where hosts are declared, this
    /// machine itself does not join. May be given more than once.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// Start no gateway, even if HAProxy is installed.
    #[arg(long)]
    pub(crate) no_gateway: bool,
    /// Show the daemons' logs here instead of keeping them in files.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// Id of the step, or its name if no other live step has it; or the name of a service, as `NAME` or
    /// `service/NAME`.
    #[arg(value_name = "STEP")]
    pub(crate) step: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    pub(crate) selection: StepSelector,
    #[command(flatten)]
    pub(crate) flags: ChangeFlags,
    /// Kill the steps after this time, if that is sooner than their own grace period; applies also to steps that are
    /// stopping already.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StepActionArgs {
    #[command(flatten)]
    pub(crate) selection: StepSelector,
    #[command(flatten)]
    pub(crate) flags: ChangeFlags,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) selection: StepSelector,
    /// Wait until they are in this state; without it, until they have ended in any way.
    #[arg(long = "for", value_name = "UNTIL", value_parser = state_parser())]
    pub(crate) until: Option<StepState>,
    /// Give up, with exit code 75, after this time.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &[&str]) -> Result<Args, clap::Error> {
        let words = std::iter::once("sluice").chain(line.iter().copied());
        Args::read(words.map(OsString::from).collect())
    }

    #[test]
    fn the_grammar_holds_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn columns_may_be_written_as_a_format() {
        for format in [
            &["-o", "custom=id,state"][..],
            &["--output", "custom-columns=id,state"],
            &["-ocustom=id,state"],
            &["--output=custom-columns=id,state"],
        ] {
            let line = [&["get", "steps"], format].concat();
            let Command::Get(get) = parse(&line).unwrap().command else {
                panic!("{line:?} is no list");
            };
            assert_eq!(get.columns, ["id", "state"], "{line:?}");
        }
        assert!(parse(&["get", "steps", "-o", "custom"]).is_err());
        assert!(parse(&["describe", "step", "a", "-o", "custom=id"]).is_err());
    }

    #[test]
    fn every_command_says_its_purpose_on_one_line_and_has_examples_that_parse() {
        let command = Args::command();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let name = sub.get_name();
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(
                !about.is_empty() && !about.contains('\n'),
                "{name}: {about}"
            );
            let help = sub.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let lines = help
                .lines()
                .filter_map(|line| line.strip_prefix("  sluice "));
            for line in lines.filter(|line| !line.contains('$')) {
                // The text after two spaces explains it.
                let words = line.split("  ").next().unwrap_or(line);
                let words: Vec<&str> = words.split(' ').take_while(|w| *w != ">").collect();
                if let Err(error) = parse(&words) {
                    panic!("{name}: {line}: {error}");
                }
            }
        }
    }

    #[test]
    fn the_page_has_each_command_with_examples() {
        let page = include_str!("../../docs/cli.md");
        let command = Args::command();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            if sub.get_after_help().is_some() {
                assert!(page.contains(sub.get_name()), "{}", sub.get_name());
            }
        }
    }

    #[test]
    fn kinds_are_taken_in_singular_and_plural() {
        for (word, kind) in [
            ("step", GetKind::Steps),
            ("steps", GetKind::Steps),
            ("node", GetKind::Nodes),
            ("pools", GetKind::Pools),
            ("event", GetKind::Events),
        ] {
            let Command::Get(args) = parse(&["get", word]).unwrap().command else {
                panic!("`get` was typed");
            };
            assert_eq!(args.kind, kind, "{word}");
        }
        assert!(parse(&["describe", "steps", "a"]).is_ok());
        assert_eq!(parse(&["get", "pods"]).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn wrong_values_are_usage_errors_that_say_the_way_out() {
        for (line, word) in [
            (
                &["run", "--timeout", "5x", "--", "a"][..],
                "such as `30s` or `1h30m`, or as Slurm writes it",
            ),
            (&["run", "--env", "=x", "--", "a"], "NAME=VALUE"),
            (&["run", "--resource", "x=y", "--", "a"], "KEY=N"),
            (
                &["run", "--on-preempt", "x", "--", "a"],
                "requeue, suspend, fail",
            ),
            (&["wait", "a", "--for", "done"], "succeeded"),
            (&["logs", "a", "--attempt", "0"], "--attempt"),
            (&["run"], "--file <FILE>"),
            (&["submit", "--gpus", "1"], "--file <FILE>"),
            (&["submit", "--gpsu", "1", "--", "a"], "'--gpus'"),
            (
                &["logs", "a", "--stdout", "--stderr"],
                "cannot be used with",
            ),
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line:?}");
            assert!(error.to_string().contains(word), "{line:?}: {error}");
        }
    }

    #[test]
    fn what_follows_two_dashes_or_a_script_is_the_step_s_own() {
        for (line, words, after_dashes) in [
            (
                &["run", "--gpus", "1", "--", "sh", "-c", "echo --gpus 7"][..],
                &["sh", "-c", "echo --gpus 7"][..],
                true,
            ),
            (
                &[
                    "submit", "--gpus", "1", "train.sh", "--gpus", "7", "--", "x",
                ],
                &["train.sh", "--gpus", "7", "--", "x"],
                false,
            ),
        ] {
            let (Command::Run(step) | Command::Submit(step)) = parse(line).unwrap().command else {
                panic!("a step was typed")
            };
            assert_eq!(step.words, words);
            assert_eq!(step.after_dashes, after_dashes);
            assert_eq!(step.step.gpus, Some(1));
        }
    }

    #[test]
    fn short_flags_are_the_long_ones() {
        let short = "-n a -c 2 -e A=1 -p p -t 1-12 -w /w";
        let long = "--name a --cpus 2 --env A=1 --pool p --timeout 36h --workdir /w";
        let parsed = |flags: &str| {
            let line: Vec<&str> = ["run"].into_iter().chain(flags.split(' ')).collect();
            let line = [&line[..], &["--", "a"]].concat();
            let Command::Run(run) = parse(&line).unwrap().command else {
                panic!("`run` was typed")
            };
            format!("{:?}", run.step)
        };
        assert_eq!(parsed(short), parsed(long));
    }
}
