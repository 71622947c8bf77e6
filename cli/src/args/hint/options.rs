//! Options of other tools with their equivalents, for commands of this program that are typed with them.

use super::elsewhere::FlagsEffect::{Needless, Same};
use super::elsewhere::FlagsWithEffect;

/// Commands of this program, and options that they do not have.
pub(super) const OPTIONS: &[(&[&str], &[FlagsWithEffect])] = &[
    (&["run", "submit"], REQUEST),
    (
        &["submit"],
        &[(&["--wait", "-W"], Same("sluice run -- CMD"))],
    ),
    (
        &["run"],
        &[
            (&["--detach", "-d"], Same("sluice submit -- CMD")),
            (&["--overlap", "--jobid"], Same("sluice exec STEP -- CMD")),
        ],
    ),
    (
        &["cancel", "suspend", "resume", "requeue", "wait"],
        &[
            (&["--me"], Same("--mine")),
            (&["--user", "-u"], Same("--subject SUBJECT")),
            (&["--partition", "-p"], Same("--pool POOL")),
            (&["--namespace", "-n"], Same("--subject SUBJECT")),
            (&["--all-namespaces", "-A"], Same("--all")),
        ],
    ),
    (
        &["cancel"],
        &[
            (&["--grace-period", "--now"], Same("--grace 0s")),
            (
                &["--signal", "-s"],
                Needless("a step gets SIGTERM, and SIGKILL after its grace period"),
            ),
            (&["--force"], Needless("a step that does not end is killed")),
        ],
    ),
    (
        &["get"],
        &[
            (&["--me"], Same("--mine")),
            (&["--user", "-u"], Same("--subject SUBJECT")),
            (&["--partition", "-p"], Same("--pool POOL")),
            (&["--namespace", "-n"], Same("--subject SUBJECT")),
            (&["--all-namespaces", "-A", "-a"], Same("--all")),
            (&["--starttime", "-S"], Same("--since 2h")),
            (&["--format"], Same("--columns ID,STATE")),
            (&["--json"], Same("-o json")),
            (&["--kind"], Same("--work notebook")),
            (&["--pods"], Same("--parts")),
            (&["--gpu-type"], Same("sluice get platforms")),
            (&["--sort-by"], Same("--sort started")),
            (&["--states"], Same("--state running")),
        ],
    ),
    (
        &["logs"],
        &[
            (&["--previous", "-p"], Same("--attempt 1")),
            (&["--lines"], Same("--tail 10")),
            (
                &["--namespace", "-n"],
                Needless("no other step has the same id"),
            ),
            (&["--since-time"], Same("--since 2026-01-31T08:00:00Z")),
            (
                &["--container", "-c", "--all-containers"],
                Needless("a step has one output; `--rank N` is that of one part of a gang"),
            ),
        ],
    ),
    (
        &["attach", "describe", "exec", "explain", "open"],
        &[(
            &["--namespace", "-n"],
            Needless("no other step has the same id"),
        )],
    ),
    (
        &["exec"],
        &[
            (
                &["--container", "-c"],
                Needless("a step is one place; `--rank N` is that of one part of a gang"),
            ),
            (
                &["--user", "-u"],
                Needless("the program runs as the user of the step"),
            ),
        ],
    ),
    (
        &["label"],
        &[(&["--delete"], Same("sluice label node NODE KEY-"))],
    ),
    (
        &["drain"],
        &[(
            &[
                "--ignore-daemonsets",
                "--delete-emptydir-data",
                "--force",
                "--grace-period",
            ],
            Needless(
                "steps that may be preempted are stopped and start elsewhere, others run to their end",
            ),
        )],
    ),
    (
        &["apply"],
        &[
            (
                &["--namespace", "-n"],
                Needless("each document names its pool, and a step its subject"),
            ),
            (
                &["--server-side", "--prune", "--recursive", "-R"],
                Needless("the coordinator checks and changes all documents of a call together"),
            ),
        ],
    ),
];

const REQUEST: &[FlagsWithEffect] = &[
    (
        &["--gres", "--gpus-per-node", "--gpus-per-task", "-G"],
        Same("--gpus 2"),
    ),
    (
        &["--mem", "--mem-per-cpu", "--mem-per-gpu", "-m"],
        Same("--memory 64GiB"),
    ),
    (&["--cpus-per-task"], Same("--cpus 4")),
    (&["--ntasks", "--ntasks-per-node", "-N"], Same("--nodes 2")),
    (&["--partition", "--qos", "-q"], Same("--pool POOL")),
    (
        &["--account", "-A", "--user", "-u", "--namespace"],
        Same("--subject SUBJECT"),
    ),
    (&["--job-name", "-J"], Same("--name NAME")),
    (&["--dependency", "--depends-on"], Same("--after STEP:ok")),
    (&["--chdir", "-D", "--cwd"], Same("--workdir DIR")),
    (&["--error"], Same("--stderr FILE")),
    (
        &["--export", "--env-add", "--set-env"],
        Same("--env NAME=VALUE"),
    ),
    (
        &["--constraint", "-C", "--nodelist", "--gpu-type"],
        Same("--platform PLATFORM"),
    ),
    (
        &["--requeue", "--crash-limit", "--restart"],
        Same("--retries 2"),
    ),
    (&["--volume", "-v"], Same("--mount SOURCE:TARGET")),
    (&["--pty", "--interactive", "--tty", "-i"], Same("-it")),
    (&["--each-line", "--from-json"], Same("--array 0-9")),
    (
        &["--rm"],
        Needless("the directory of a step is removed at its end"),
    ),
    (
        &["--exclusive"],
        Needless(
            "nothing that a step holds is shared with others; a whole host is all of its GPUs or cores",
        ),
    ),
];
