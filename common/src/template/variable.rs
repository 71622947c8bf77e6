//! Variables of templates, `{{...}}`: a small fixed list. Templates are checked when stored ([`pieces`]), so that
//! filling variables in ([`fill`]) cannot fail when a step starts.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::nearest::nearest;

/// Variables that templates may mention; most become known when an attempt is assigned to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variable {
    /// Random id of the cluster; together with the attempt it makes names on the host unique.
    Cluster,
    /// Id of the step.
    Step,
    /// Attempt number, starting at 1.
    Attempt,
    /// Display name of the step.
    Name,
    /// Subject of the step.
    Subject,
    /// The pool that granted the resources.
    Pool,
    /// Platform granted on this host.
    Platform,
    /// Name of the host.
    Node,
    /// Rank of this host in the gang, starting at 0.
    Rank,
    /// Number of hosts of the step.
    Nodes,
    /// UUIDs of the GPUs granted on this host, separated by `,`.
    Gpus,
    /// Number of GPUs granted on this host.
    GpuCount,
    /// Cores granted on this host, such as `1.5`; 0 if none were requested.
    CpuCount,
    /// Bytes of memory granted on this host; 0 if none were requested.
    Memory,
    /// Bytes of disk space granted on this host; 0 if none were requested.
    Storage,
    /// NUMA nodes of the GPUs on this host, separated by `,`; `all` if unknown.
    Numa,
    /// Working directory of the step.
    Workdir,
    /// File with the step's environment variables, for wrappers that pass them on.
    EnvFile,
    /// One argument per mount, formatted by `mount_argument`.
    Mounts,
    /// The template's `privileged_argument` if requested, else nothing.
    Privileged,
    /// The template's `host_network_argument` if requested, else nothing.
    HostNetwork,
    /// Source path of a mount; only in `mount_argument`.
    Source,
    /// Target path of a mount; only in `mount_argument`.
    Target,
    /// Mode of a mount, `ro` or `rw`; only in `mount_argument`.
    Mode,
}

impl Variable {
    /// All variables, in display order.
    pub const ALL: [Variable; 24] = [
        Variable::Cluster,
        Variable::Step,
        Variable::Attempt,
        Variable::Name,
        Variable::Subject,
        Variable::Pool,
        Variable::Platform,
        Variable::Node,
        Variable::Rank,
        Variable::Nodes,
        Variable::Gpus,
        Variable::GpuCount,
        Variable::CpuCount,
        Variable::Memory,
        Variable::Storage,
        Variable::Numa,
        Variable::Workdir,
        Variable::EnvFile,
        Variable::Mounts,
        Variable::Privileged,
        Variable::HostNetwork,
        Variable::Source,
        Variable::Target,
        Variable::Mode,
    ];

    /// The name as templates write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Variable::Cluster => "cluster",
            Variable::Step => "step",
            Variable::Attempt => "attempt",
            Variable::Name => "name",
            Variable::Subject => "subject",
            Variable::Pool => "pool",
            Variable::Platform => "platform",
            Variable::Node => "node",
            Variable::Rank => "rank",
            Variable::Nodes => "nodes",
            Variable::Gpus => "gpus",
            Variable::GpuCount => "gpu_count",
            Variable::CpuCount => "cpu_count",
            Variable::Memory => "memory",
            Variable::Storage => "storage",
            Variable::Numa => "numa",
            Variable::Workdir => "workdir",
            Variable::EnvFile => "env_file",
            Variable::Mounts => "mounts",
            Variable::Privileged => "privileged",
            Variable::HostNetwork => "host_network",
            Variable::Source => "source",
            Variable::Target => "target",
            Variable::Mode => "mode",
        }
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Kind of template field, which determines the variables that it may mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateField {
    /// Argument of the wrapper.
    Wrapper,
    /// Environment variable or argument of a hook.
    Text,
    /// The working directory.
    Workdir,
    /// Source or target of a mount.
    Mount,
    /// Source or target of an allowed mount. Checked at the submit, so only variables known then are allowed.
    AllowedMount,
    /// The field `mount_argument`.
    MountArgument,
    /// Field without variables.
    Plain,
}

impl TemplateField {
    /// Whether the field may mention a variable.
    pub const fn allows(self, variable: Variable) -> bool {
        let of_mount = matches!(
            variable,
            Variable::Source | Variable::Target | Variable::Mode
        );
        let of_wrapper = matches!(variable, Variable::Mounts | Variable::EnvFile);
        let of_step = matches!(variable, Variable::Privileged | Variable::HostNetwork);
        match self {
            TemplateField::Wrapper => !of_mount,
            TemplateField::Text => !of_mount && !of_wrapper,
            TemplateField::Workdir => {
                !of_mount && !of_wrapper && !of_step && !matches!(variable, Variable::Workdir)
            }
            TemplateField::Mount => !of_mount && !of_wrapper && !of_step,
            TemplateField::AllowedMount => matches!(variable, Variable::Subject | Variable::Pool),
            TemplateField::MountArgument => of_mount,
            TemplateField::Plain => false,
        }
    }
}

/// Part of a parsed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPart<'a> {
    /// A literal text.
    Text(&'a str),
    /// A variable to fill in.
    Variable(Variable),
}

/// Error in a text with variables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// Braces are not balanced.
    #[error("`{text}` has braces without their other half: write a variable as `{{{{name}}}}`")]
    Unbalanced {
        /// The text, escaped.
        text: String,
    },
    /// There is no such variable.
    #[error("there is no variable `{word}`: {hint}")]
    Unknown {
        /// The unknown name, escaped.
        word: String,
        /// Similar name, or the list of names.
        hint: String,
    },
    /// The field may not mention the variable.
    #[error("`{variable}` cannot be used here: {hint}")]
    Misplaced {
        /// The variable mentioned.
        variable: Variable,
        /// Variables that are allowed.
        hint: String,
    },
    /// The variable stands for whole arguments and cannot be part of one.
    #[error(
        "`{variable}` stands for whole arguments: write `{{{{{variable}}}}}` as an argument of its own"
    )]
    NotWhole {
        /// The variable mentioned.
        variable: Variable,
    },
}

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// Parses a text into literals and variables.
///
/// # Errors
/// If braces are not balanced, or a variable is unknown.
pub fn pieces(text: &str) -> Result<Vec<TextPart<'_>>, VariableError> {
    let unbalanced = || VariableError::Unbalanced {
        text: text.escape_debug().collect(),
    };
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (word, behind) = after.split_once(CLOSE).ok_or_else(unbalanced)?;
        if before.contains(CLOSE) || word.contains(['{', '}']) {
            return Err(unbalanced());
        }
        if !before.is_empty() {
            found.push(TextPart::Text(before));
        }
        found.push(TextPart::Variable(named(word.trim())?));
        rest = behind;
    }
    if rest.contains(CLOSE) {
        return Err(unbalanced());
    }
    if !rest.is_empty() {
        found.push(TextPart::Text(rest));
    }
    Ok(found)
}

fn named(word: &str) -> Result<Variable, VariableError> {
    let known = Variable::ALL
        .into_iter()
        .find(|variable| variable.as_str() == word);
    known.ok_or_else(|| {
        let hint = match nearest(word, Variable::ALL.map(Variable::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", listed(|_| true)),
        };
        let word = word.escape_debug().collect();
        VariableError::Unknown { word, hint }
    })
}

fn listed(which: impl Fn(Variable) -> bool) -> String {
    let names = Variable::ALL.into_iter().filter(|it| which(*it));
    let names: Vec<&str> = names.map(Variable::as_str).collect();
    names.join(", ")
}

/// Checks that a text is valid in a field.
///
/// # Errors
/// The first problem.
pub fn check(text: &str, place: TemplateField) -> Result<(), VariableError> {
    let pieces = pieces(text)?;
    let whole = pieces.len() == 1;
    for piece in &pieces {
        let TextPart::Variable(variable) = *piece else {
            continue;
        };
        if !place.allows(variable) {
            let hint = match listed(|it| place.allows(it)) {
                none if none.is_empty() => "nothing can be".to_owned(),
                some => format!("{some} can be"),
            };
            return Err(VariableError::Misplaced { variable, hint });
        }
        if variable == Variable::Mounts && !whole {
            return Err(VariableError::NotWhole { variable });
        }
    }
    Ok(())
}

/// Whether a text mentions a variable.
pub fn mentions(text: &str, wanted: Variable) -> bool {
    pieces(text).is_ok_and(|pieces| pieces.contains(&TextPart::Variable(wanted)))
}

/// Fills in known variables; unknown ones stay as written.
pub fn fill(text: &str, value: impl Fn(Variable) -> Option<String>) -> String {
    let Ok(pieces) = pieces(text) else {
        return text.to_owned();
    };
    let filled = pieces.into_iter().map(|piece| match piece {
        TextPart::Text(text) => text.to_owned(),
        TextPart::Variable(variable) => {
            value(variable).unwrap_or_else(|| format!("{OPEN}{variable}{CLOSE}"))
        }
    });
    filled.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_text_is_taken_apart_and_filled_in() {
        let known = |variable| match variable {
            Variable::Step => Some("s1".to_owned()),
            Variable::Numa => Some("0,1".to_owned()),
            _ => None,
        };
        for (text, filled) in [
            ("", ""),
            ("plain {one} }", "plain {one} }"),
            ("--cpunodebind={{numa}}", "--cpunodebind=0,1"),
            ("{{ step }}/{{step}}", "s1/s1"),
            ("{{workdir}}/x", "{{workdir}}/x"),
        ] {
            assert_eq!(fill(text, known), filled, "{text}");
        }
    }

    #[test]
    fn what_is_on_no_list_is_refused_with_the_nearest_name() {
        let said = |text| check(text, TemplateField::Wrapper).unwrap_err().to_string();
        assert_eq!(
            said("--node={{nuna}}"),
            "there is no variable `nuna`: did you mean `numa`?"
        );
        assert!(
            said("{{colour}}").starts_with("there is no variable `colour`: there are cluster, ")
        );
        for text in [
            "{{numa",
            "numa}}",
            "a}}{{numa}}",
            "{{a{{numa}}}}",
            "{{numa}}}}",
        ] {
            assert_eq!(
                said(text),
                std::format!(
                    "`{text}` has braces without their other half: write a variable as `{{{{name}}}}`"
                )
            );
        }
        assert_eq!(
            said("-v={{mounts}}"),
            "`mounts` stands for whole arguments: write `{{mounts}}` as an argument of its own"
        );
        assert!(said("{{source}}").starts_with("`source` cannot be used here: cluster, step, "));
        let plain = check("{{step}}", TemplateField::Plain)
            .unwrap_err()
            .to_string();
        assert_eq!(plain, "`step` cannot be used here: nothing can be");
        let late = check("/d/{{node}}", TemplateField::AllowedMount);
        assert_eq!(
            late.unwrap_err().to_string(),
            "`node` cannot be used here: subject, pool can be"
        );
    }

    #[test]
    fn every_variable_may_be_named_somewhere() {
        for variable in Variable::ALL {
            let text = std::format!("{{{{{variable}}}}}");
            let places = [TemplateField::Wrapper, TemplateField::MountArgument];
            assert!(
                places.iter().any(|place| check(&text, *place).is_ok()),
                "{variable}"
            );
            assert!(mentions(&text, variable));
        }
    }
}
