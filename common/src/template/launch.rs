//! What of a template is started: everything that is known of an attempt filled in. The coordinator fills in what it
//! knows when it assigns the attempt; the paths of the attempt's own are known to its host alone, which does the same once
//! more ([`Launch::settle`]).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::check::{self, hook_timeout};
use super::merge::merge_lists;
use super::variable::{self, TextPart, Variable};
use super::{Hook, LayeredList, Mount, Template};
use crate::environment::Environment;
use crate::step::StepSpec;
use crate::time::Span;

/// What goes around a step's own command, environment and directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Program and arguments before the step's own.
    pub wrapper: Vec<String>,
    /// Variables under the step's own. They are what the wrapper and the hooks have, so none is left out because the step
    /// brings it too.
    pub env: Environment,
    /// What the host's supervisor does around it.
    pub hooks: HooksAndLimits,
}

/// What a supervisor does around a step on the word of templates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HooksAndLimits {
    /// Limits by the names of its own config, and `processes`. Its config bounds them.
    pub limits: Vec<ProcessLimit>,
    /// What runs before the step, as its user and inside its attempt.
    pub before: Vec<HookRun>,
    /// What runs after it.
    pub after: Vec<HookRun>,
}

/// The most of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimit {
    /// Of what.
    pub name: String,
    /// How much.
    pub max: u64,
}

/// A program that runs around a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRun {
    /// What messages call it.
    pub name: String,
    /// Program and arguments, not empty.
    pub command: Vec<String>,
    /// How long it may take.
    pub timeout: Span,
}

/// The form of a mount where no template has one.
const MOUNT_ARGUMENT: &str = "{{source}}:{{target}}:{{mode}}";

impl Mount {
    /// With what is known filled in.
    pub(super) fn filled(&self, value: impl Fn(Variable) -> Option<String>) -> Self {
        Self {
            source: variable::fill(&self.source, &value),
            target: self
                .target
                .as_ref()
                .map(|target| variable::fill(target, &value)),
            ..self.clone()
        }
    }
}

impl Template {
    /// The directory that a step works in: its own, else that of its templates, else `None`, one of the attempt's own.
    pub fn workdir_of(
        &self,
        step: &StepSpec,
        value: impl Fn(Variable) -> Option<String>,
    ) -> Option<String> {
        let filled = || Some(variable::fill(self.workdir.as_ref()?, value));
        step.workdir.clone().or_else(filled)
    }

    /// What is mounted: what the step says goes into what the templates do, and nothing is filled into the step's own.
    pub fn mounts_of(
        &self,
        step: &StepSpec,
        value: impl Fn(Variable) -> Option<String>,
    ) -> Vec<Mount> {
        let below = self.mounts.as_ref();
        let below = below.map(|list| list.each(|mount| mount.filled(&value)));
        let merged = merge_lists(step.mounts.clone(), below);
        merged.map(Vec::from).unwrap_or_default()
    }

    /// What goes around a step; `value` tells what is known of the attempt, what it does not know stays as it is.
    pub fn launch(&self, step: &StepSpec, value: impl Fn(Variable) -> Option<String>) -> Launch {
        let mounts = self.mounts_of(step, &value);
        let value = |variable| match variable {
            Variable::Privileged => Some(step.privileged.to_string()),
            Variable::HostNetwork => Some(step.host_network.to_string()),
            other => value(other),
        };
        let wrapper = self.wrapper.iter().flatten();
        let env = self.env.iter();
        Launch {
            wrapper: wrapper
                .flat_map(|argument| self.arguments(argument, step, &mounts, value))
                .collect(),
            env: env
                .map(|(name, text)| (name.clone(), variable::fill(text, value)))
                .collect(),
            hooks: HooksAndLimits {
                limits: self.bounds(),
                before: runs(self.hooks.before.as_ref(), value),
                after: runs(self.hooks.after.as_ref(), value),
            },
        }
    }

    /// What one argument of the wrapper becomes: several, or none, where it is a variable that stands for them.
    fn arguments(
        &self,
        argument: &str,
        step: &StepSpec,
        mounts: &[Mount],
        value: impl Fn(Variable) -> Option<String>,
    ) -> Vec<String> {
        let on = |asked: bool, argument: &Option<String>| match (asked, argument) {
            (true, Some(argument)) => Some(Vec::from([argument.clone()])),
            (false, Some(_)) => Some(Vec::new()),
            (_, None) => None,
        };
        let pieces = variable::pieces(argument).unwrap_or_default();
        let several = match &pieces[..] {
            [TextPart::Variable(Variable::Mounts)] => {
                let form = self.mount_argument.as_deref().unwrap_or(MOUNT_ARGUMENT);
                Some(mounts.iter().map(|mount| in_form(form, mount)).collect())
            }
            [TextPart::Variable(Variable::Privileged)] => {
                on(step.privileged, &self.privileged_argument)
            }
            [TextPart::Variable(Variable::HostNetwork)] => {
                on(step.host_network, &self.host_network_argument)
            }
            _ => None,
        };
        several.unwrap_or_else(|| Vec::from([variable::fill(argument, value)]))
    }

    fn bounds(&self) -> Vec<ProcessLimit> {
        let limits = self.limits.iter();
        let bounds = limits.filter_map(|(name, value)| {
            // What is stored was checked.
            let most = check::limit(name, value).ok()?;
            let name = name.clone();
            Some(ProcessLimit { name, max: most })
        });
        bounds.collect()
    }
}

fn in_form(form: &str, mount: &Mount) -> String {
    variable::fill(form, |variable| match variable {
        Variable::Source => Some(mount.source.clone()),
        Variable::Target => Some(String::from(mount.target())),
        Variable::Mode => Some(String::from(mount.mode())),
        _ => None,
    })
}

fn runs(
    hooks: Option<&LayeredList<Hook>>,
    value: impl Fn(Variable) -> Option<String> + Copy,
) -> Vec<HookRun> {
    let hooks = hooks.map(LayeredList::items).unwrap_or_default();
    let named = |at: usize, hook: &Hook| match &hook.name {
        Some(name) => name.clone(),
        None => format!("{}", at + 1),
    };
    let runs = hooks.iter().enumerate().map(|(at, hook)| HookRun {
        name: named(at, hook),
        command: filled(&hook.command, value),
        timeout: hook_timeout(hook).unwrap_or(check::DEFAULT_HOOK_TIMEOUT),
    });
    runs.collect()
}

fn filled(texts: &[String], value: impl Fn(Variable) -> Option<String> + Copy) -> Vec<String> {
    let filled = texts.iter().map(|text| variable::fill(text, value));
    filled.collect()
}

impl Launch {
    /// Whether the wrapper hands the step's variables on by a file.
    pub fn has_env_file(&self) -> bool {
        let mut wrapper = self.wrapper.iter();
        wrapper.any(|argument| variable::mentions(argument, Variable::EnvFile))
    }

    /// Fills in the directory that the step works in, where it was not known before, and the file of its variables.
    pub fn fill_paths(&mut self, workdir: &str, env_file: &str) {
        let value = |variable| match variable {
            Variable::Workdir => Some(String::from(workdir)),
            Variable::EnvFile => Some(String::from(env_file)),
            _ => None,
        };
        self.wrapper = filled(&self.wrapper, value);
        for text in self.env.values_mut() {
            *text = variable::fill(text, value);
        }
        let HooksAndLimits { before, after, .. } = &mut self.hooks;
        for hook in before.iter_mut().chain(after) {
            hook.command = filled(&hook.command, value);
        }
    }

    /// How many bytes it adds to what a process is given.
    pub fn bytes(&self) -> usize {
        let env = self.env.iter().map(|(name, text)| name.len() + text.len());
        self.wrapper.iter().map(String::len).sum::<usize>() + env.sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
