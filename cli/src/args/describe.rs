//! The words of `sluice describe`. What they mean is `commands/describe.rs`.

use clap::ValueEnum;

/// What can be described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DescribeKind {
    #[value(aliases = ["steps", "st"])]
    Step,
    #[value(aliases = ["nodes", "no"])]
    Node,
    /// One group of hosts.
    #[value(aliases = ["pools", "po"])]
    Pool,
    /// One document of assertions.
    #[value(aliases = ["validations", "vl"])]
    Validation,
    /// One kind of hardware in a pool, by POOL/PLATFORM.
    #[value(aliases = ["platforms", "pf"])]
    Platform,
    /// What pools lay under steps.
    #[value(aliases = ["templates", "tp"])]
    Template,
    /// One role, rule by rule.
    #[value(alias = "roles")]
    Role,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DescribeArgs {
    /// What kind of thing it is.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: DescribeKind,
    /// Its id or name.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

impl DescribeKind {
    /// As it stands before the `/` of a full name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DescribeKind::Step => "step",
            DescribeKind::Node => "node",
            DescribeKind::Pool => "pool",
            DescribeKind::Validation => "validation",
            DescribeKind::Platform => "platform",
            DescribeKind::Template => "template",
            DescribeKind::Role => "role",
        }
    }
}
