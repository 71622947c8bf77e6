//! Commands of other tools for hosts, pools, rights and connections, with their equivalents.

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
const VALIDATIONS: &[&str] = &["sluice get validations"];
const ROLES: &[&str] = &["sluice get roles"];
const TEMPLATES: &[&str] = &["sluice get templates"];
const APPLY: &[&str] = &["sluice apply -f FILE"];
/// Files of other tools hold steps as well as pools.
const APPLY_OR_CREATE: &[&str] = &["sluice apply -f FILE", "sluice create -f FILE"];
const CONTEXTS: &[&str] = &["sluice context list"];
const CONTEXT: &[&str] = &["sluice context show"];
const USE_CONTEXT: &[&str] = &["sluice context use NAME"];
const WHOAMI: &[&str] = &["sluice auth whoami"];
const API_TOKEN: &[&str] = &["sluice api-token create NAME --role submitter"];

/// Beginnings of command lines, each group with its equivalents.
pub(super) const CLUSTER_COMMANDS: &[(&[&str], &[&str])] = &[
    (&["sinfo"], &["sluice get nodes", "sluice get pools"]),
    (&["sinfo -s"], POOLS),
    (
        &[
            "hosts",
            "sinfo -N",
            "agent list",
            "agent",
            "node list",
            "node status",
            "worker list",
            "worker",
            "node ls",
        ],
        NODES,
    ),
    (
        &[
            "scontrol show node",
            "scontrol show nodes",
            "worker info",
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
            "node update",
        ],
        DRAIN,
    ),
    (
        &["scontrol update"],
        &[
            "sluice uncordon NODE",
            "sluice drain NODE",
            "sluice move step STEP --pool POOL",
        ],
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
            "rp",
            "rp list",
            "rp ls",
            "config list",
            "config show",
            "partitions",
            "node pool",
            "node pool list",
        ],
        POOLS,
    ),
    (&["node pool nodes"], &["sluice get nodes --pool POOL"]),
    (&["node pool jobs"], POOL_STEPS),
    (&["resource-pool bindings list-workspaces"], POOL_POLICIES),
    (
        &["attach-policy"],
        &["sluice resource-pool attach-policy POOL SUBJECT"],
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
            "resource-pool bindings add",
            "resource-pool bindings replace",
            "workspace create",
            "workspace resource-quota",
            "template create",
            "template set",
            "config-policies set",
            "rbac assign-role",
            "profile set pool",
            "config rollback",
            "operator scheduler set-config",
            "sacctmgr add",
            "sacctmgr modify",
            "create deployment",
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
    (&["gpuctl apply"], APPLY_OR_CREATE),
    (
        &["kubectl apply"],
        &["sluice apply -f FILE", "sluice submit -f FILE"],
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
            "resource-pool bindings remove",
            "workspace delete",
            "quota delete",
            "namespace delete",
        ],
        NO_POLICY,
    ),
    (
        &["node pool delete", "config delete pool"],
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
            "swarm init",
            "dashboard",
            "minikube",
        ],
        &["sluice dev"],
    ),
    (&["sdiag", "check", "diagnose"], &["sluice doctor"]),
    (&["version"], &["sluice --version"]),
];
