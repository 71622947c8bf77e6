//! Arguments of `sluice describe`.

use clap::ValueEnum;

/// Kinds that can be described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DescribeKind {
    /// One step, with its attempts.
    #[value(aliases = ["steps", "st"])]
    Step,
    /// One service, with its replicas and versions.
    #[value(aliases = ["services", "svc"])]
    Service,
    /// One host, with its GPUs and steps.
    #[value(aliases = ["nodes", "no"])]
    Node,
    /// One group of hosts.
    #[value(aliases = ["pools", "po"])]
    Pool,
    /// One validation document.
    #[value(aliases = ["validations", "vl"])]
    Validation,
    /// One kind of hardware in a pool, by POOL/PLATFORM.
    #[value(aliases = ["platforms", "pf"])]
    Platform,
    /// One template, which pools apply to steps.
    #[value(aliases = ["templates", "tp"])]
    Template,
    /// One role, rule by rule.
    #[value(alias = "roles")]
    Role,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DescribeArgs {
    /// Kind of the thing.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: DescribeKind,
    /// Id or name of the thing.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

impl DescribeKind {
    /// Returns the kind as it is before the `/` of a full name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DescribeKind::Step => "step",
            DescribeKind::Service => "service",
            DescribeKind::Node => "node",
            DescribeKind::Pool => "pool",
            DescribeKind::Validation => "validation",
            DescribeKind::Platform => "platform",
            DescribeKind::Template => "template",
            DescribeKind::Role => "role",
        }
    }
}
