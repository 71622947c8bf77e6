//! Commands of other tools with their equivalents: of Slurm, kubectl, Docker, Nomad, HyperQueue, ZenML, gpuctl,
//! Determined and OSMO.

use super::cluster_commands::CLUSTER_COMMANDS;
use super::step_commands::STEP_COMMANDS;

/// Names of the tools, which users also type before a command.
pub(super) const TOOLS: [&str; 9] = [
    "det", "docker", "gpuctl", "hq", "kubectl", "nomad", "osmo", "slurm", "zenml",
];

/// Short names of Determined's commands, as the first word of a command.
pub(super) const SHORT_NAMES: [(&str, &str); 10] = [
    ("a", "agent"),
    ("cmd", "command"),
    ("e", "experiment"),
    ("j", "job"),
    ("rp", "resource-pool"),
    ("s", "slot"),
    ("t", "trial"),
    ("tpl", "template"),
    ("u", "user"),
    ("w", "workspace"),
];
/// Short names of what they do, as a later word.
pub(super) const SHORT_VERBS: [(&str, &str); 3] =
    [("ls", "list"), ("lt", "list-trials"), ("rm", "remove")];

/// Beginnings of command lines that have no equivalent, with the reason and what to do instead.
pub(super) const REASONS: [(&str, &str); 3] = [
    (
        "config set-context --namespace",
        "a namespace is a subject; name it for each command, as in sluice get steps --subject SUBJECT",
    ),
    (
        "init",
        "nothing is initialised; sluice login ADDRESS connects to a cluster, and sluice dev starts one on this machine",
    ),
    (
        "kubectl explain",
        "docs/reference/documents.md has the fields of documents; sluice explain STEP says why a step is in its state",
    ),
];

/// Returns beginnings of command lines, each group with its equivalents; of several that match, the longest counts. An
/// option may stand anywhere after the command. One that begins with the name of a tool is a command of ours too, which
/// means something else here.
pub(super) fn elsewhere()
-> impl Iterator<Item = &'static (&'static [&'static str], &'static [&'static str])> {
    STEP_COMMANDS.iter().chain(CLUSTER_COMMANDS)
}

/// Treatment of an option that this program does not have.
pub(super) enum FlagsEffect {
    /// Another option, or another command, does the same.
    Same(&'static str),
    /// Nothing needs it, and why.
    Needless(&'static str),
}

/// Options that mean the same elsewhere, with their treatment here.
pub(super) type FlagsWithEffect = (&'static [&'static str], FlagsEffect);
