//! Commands of other tools with their equivalents: of Slurm, kubectl, Docker, Nomad, HyperQueue, ZenML, gpuctl,
//! Determined and OSMO. Of several that match, the longest counts.

/// Names of the tools, which users also type before a command.
pub(super) const TOOLS: [&str; 9] = [
    "det", "docker", "gpuctl", "hq", "kubectl", "nomad", "osmo", "slurm", "zenml",
];

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
const EXPLAIN: &[&str] = &["sluice explain STEP"];
const EVENTS: &[&str] = &["sluice get events"];
const NODES: &[&str] = &["sluice get nodes"];
const NODE: &[&str] = &["sluice describe node NODE"];
const USAGE: &[&str] = &["sluice get nodes -o wide"];
const CORDON: &[&str] = &["sluice cordon NODE"];
const UNCORDON: &[&str] = &["sluice uncordon NODE"];
const DRAIN: &[&str] = &["sluice drain NODE"];
const JOIN: &[&str] = &["sluice token create --pool POOL"];
const POOLS: &[&str] = &["sluice get pools"];
const POOL: &[&str] = &["sluice describe pool POOL"];
const POLICIES: &[&str] = &["sluice get policies"];
const POOL_POLICIES: &[&str] = &["sluice get policies --pool POOL"];
const POOL_STEPS: &[&str] = &["sluice get steps --pool POOL"];
const NO_POLICY: &[&str] = &["sluice delete policy POOL/SUBJECT"];
const DOCUMENT: &[&str] = &["sluice get step STEP -o yaml"];
const VALIDATIONS: &[&str] = &["sluice get validations"];
const ROLES: &[&str] = &["sluice get roles"];
const TEMPLATES: &[&str] = &["sluice get templates"];
const COPY: &[&str] = &["sluice cp PATH STEP:PATH", "sluice cp STEP:PATH PATH"];
const APPLY: &[&str] = &["sluice apply -f FILE"];
/// Files of other tools hold steps as well as pools.
const APPLY_OR_SUBMIT: &[&str] = &["sluice apply -f FILE", "sluice submit -f FILE"];
const CONTEXTS: &[&str] = &["sluice context list"];
const CONTEXT: &[&str] = &["sluice context show"];
const USE_CONTEXT: &[&str] = &["sluice context use NAME"];
const WHOAMI: &[&str] = &["sluice auth whoami"];
const API_TOKEN: &[&str] = &["sluice api-token create NAME --role submitter"];

/// Beginnings of command lines, each group with its equivalents. An option may stand anywhere after the command. One that
/// begins with the name of a tool is a command of ours too, which means something else here.
pub(super) const ELSEWHERE: &[(&[&str], &[&str])] = &[
    (&["srun", "command run"], RUN),
    (
        &["kubectl run", "docker run"],
        &["sluice run --image IMAGE -- CMD", "sluice run -- CMD"],
    ),
    (
        &["srun --pty", "salloc", "interact", "shell start"],
        &["sluice run -it -- CMD"],
    ),
    (&["notebook start"], &["sluice run --work notebook -- CMD"]),
    (
        &[
            "sbatch",
            "qsub",
            "bsub",
            "create",
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
            "job status",
            "task list",
            "workflow list",
            "experiment list",
            "command list",
            "shell list",
            "notebook list",
            "tensorboard list",
            "pipeline runs list",
            "pipeline runs",
            "resource-request list",
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
            "resource-request describe",
            "resource-request",
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
            "resource-request delete",
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
            "release",
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
    (&["sattach"], &["sluice attach STEP"]),
    (&["alloc exec", "workflow exec", "nomad exec"], EXEC),
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
    (&["shell open", "ssh"], &["sluice exec -it STEP -- CMD"]),
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
        &["why", "reason", "sprio", "eval", "eval status", "job eval"],
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
    (&["sinfo"], &["sluice get nodes", "sluice get pools"]),
    (
        &[
            "hosts",
            "agent list",
            "agent",
            "node list",
            "node status",
            "worker list",
            "worker",
            "resource list",
            "resource",
            "node ls",
        ],
        NODES,
    ),
    (
        &[
            "scontrol show node",
            "scontrol show nodes",
            "worker info",
            "resource info",
            "show node",
            "node inspect",
        ],
        NODE,
    ),
    (&["top", "stats", "slot list", "slot", "nvidia-smi"], USAGE),
    (&["node eligibility", "agent disable --drain"], CORDON),
    (
        &["taint"],
        &["sluice move node NODE --pool POOL", "sluice cordon NODE"],
    ),
    (&["slot disable"], &["sluice cordon NODE --gpu 0"]),
    (&["slot enable"], &["sluice uncordon NODE --gpu 0"]),
    (
        &[
            "agent enable",
            "scontrol resume node",
            "node uncordon",
            "node eligibility -enable",
            "node drain -disable",
        ],
        UNCORDON,
    ),
    (
        &[
            "scontrol drain",
            "node drain",
            "agent disable",
            "worker stop",
            "scontrol update",
            "node update",
        ],
        DRAIN,
    ),
    (
        &["annotate", "node meta", "node meta apply"],
        &["sluice label node NODE KEY=VALUE"],
    ),
    (&["node meta read"], &["sluice get nodes --show-labels"]),
    (&["node join", "swarm join", "worker start", "join"], JOIN),
    (
        &["add node"],
        &[
            "sluice token create --pool POOL",
            "sluice move node NODE --pool POOL",
        ],
    ),
    (
        &["remove node"],
        &[
            "sluice delete node NODE",
            "sluice move node NODE --pool POOL",
        ],
    ),
    (
        &["node rm", "node delete", "node purge"],
        &["sluice delete node NODE"],
    ),
    (
        &[
            "pool list",
            "pool",
            "resource-pool",
            "resource-pool list",
            "config list",
            "config show",
            "partitions",
            "node pool",
            "node pool list",
        ],
        POOLS,
    ),
    (&["node pool nodes"], &["sluice get nodes --pool POOL"]),
    (&["node pool jobs", "resource-pool requests"], POOL_STEPS),
    (
        &[
            "resource-pool list-policies",
            "resource-pool bindings list-workspaces",
        ],
        POOL_POLICIES,
    ),
    (&["config show pool"], &["sluice get pool POOL -o yaml"]),
    (&["config show resource_validation"], VALIDATIONS),
    (&["config show pod_template", "template list"], TEMPLATES),
    (
        &["template describe"],
        &["sluice describe template TEMPLATE"],
    ),
    (&["template remove"], &["sluice delete template TEMPLATE"]),
    (
        &[
            "scontrol show partition",
            "resource-pool describe",
            "sreport",
            "sshare",
            "squota",
            "quota",
            "node pool info",
        ],
        POOL,
    ),
    (
        &[
            "sacctmgr",
            "sacctmgr list",
            "workspace list",
            "workspace list-pools",
            "workspace describe",
            "quota list",
            "quota status",
            "quota inspect",
            "namespace list",
            "namespace status",
            "namespace",
            "sacctmgr show",
        ],
        POLICIES,
    ),
    (
        &[
            "replace",
            "replace -f",
            "patch",
            "edit",
            "update",
            "set",
            "attach-policy",
            "resource-pool create",
            "resource-pool update",
            "resource-pool attach-policy",
            "resource-pool bindings add",
            "resource-pool bindings replace",
            "workspace create",
            "workspace resource-quota",
            "template create",
            "template set",
            "config-policies set",
            "rbac assign-role",
            "profile set pool",
            "config update",
            "config rollback",
            "sacctmgr add",
            "sacctmgr modify",
            "create pool",
            "create namespace",
            "create quota",
            "create priorityclass",
            "create clusterqueue",
            "create localqueue",
            "create resourceflavor",
            "create role",
            "create rolebinding",
            "create clusterrole",
            "create clusterrolebinding",
            "node pool apply",
            "namespace apply",
            "quota apply",
            "acl policy apply",
            "acl role create",
            "acl binding-rule create",
            "sentinel apply",
        ],
        APPLY,
    ),
    (
        &["create -f", "gpuctl apply", "kubectl apply"],
        APPLY_OR_SUBMIT,
    ),
    (
        &["gpuctl delete -f", "kubectl delete -f"],
        &["sluice delete -f FILE", "sluice cancel STEP"],
    ),
    (
        &["diff", "config diff"],
        &["sluice apply -f FILE --dry-run"],
    ),
    (
        &[
            "detach-policy",
            "resource-pool detach-policy",
            "resource-pool bindings remove",
            "workspace delete",
            "quota delete",
            "namespace delete",
        ],
        NO_POLICY,
    ),
    (
        &[
            "resource-pool delete",
            "node pool delete",
            "config delete pool",
        ],
        &["sluice delete pool POOL"],
    ),
    (
        &["operator snapshot", "operator snapshot save"],
        &["sluice-coordinator backup FILE"],
    ),
    (
        &["operator snapshot restore"],
        &["sluice-coordinator restore FILE"],
    ),
    (
        &["operator snapshot inspect"],
        &["sluice-coordinator check FILE"],
    ),
    (
        &["config get-contexts", "profile", "profile list"],
        CONTEXTS,
    ),
    (
        &[
            "config",
            "config view",
            "config current-context",
            "cluster-info",
            "zenml status",
            "info",
            "server info",
        ],
        CONTEXT,
    ),
    (
        &["config use-context", "profile set", "use", "connect"],
        USE_CONTEXT,
    ),
    (&["config delete-context"], &["sluice context delete NAME"]),
    (
        &["config rename-context"],
        &["sluice context rename NAME NEW"],
    ),
    (&["disconnect", "user logout"], &["sluice logout"]),
    (
        &["whoami", "user whoami", "profile show", "acl token self"],
        WHOAMI,
    ),
    (
        &[
            "user login",
            "auth login",
            "config set-context",
            "config set-cluster",
        ],
        &["sluice login ADDRESS"],
    ),
    (
        &[
            "acl token create",
            "det token create",
            "token set",
            "service-account create",
            "service-account",
            "create token",
            "create serviceaccount",
        ],
        API_TOKEN,
    ),
    (
        &[
            "acl token list",
            "det token list",
            "osmo token list",
            "service-account list",
        ],
        &["sluice api-token list"],
    ),
    (
        &[
            "acl token delete",
            "det token revoke",
            "osmo token delete",
            "service-account delete",
        ],
        &["sluice api-token delete NAME"],
    ),
    (
        &["token delete"],
        &["sluice api-token delete NAME", "sluice token revoke TOKEN"],
    ),
    (
        &[
            "acl",
            "acl policy list",
            "acl role list",
            "rbac list-roles",
            "config show role",
        ],
        ROLES,
    ),
    (
        &["acl policy info", "acl role info"],
        &["sluice describe role ROLE"],
    ),
    (&["acl binding-rule list"], &["sluice get bindings"]),
    (
        &[
            "server start",
            "agent -dev",
            "deploy local",
            "zenml up",
            "init",
            "dashboard",
            "minikube",
        ],
        &["sluice dev"],
    ),
    (&["sdiag", "check", "diagnose"], &["sluice doctor"]),
    (&["version"], &["sluice --version"]),
];

/// Treatment of an option that this program does not have.
pub(super) enum FlagsEffect {
    /// Another option, or another command, does the same.
    Same(&'static str),
    /// Nothing needs it, and why.
    Needless(&'static str),
}

/// Options that mean the same elsewhere, with their treatment here.
pub(super) type FlagsWithEffect = (&'static [&'static str], FlagsEffect);
