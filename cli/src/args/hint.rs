//! Suggests what users of other schedulers mean by their commands. Pure.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands of Slurm, kubectl and Nomad, with the equivalent.
const ELSEWHERE: [(&[&str], &str); 10] = [
    (&["srun", "salloc"], "sluice run --gpus 2 -- CMD"),
    (
        &["sbatch", "qsub", "create"],
        "sluice submit -- CMD, or sluice submit -f FILE",
    ),
    (
        &["squeue", "ps", "ls", "list", "jobs", "top"],
        "sluice get steps",
    ),
    (&["scancel", "kill", "stop", "qdel"], "sluice cancel STEP"),
    (&["sinfo", "hosts"], "sluice get nodes, or sluice get pools"),
    (
        &["sacct", "history"],
        "sluice get steps --state succeeded,failed, or sluice get events",
    ),
    (
        &["scontrol", "show", "status", "inspect"],
        "sluice describe step STEP",
    ),
    (&["why", "reason", "sprio"], "sluice explain STEP"),
    (&["sreport", "squota", "quota"], "sluice describe pool POOL"),
    (&["tail", "output"], "sluice logs -f STEP"),
];

/// Words of other schedulers for kinds of things.
const THINGS: [(&[&str], &str); 4] = [
    (
        &["job", "jobs", "task", "tasks", "pod", "pods", "run", "runs"],
        "steps",
    ),
    (
        &["host", "hosts", "machine", "machines", "client", "clients"],
        "nodes",
    ),
    (
        &["partition", "partitions", "queue", "queues", "nodepool"],
        "pools",
    ),
    (
        &["quota", "quotas", "qos", "association", "account"],
        "policies",
    ),
];

/// Returns a suggestion for a wrong command line, if there is one.
pub(crate) fn hint(error: &clap::Error) -> Option<String> {
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let verb = said(ContextKind::InvalidSubcommand)?;
            let (_, here) = ELSEWHERE.iter().find(|(verbs, _)| verbs.contains(&verb))?;
            Some(format!("Sluice's equivalent of `{verb}`: {here}"))
        }
        ErrorKind::InvalidValue => {
            let noun = said(ContextKind::InvalidValue)?;
            let (_, here) = THINGS.iter().find(|(nouns, _)| nouns.contains(&noun))?;
            Some(format!("Sluice's equivalent of `{noun}`: {here}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser;

    fn told(line: &str) -> Option<String> {
        let words = std::iter::once("sluice").chain(line.split(' '));
        hint(&Args::try_parse_from(words).unwrap_err())
    }

    #[test]
    fn what_is_typed_elsewhere_is_told_by_its_name_here() {
        for (typed, here) in [
            ("squeue", "sluice get steps"),
            ("sbatch job.sh", "sluice submit"),
            ("scancel 7", "sluice cancel"),
        ] {
            let told = told(typed).unwrap();
            assert!(told.contains(here), "{typed}: {told}");
        }
        let jobs = told("get jobs").unwrap();
        assert_eq!(jobs, "Sluice's equivalent of `jobs`: steps");
        assert_eq!(told("frobnicate"), None);
        assert_eq!(told("get frobs"), None);
    }

    #[test]
    fn every_command_that_is_proposed_is_there() {
        for (_, here) in ELSEWHERE {
            for proposed in here.split("sluice ").skip(1) {
                let verb = proposed.split(' ').next().unwrap();
                let known = <Args as clap::CommandFactory>::command();
                assert!(known.find_subcommand(verb).is_some(), "{here}");
            }
        }
    }
}
