//! What `{{...}}` may name in a template: a small closed list. Whoever stores a template has looked at every one of them
//! ([`pieces`]), so that filling them in ([`fill`]) cannot fail when a step starts.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::nearest::nearest;

/// What is known of an attempt when it is assigned to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variable {
    /// The cluster's random id: with it and the attempt a name on the host is used once.
    Cluster,
    /// The step's id.
    Step,
    /// The number of the attempt, from 1.
    Attempt,
    /// The step's name for people.
    Name,
    /// On whose behalf it runs.
    Subject,
    /// The pool that granted it.
    Pool,
    /// The kind of hardware that it was granted on this host.
    Platform,
    /// The host.
    Node,
    /// The place of this host among those of the step, from 0.
    Rank,
    /// On how many hosts the step runs.
    Nodes,
    /// UUIDs of the GPUs that it was given here, with `,` between them.
    Gpus,
    /// How many these are.
    GpuCount,
    /// Cores that it was granted here, such as `1.5`; 0 where it asked for none.
    CpuCount,
    /// Bytes of memory that it was granted here; 0 where it asked for none.
    Memory,
    /// Bytes of disk space that it was granted here; 0 where it asked for none.
    Storage,
    /// The NUMA nodes of its GPUs here, with `,` between them; `all` where none is known.
    Numa,
    /// The directory that it works in.
    Workdir,
    /// The file that holds the step's variables, for a wrapper that hands them on.
    EnvFile,
    /// One argument for each mount, by the template's `mount_argument`.
    Mounts,
    /// The template's `privileged_argument` where the step asks for it, and nothing where it does not.
    Privileged,
    /// The template's `host_network_argument` where the step asks for it, and nothing where it does not.
    HostNetwork,
    /// Of one mount: what is mounted.
    Source,
    /// Of one mount: where the step sees it.
    Target,
    /// Of one mount: `ro` or `rw`.
    Mode,
}

impl Variable {
    /// Every variable, in the order in which they are listed.
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

/// Where a text stands in a template, which says what it may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateField {
    /// An argument of the wrapper.
    Wrapper,
    /// A variable of the environment, or an argument of a hook.
    Text,
    /// The working directory.
    Workdir,
    /// Either side of a mount.
    Mount,
    /// Either side of what may be mounted: judged when the step is submitted, so it may hang on nothing later.
    AllowedMount,
    /// The form of a mount.
    MountArgument,
    /// What names nothing.
    Plain,
}

impl TemplateField {
    /// Whether a text that stands here may name a variable.
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

/// What a text is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPart<'a> {
    /// Itself.
    Text(&'a str),
    /// What is filled in.
    Variable(Variable),
}

/// Why a text cannot stand in a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// Braces without their other half.
    #[error("`{text}` has braces without their other half: write a variable as `{{{{name}}}}`")]
    Unbalanced {
        /// The text.
        text: String,
    },
    /// Nothing is called that.
    #[error("there is no variable `{word}`: {hint}")]
    Unknown {
        /// What was named.
        word: String,
        /// What was meant, or what there is.
        hint: String,
    },
    /// It is not known there.
    #[error("`{variable}` cannot be named here: {hint}")]
    Misplaced {
        /// Which.
        variable: Variable,
        /// What can be.
        hint: String,
    },
    /// It stands for several arguments, or for none.
    #[error("`{variable}` stands for whole arguments: let `{{{{{variable}}}}}` be one by itself")]
    NotWhole {
        /// Which.
        variable: Variable,
    },
}

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// Takes a text apart.
///
/// # Errors
/// Where braces have no other half, or name what is not on the list.
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

/// Whether a text may stand in a place.
///
/// # Errors
/// The first thing that speaks against it.
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

/// Whether a text names a variable.
pub fn mentions(text: &str, wanted: Variable) -> bool {
    pieces(text).is_ok_and(|pieces| pieces.contains(&TextPart::Variable(wanted)))
}

/// The text with what is known filled in; what is not yet known stays as it is.
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
            "`mounts` stands for whole arguments: let `{{mounts}}` be one by itself"
        );
        assert!(said("{{source}}").starts_with("`source` cannot be named here: cluster, step, "));
        let plain = check("{{step}}", TemplateField::Plain)
            .unwrap_err()
            .to_string();
        assert_eq!(plain, "`step` cannot be named here: nothing can be");
        let late = check("/d/{{node}}", TemplateField::AllowedMount);
        assert_eq!(
            late.unwrap_err().to_string(),
            "`node` cannot be named here: subject, pool can be"
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
