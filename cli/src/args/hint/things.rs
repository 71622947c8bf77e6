//! Kinds of things and states as other tools call them, with the commands for them here.

/// Equivalents of a thing below `get`, `describe` and `delete`.
pub(super) struct KindCommands {
    pub(super) get: &'static str,
    pub(super) describe: &'static str,
    pub(super) delete: &'static str,
}

/// Words of other tools for kinds of things.
pub(super) const THINGS: [(&[&str], KindCommands); 10] = [
    (
        &["label", "labels"],
        KindCommands {
            get: "sluice get labels",
            describe: "sluice describe node NODE",
            delete: "sluice label node NODE KEY-",
        },
    ),
    (
        &[
            "job",
            "jobs",
            "task",
            "tasks",
            "pod",
            "pods",
            "run",
            "runs",
            "container",
            "containers",
            "alloc",
            "allocs",
            "experiment",
            "experiments",
            "workflow",
            "workflows",
            "workload",
            "workloads",
        ],
        KindCommands {
            get: "sluice get steps",
            describe: "sluice describe step STEP",
            delete: "sluice cancel STEP",
        },
    ),
    (
        &["deploy", "deployment", "deployments"],
        KindCommands {
            get: "sluice get services",
            describe: "sluice describe service SERVICE",
            delete: "sluice delete service SERVICE",
        },
    ),
    (
        &[
            "agent",
            "agents",
            "host",
            "hosts",
            "machine",
            "machines",
            "client",
            "clients",
            "worker",
            "workers",
            "resource",
            "resources",
        ],
        KindCommands {
            get: "sluice get nodes",
            describe: "sluice describe node NODE",
            delete: "sluice delete node NODE",
        },
    ),
    (
        &["gpu", "gpus", "slot", "slots", "device", "devices"],
        KindCommands {
            get: "sluice get nodes -o wide",
            describe: "sluice describe node NODE",
            delete: "sluice cordon NODE --gpu 0",
        },
    ),
    (
        &[
            "partition",
            "partitions",
            "queue",
            "queues",
            "nodepool",
            "resource-pool",
            "resource-pools",
            "rp",
            "cohort",
            "cohorts",
        ],
        KindCommands {
            get: "sluice get pools",
            describe: "sluice describe pool POOL",
            delete: "sluice delete pool POOL",
        },
    ),
    (
        &[
            "quota",
            "quotas",
            "qos",
            "association",
            "account",
            "accounts",
            "namespace",
            "namespaces",
            "ns",
            "project",
            "projects",
            "resourcequota",
            "resourcequotas",
            "clusterqueue",
            "clusterqueues",
            "localqueue",
            "localqueues",
            "priorityclass",
            "priorityclasses",
        ],
        KindCommands {
            get: "sluice get policies",
            describe: "sluice get policy POOL/SUBJECT -o yaml",
            delete: "sluice delete policy POOL/SUBJECT",
        },
    ),
    (
        &["resourceflavor", "resourceflavors"],
        KindCommands {
            get: "sluice get platforms",
            describe: "sluice describe platform POOL/PLATFORM",
            delete: "sluice delete platform POOL/PLATFORM",
        },
    ),
    (
        &["clusterrole", "clusterroles"],
        KindCommands {
            get: "sluice get roles",
            describe: "sluice describe role ROLE",
            delete: "sluice delete role ROLE",
        },
    ),
    (
        &[
            "rolebinding",
            "rolebindings",
            "clusterrolebinding",
            "clusterrolebindings",
        ],
        KindCommands {
            get: "sluice get bindings",
            describe: "sluice get bindings",
            delete: "sluice delete binding BINDING",
        },
    ),
];

/// Values of `wait --for` in the words of kubectl, each with its equivalent.
pub(super) const CONDITIONS: [(&str, &str); 4] = [
    ("condition=complete", "--for succeeded"),
    ("condition=failed", "--for failed"),
    ("condition=ready", "--for running"),
    ("delete", "sluice wait STEP"),
];
