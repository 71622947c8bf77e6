//! Commands of other tools for jobs, with their equivalents.

const SUBMIT: &[&str] = &[
    "sluice submit SCRIPT",
    "sluice submit -f FILE",
    "sluice submit -- CMD",
];
const SUBMIT_FILE: &[&str] = &["sluice submit -f FILE"];
const RUN: &[&str] = &["sluice run --gpus 2 -- CMD"];
const STEPS: &[&str] = &["sluice get steps"];
const STEP: &[&str] = &["sluice describe step STEP"];
const CANCEL: &[&str] = &["sluice cancel STEP"];
const SUSPEND: &[&str] = &["sluice suspend STEP"];
const RESUME: &[&str] = &["sluice resume STEP"];
const REQUEUE: &[&str] = &["sluice requeue STEP"];
const LOGS: &[&str] = &["sluice logs -f STEP"];
const EXEC: &[&str] = &["sluice exec STEP -- CMD"];
const OPEN: &[&str] = &["sluice open STEP"];
const EXPLAIN: &[&str] = &["sluice explain STEP"];
const EVENTS: &[&str] = &["sluice get events"];
const DOCUMENT: &[&str] = &["sluice get step STEP -o yaml"];
const COPY: &[&str] = &["sluice cp PATH STEP:PATH", "sluice cp STEP:PATH PATH"];

/// Beginnings of command lines, each group with its equivalents.
pub(super) const STEP_COMMANDS: &[(&[&str], &[&str])] = &[
    (&["srun", "command run"], RUN),
    (
        &["kubectl run", "docker run"],
        &["sluice run --image IMAGE -- CMD", "sluice run -- CMD"],
    ),
    (
        &["srun --pty", "interact", "shell start"],
        &["sluice run -it -- CMD"],
    ),
    (&["srun --jobid", "srun --overlap"], EXEC),
    (&["salloc"], &["sluice allocate --gpus 2 -- CMD"]),
    (&["sbatch --wait"], &["sluice run -- CMD"]),
    (
        &["notebook start"],
        &[
            "sluice run --work notebook -- CMD",
            "sluice submit --work notebook -- CMD",
        ],
    ),
    (
        &[
            "sbatch",
            "qsub",
            "bsub",
            "create job",
            "create step",
            "start",
            "job submit",
            "tensorboard start",
        ],
        SUBMIT,
    ),
    (
        &[
            "create experiment",
            "experiment create",
            "task create",
            "job run",
            "workflow submit",
            "workflow restart",
            "job submit-file",
            "pipeline run",
            "compose up",
            "up",
            "nomad run",
        ],
        SUBMIT_FILE,
    ),
    (
        &["job dispatch"],
        &["sluice submit -f FILE --env NAME=VALUE"],
    ),
    (
        &[
            "job plan",
            "plan",
            "workflow validate",
            "job validate",
            "validate",
        ],
        &["sluice submit -f FILE --dry-run"],
    ),
    (
        &[
            "squeue",
            "qstat",
            "bjobs",
            "ps",
            "ls",
            "list",
            "queue",
            "job list",
            "task list",
            "workflow list",
            "experiment list",
            "command list",
            "shell list",
            "notebook list",
            "tensorboard list",
            "pipeline runs list",
            "pipeline runs",
            "container ls",
        ],
        STEPS,
    ),
    (
        &["sacct", "history"],
        &[
            "sluice get steps --state succeeded,failed",
            "sluice get events",
        ],
    ),
    (
        &[
            "scontrol",
            "scontrol show",
            "scontrol show job",
            "show",
            "show job",
            "show step",
            "status",
            "job status",
            "inspect",
            "sstat",
            "seff",
            "job info",
            "job inspect",
            "alloc",
            "alloc status",
            "task info",
            "workflow query",
            "experiment describe",
            "trial describe",
            "command describe",
        ],
        STEP,
    ),
    (
        &[
            "scancel",
            "qdel",
            "bkill",
            "kill",
            "stop",
            "rm",
            "remove",
            "job cancel",
            "job stop",
            "task kill",
            "experiment kill",
            "experiment cancel",
            "trial kill",
            "command kill",
            "shell kill",
            "notebook kill",
            "tensorboard kill",
            "workflow cancel",
            "scontrol cancel",
        ],
        CANCEL,
    ),
    (
        &[
            "scontrol hold",
            "scontrol suspend",
            "hold",
            "pause",
            "experiment pause",
            "task pause",
        ],
        SUSPEND,
    ),
    (
        &[
            "scontrol release",
            "scontrol resume",
            "unpause",
            "experiment activate",
            "experiment unpause",
            "task unpause",
            "gpuctl resume job",
        ],
        RESUME,
    ),
    (&["experiment list-trials"], &["sluice get steps --parts"]),
    (&["experiment delete"], &["sluice delete step STEP"]),
    (
        &["experiment config", "task config", "workflow spec"],
        DOCUMENT,
    ),
    (
        &[
            "scontrol requeue",
            "restart",
            "job restart",
            "alloc stop",
            "alloc restart",
            "retry",
        ],
        REQUEUE,
    ),
    (
        &[
            "tail",
            "output",
            "alloc logs",
            "job cat",
            "task logs",
            "trial logs",
            "experiment logs",
            "workflow logs",
            "command logs",
            "shell logs",
            "notebook logs",
            "tensorboard logs",
        ],
        LOGS,
    ),
    (
        &["gpuctl get jobs"],
        &["sluice get steps", "sluice get services"],
    ),
    (
        &["gpuctl describe job"],
        &[
            "sluice describe step STEP",
            "sluice describe service SERVICE",
        ],
    ),
    (
        &["gpuctl delete job"],
        &["sluice cancel STEP", "sluice delete service SERVICE"],
    ),
    (
        &["service list", "service ls", "deployment list"],
        &["sluice get services"],
    ),
    (
        &[
            "service info",
            "service inspect",
            "deployment describe",
            "job history",
            "rollout history",
        ],
        &["sluice describe service SERVICE"],
    ),
    (
        &["deployment logs"],
        &["sluice describe service SERVICE", "sluice logs SERVICE-1"],
    ),
    (
        &["service delete", "service rm", "deployment delete"],
        &["sluice delete service SERVICE"],
    ),
    (
        &["job scale", "kubectl scale", "service scale"],
        &["sluice scale service SERVICE 3"],
    ),
    (
        &["job revert", "service rollback"],
        &["sluice rollout undo SERVICE"],
    ),
    (&["kubectl get po"], STEPS),
    (&["kubectl describe po"], STEP),
    (&["kubectl delete po"], CANCEL),
    (&["sattach"], &["sluice attach STEP"]),
    (&["alloc exec", "workflow exec", "nomad exec"], EXEC),
    (
        &[
            "kubectl port-forward",
            "port-forward",
            "workflow port-forward",
            "notebook open",
            "tensorboard open",
        ],
        OPEN,
    ),
    (
        &[
            "sbcast",
            "sgather",
            "scp",
            "rsync",
            "alloc fs",
            "fs",
            "workflow rsync upload",
            "workflow rsync download",
        ],
        COPY,
    ),
    (
        &[
            "shell open",
            "ssh",
            "srun --jobid --pty",
            "srun --overlap --pty",
        ],
        &["sluice exec -it STEP -- CMD"],
    ),
    (
        &["experiment download", "checkpoint download"],
        &["sluice cp STEP:PATH PATH"],
    ),
    (
        &["job wait", "job progress", "experiment wait"],
        &["sluice wait STEP"],
    ),
    (
        &["job update"],
        &["sluice move step STEP --pool POOL", "sluice apply -f FILE"],
    ),
    (
        &[
            "why",
            "reason",
            "sprio",
            "squeue --start",
            "eval",
            "eval status",
            "job eval",
            "task explain",
        ],
        EXPLAIN,
    ),
    (&["monitor", "journal", "config history", "events"], EVENTS),
    (
        &[
            "events --for",
            "workflow events",
            "kubectl get events --field-selector",
        ],
        &["sluice get events --step STEP"],
    ),
];
